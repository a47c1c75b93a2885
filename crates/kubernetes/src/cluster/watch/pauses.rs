//! Exponential back-off.

use tokio::time::{Duration, Instant};

pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Time without a failure after which the pauses start over. Longer than the longest pause with its jitter.
pub(super) const CALM: Duration = Duration::from_secs(60);

/// Pauses after failures. Each failure doubles the pause, up to [`LONGEST_PAUSE`]. A random part of up to half is
/// added, so that replicas spread.
#[derive(Clone)]
pub(super) struct Pauses {
    pub(super) first: Duration,
    next: Duration,
    failed: Instant,
}

impl Pauses {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            first,
            next: first,
            failed: Instant::now(),
        }
    }

    pub(super) fn next(&mut self) -> Duration {
        if self.failed.elapsed() > CALM {
            self.next = self.first;
        }
        self.failed = Instant::now();
        let pause = self.next;
        self.next = (2 * pause).min(LONGEST_PAUSE);
        pause + pause.mul_f64(fastrand::f64() / 2.0)
    }
}
