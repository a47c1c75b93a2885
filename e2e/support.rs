//! What the tests from outside have in common: the API server's side of a review, and how to wait.

pub(crate) mod https;
#[allow(
    dead_code,
    reason = "the scenarios use what the tests of the program do not, and these what others do not"
)]
pub(crate) mod migration;
#[allow(dead_code, reason = "the tests of a real registry have none")]
pub(crate) mod prometheus;
#[allow(dead_code, reason = "the tests of the resolver use all of it")]
pub(crate) mod redis;
pub(crate) mod review;

use std::future::Future;
use std::time::Duration;

use tokio::time::{interval, timeout};

/// How long something is waited for that has to come: far more than it takes, also on a busy machine. What comes ends
/// the wait.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often something is polled.
const ASK: Duration = Duration::from_millis(10);

/// Waits for `event`, and fails with `what` if it does not come.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Asks until the answer is yes.
pub(crate) async fn until(what: &str, ask: impl AsyncFn() -> bool) {
    let mut times = interval(ASK);
    let yes = async {
        while !ask().await {
            times.tick().await;
        }
    };
    soon(what, yes).await;
}
