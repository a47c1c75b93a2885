//! Support for tests that run the program: the API server's side of a review, fixtures, and waiting.

pub(crate) mod https;
#[allow(
    dead_code,
    reason = "the scenarios, the tests of the program and other tests each use other parts"
)]
pub(crate) mod migration;
#[allow(dead_code, reason = "the tests of a real registry do not use it")]
pub(crate) mod prometheus;
#[allow(dead_code, reason = "only the tests of the resolver use all of it")]
pub(crate) mod redis;
pub(crate) mod review;

use std::future::Future;
use std::time::Duration;

use tokio::time::{interval, timeout};

/// Maximum time to wait for an expected event. It is far more than an event takes on a busy machine, and the event ends the wait.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for `event`, and panics with `what` if it does not happen.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Waits until the condition is true, and panics with `what` if it never is.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let mut ticks = interval(POLL_INTERVAL);
    let is_true = async {
        while !condition().await {
            ticks.tick().await;
        }
    };
    soon(what, is_true).await;
}
