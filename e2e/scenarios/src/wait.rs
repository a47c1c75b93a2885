//! How to wait: for what comes, or until what is asked again and again is as wanted, never for a time.

use std::time::Duration;

use tokio::time::{interval, timeout};

/// How long something is waited for that has to come: far more than it takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often something is polled.
const ASK: Duration = Duration::from_millis(50);

/// Waits for `event`.
///
/// # Panics
/// With `what`, if it does not come.
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    timeout(PATIENCE, event)
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Asks until there is an answer.
///
/// # Panics
/// With `what`, if there is none in time.
pub async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    soon(what, answer(ask)).await
}

/// The same for what may take this long by its nature.
///
/// # Panics
/// With `what`, if there is none in time.
pub async fn until_in<T>(patience: Duration, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    timeout(patience, answer(ask))
        .await
        .unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Asks until there is an answer, or else what is there instead.
///
/// # Panics
/// With `what` and what was there last, if there is none in time.
pub async fn until_ok<T>(what: &str, ask: impl AsyncFn() -> Result<T, String>) -> T {
    let mut last = String::new();
    let answer = timeout(PATIENCE, async {
        let mut times = interval(ASK);
        loop {
            times.tick().await;
            match ask().await {
                Ok(answer) => return answer,
                Err(instead) => last = instead,
            }
        }
    })
    .await;
    answer.unwrap_or_else(|_| panic!("waited in vain: {what}; in the end: {last}"))
}

async fn answer<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let mut times = interval(ASK);
    loop {
        times.tick().await;
        if let Some(answer) = ask().await {
            return answer;
        }
    }
}
