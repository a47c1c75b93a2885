//! Passive health checks of mirrors: failing mirrors are tried last. Pure but for the clock. Images are untrusted, so a
//! failure of one says little about a mirror that all share: it counts for that repository, and for the whole registry
//! once different repositories fail without a success in between. Only a failed connection counts for all.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

use tolerarch_core::image::ImageRef;
use tolerarch_support::sync::Mutex;

/// Time after a failure for which a mirror is tried last.
pub(super) const FAILING: Duration = Duration::from_secs(20);
/// Repositories of a registry that fail in a row before a mirror is tried last for all; and most failures to remember.
const IN_A_ROW: usize = 3;
const FAILURES: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Time until which the mirror is tried last for every image.
    unreachable_until: Option<Instant>,
    /// Failures, at most one for each repository, the oldest first.
    failures: VecDeque<Failure>,
}

#[derive(Debug)]
struct Failure {
    image: ImageRef,
    until: Instant,
    /// True if nothing of this registry has succeeded since.
    in_a_row: bool,
}

impl Health {
    pub(super) fn connect_failed(&self) {
        self.0.lock().unreachable_until = Some(Instant::now() + FAILING);
    }

    pub(crate) fn succeeded(&self, image: &ImageRef) {
        let mut state = self.0.lock();
        state.unreachable_until = None;
        state.failures.retain(|failure| failure.image.name() != image.name());
        for failure in state.failures.iter_mut().filter(|failure| failure.image.host() == image.host()) {
            failure.in_a_row = false;
        }
    }

    /// Records that the mirror broke off, took too long or had an error of its own for this image.
    pub(crate) fn failed(&self, image: &ImageRef) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.failures.retain(|failure| now < failure.until && failure.image.name() != image.name());
        if state.failures.len() == FAILURES {
            state.failures.pop_front();
        }
        let until = now + FAILING;
        state.failures.push_back(Failure { image: image.clone(), until, in_a_row: true });
    }

    /// Returns whether the mirror is tried last for this image.
    pub(super) fn is_failing(&self, image: &ImageRef) -> bool {
        let (state, now) = (self.0.lock(), Instant::now());
        let failures = || state.failures.iter().filter(|failure| now < failure.until);
        let in_a_row = failures().filter(|failure| failure.in_a_row && failure.image.host() == image.host());
        state.unreachable_until.is_some_and(|until| now < until)
            || failures().any(|failure| failure.image.name() == image.name())
            || in_a_row.count() >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> ImageRef {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_image_says_nothing_about_the_others() {
        let health = Health::default();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(image);
        for _ in 0..5 {
            health.failed(&a);
        }
        health.failed(&b);
        assert!(health.is_failing(&image("a:other")) && health.is_failing(&b) && !health.is_failing(&d));
        health.succeeded(&d);
        health.failed(&c);
        assert!(health.is_failing(&a) && !health.is_failing(&d), "one succeeded in between");
        health.failed(&a);
        health.failed(&b);
        assert!(health.is_failing(&d), "three in a row");
        assert!(!health.is_failing(&image("e.f/d")), "of that registry only");
        health.succeeded(&a);
        assert!(!health.is_failing(&a) && !health.is_failing(&d));
        tokio::time::advance(FAILING).await;
        assert!(!health.is_failing(&b));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_connection_it_fails_for_every_image() {
        let health = Health::default();
        health.connect_failed();
        assert!(health.is_failing(&image("a")) && health.is_failing(&image("e.f/d")));
        health.succeeded(&image("a"));
        assert!(!health.is_failing(&image("e.f/d")));
        health.connect_failed();
        tokio::time::advance(FAILING).await;
        assert!(!health.is_failing(&image("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_remembers_is_bounded() {
        let health = Health::default();
        for number in 0..2 * FAILURES {
            health.failed(&image(&format!("r{number}.test/x")));
        }
        assert_eq!(health.0.lock().failures.len(), FAILURES);
    }
}
