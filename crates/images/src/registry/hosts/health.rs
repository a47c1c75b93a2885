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

/// Failures, at most one for each repository, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<VecDeque<Failure>>);

#[derive(Debug)]
struct Failure {
    image: ImageRef,
    until: Instant,
    /// True if there was no connection, and nothing has succeeded since.
    is_unreachable: bool,
    /// True if nothing of this registry has succeeded since.
    in_a_row: bool,
}

impl Health {
    pub(crate) fn succeeded(&self, image: &ImageRef) {
        let mut failures = self.0.lock();
        failures.retain(|failure| failure.image.name() != image.name());
        for failure in failures.iter_mut() {
            failure.is_unreachable = false;
            failure.in_a_row &= failure.image.host() != image.host();
        }
    }

    /// Records that the mirror broke off, took too long or had an error of its own for this image, or that there was no
    /// connection to it.
    pub(crate) fn failed(&self, image: &ImageRef, is_unreachable: bool) {
        let (mut failures, now) = (self.0.lock(), Instant::now());
        failures.retain(|failure| now < failure.until && failure.image.name() != image.name());
        if failures.len() == FAILURES {
            failures.pop_front();
        }
        let (image, until) = (image.clone(), now + FAILING);
        failures.push_back(Failure { image, until, is_unreachable, in_a_row: true });
    }

    /// Returns whether the mirror is tried last for this image.
    pub(super) fn is_failing(&self, image: &ImageRef) -> bool {
        let (failures, now) = (self.0.lock(), Instant::now());
        let failures = || failures.iter().filter(|failure| now < failure.until);
        let in_a_row = failures().filter(|failure| failure.in_a_row && failure.image.host() == image.host());
        failures().any(|failure| failure.is_unreachable || failure.image.name() == image.name())
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
            health.failed(&a, false);
        }
        health.failed(&b, false);
        assert!(health.is_failing(&image("a:other")) && health.is_failing(&b) && !health.is_failing(&d));
        health.succeeded(&d);
        health.failed(&c, false);
        assert!(health.is_failing(&a) && !health.is_failing(&d), "one succeeded in between");
        health.failed(&a, false);
        health.failed(&b, false);
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
        health.failed(&image("a"), true);
        assert!(health.is_failing(&image("a")) && health.is_failing(&image("e.f/d")));
        health.succeeded(&image("a"));
        assert!(!health.is_failing(&image("e.f/d")));
        health.failed(&image("a"), true);
        tokio::time::advance(FAILING).await;
        assert!(!health.is_failing(&image("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_remembers_is_bounded() {
        let health = Health::default();
        for number in 0..2 * FAILURES {
            health.failed(&image(&format!("r{number}.test/x")), false);
        }
        assert_eq!(health.0.lock().len(), FAILURES);
    }
}
