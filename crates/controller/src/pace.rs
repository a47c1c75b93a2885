//! Rate limit.

use tokio::time::{Duration, Instant, sleep_until};
use tolerarch_support::sync::Mutex;

/// Token bucket: `burst` turns at once, then `per_second`.
pub(super) struct Pace {
    per_second: u32,
    burst: u32,
    /// Time at which the next turn would be due without a burst.
    next: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            next: Mutex::new(Instant::now()),
        }
    }

    /// Takes the next turn, and waits until it is due.
    pub(super) async fn turn(&self) {
        let turn = self.take();
        self.wait_for(turn).await;
    }

    /// Waits until the next turn is due, without taking it.
    pub(super) async fn due(&self) {
        let next = *self.next.lock();
        self.wait_for(next).await;
    }

    /// Takes the next turn without waiting. Returns its time.
    pub(super) fn take(&self) -> Instant {
        let mut next = self.next.lock();
        let turn = (*next).max(Instant::now());
        *next = turn + self.interval();
        turn
    }

    async fn wait_for(&self, turn: Instant) {
        let ahead = self.interval() * self.burst;
        sleep_until(turn.checked_sub(ahead).unwrap_or(turn)).await;
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_follow_a_burst_at_the_rate() {
        let pace = Pace::new(50, 100);
        let begun = Instant::now();
        for _ in 0..100 {
            pace.turn().await;
        }
        assert!(
            begun.elapsed() < Duration::from_millis(50),
            "{:?}",
            begun.elapsed()
        );
        for _ in 0..500 {
            pace.turn().await;
        }
        assert!(
            begun.elapsed() > Duration::from_millis(9900),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            begun.elapsed() < Duration::from_millis(10_100),
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_turn_does_not_take_it() {
        let pace = Pace::new(5, 1);
        let begun = Instant::now();
        for _ in 0..10 {
            pace.due().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..11 {
            pace.due().await;
            pace.take();
        }
        let elapsed = begun.elapsed();
        assert!((1800..=2000).contains(&elapsed.as_millis()), "{elapsed:?}");
    }
}
