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
        Self { per_second, burst, next: Mutex::new(Instant::now()) }
    }

    pub(super) async fn turn(&self) {
        let one = Duration::from_secs(1) / self.per_second;
        let (now, ahead) = (Instant::now(), one * self.burst);
        let turn = {
            let mut next = self.next.lock();
            let turn = (*next).max(now);
            *next = turn + one;
            turn
        };
        sleep_until(turn.checked_sub(ahead).unwrap_or(turn)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pace_holds() {
        let (pace, begun) = (Pace::new(50, 100), Instant::now());
        for _ in 0..100 {
            pace.turn().await;
        }
        assert!(begun.elapsed() < Duration::from_millis(50), "{:?}", begun.elapsed());
        for _ in 0..500 {
            pace.turn().await;
        }
        assert!(begun.elapsed() > Duration::from_millis(9900), "{:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_millis(10_100), "{:?}", begun.elapsed());
    }
}
