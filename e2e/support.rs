//! Code that the tests from outside share: the API server's side of a review, and waiting.

pub(crate) mod https;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod migration;
#[allow(dead_code, reason = "the tests of a real registry do not use it")]
pub(crate) mod prometheus;
#[allow(dead_code, reason = "only the tests of the resolver use all of it")]
pub(crate) mod redis;
pub(crate) mod review;

use std::future::Future;
use std::time::Duration;

use tokio::time::{interval, timeout};

/// The maximum wait for what must happen: far more than it takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits for `event`, and fails with `what` if it does not happen in time.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Waits until `is_met` returns true.
pub(crate) async fn until(what: &str, is_met: impl AsyncFn() -> bool) {
    let mut ticks = interval(POLL_INTERVAL);
    let met = async {
        while !is_met().await {
            ticks.tick().await;
        }
    };
    soon(what, met).await;
}
