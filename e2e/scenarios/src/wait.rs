//! Waits for an event, or polls for a condition; never waits for a fixed time.

use std::time::Duration;

use tokio::time::{interval, timeout};

/// How long to wait for what must happen: far more than it takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often something is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits for `event`.
///
/// # Panics
/// With `what`, if the event does not happen in time.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Calls `poll` until it returns a value.
///
/// # Panics
/// With `what`, if it returns none in time.
pub async fn until<T>(what: &str, poll: impl AsyncFn() -> Option<T>) -> T {
    soon(what, first_value(poll)).await
}

/// Calls `poll` until it returns a value, for at most `patience`.
///
/// # Panics
/// With `what`, if it returns none in time.
pub async fn until_in<T>(patience: Duration, what: &str, poll: impl AsyncFn() -> Option<T>) -> T {
    timeout(patience, first_value(poll))
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Calls `poll` until it succeeds.
///
/// # Panics
/// With `what` and the last error, if it does not succeed in time.
pub async fn until_ok<T>(what: &str, poll: impl AsyncFn() -> Result<T, String>) -> T {
    let mut last_error = String::new();
    let value = timeout(PATIENCE, async {
        let mut ticks = interval(POLL_INTERVAL);
        loop {
            ticks.tick().await;
            match poll().await {
                Ok(value) => return value,
                Err(error) => last_error = error,
            }
        }
    })
    .await;
    value.unwrap_or_else(|_| panic!("waited in vain: {what}; in the end: {last_error}"))
}

async fn first_value<T>(poll: impl AsyncFn() -> Option<T>) -> T {
    let mut ticks = interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        if let Some(value) = poll().await {
            return value;
        }
    }
}
