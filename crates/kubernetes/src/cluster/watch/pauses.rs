//! How long to wait after failures.

use tokio::time::{Duration, Instant};

/// The pause after a failure, doubled with each one until it is the longest; half as much again by chance, so that replicas
/// do not come back all at once.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// After so long without a failure the pauses begin anew. Longer than the longest pause with its chance.
pub(super) const CALM: Duration = Duration::from_secs(60);

pub(super) struct Pauses {
    first: Duration,
    next: Duration,
    failed: Option<Instant>,
}

impl Pauses {
    pub(super) fn new(first: Duration) -> Self {
        Self { first, next: first, failed: None }
    }

    pub(super) fn next(&mut self) -> Duration {
        let now = Instant::now();
        if self.failed.replace(now).is_none_or(|before| now.duration_since(before) > CALM) {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (2 * pause).min(LONGEST_PAUSE);
        pause + pause.mul_f64(fastrand::f64() / 2.0)
    }
}
