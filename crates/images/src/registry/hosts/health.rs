//! Passive health checks of mirrors: failing mirrors are tried last. Pure but for the clock. Pods name the images, so a
//! failure of one says little about a mirror that all share: it counts for the namespace of the lookup, there for the
//! repository, and for the whole registry once different repositories fail without a success in between. Only a failed
//! connection counts for all.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

use tolerarch_core::image::ImageRef;
use tolerarch_support::sync::Mutex;

/// Time after a failure for which a mirror is tried last.
pub(super) const FAILING: Duration = Duration::from_secs(20);
/// Repositories of a registry that fail in a row before a mirror is tried last for all; and most failures to remember.
const IN_A_ROW: usize = 3;
const FAILURES: usize = 256;
/// Most failures of one namespace to remember.
const FAILURES_OF_NAMESPACE: usize = 16;

/// Failures, at most one for each repository and namespace, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<VecDeque<Failure>>);

#[derive(Debug)]
struct Failure {
    image: ImageRef,
    /// Hash of the namespace's name.
    namespace: u64,
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
    pub(crate) fn failed(&self, image: &ImageRef, namespace: u64, is_unreachable: bool) {
        let now = Instant::now();
        let mut failures = self.0.lock();
        failures.retain(|failure| {
            let is_same = failure.namespace == namespace && failure.image.name() == image.name();
            now < failure.until && !is_same
        });
        let of_namespace = failures
            .iter()
            .filter(|failure| failure.namespace == namespace)
            .count();
        if of_namespace >= FAILURES_OF_NAMESPACE {
            if let Some(oldest) = failures
                .iter()
                .position(|failure| failure.namespace == namespace)
            {
                failures.remove(oldest);
            }
        } else if failures.len() >= FAILURES {
            failures.pop_front();
        }
        failures.push_back(Failure {
            image: image.clone(),
            namespace,
            until: now + FAILING,
            is_unreachable,
            in_a_row: true,
        });
    }

    /// Returns whether the mirror is tried last for this image and namespace.
    pub(super) fn is_failing(&self, image: &ImageRef, namespace: u64) -> bool {
        let now = Instant::now();
        let mut in_a_row = 0;
        for failure in self.0.lock().iter().filter(|failure| now < failure.until) {
            if failure.is_unreachable {
                return true;
            }
            if failure.namespace != namespace {
                continue;
            }
            if failure.image.name() == image.name() {
                return true;
            }
            in_a_row += usize::from(failure.in_a_row && failure.image.host() == image.host());
        }
        in_a_row >= IN_A_ROW
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
            health.failed(&a, 1, false);
        }
        health.failed(&b, 1, false);
        assert!(
            health.is_failing(&image("a:other"), 1)
                && health.is_failing(&b, 1)
                && !health.is_failing(&d, 1)
        );
        health.succeeded(&d);
        health.failed(&c, 1, false);
        assert!(
            health.is_failing(&a, 1) && !health.is_failing(&d, 1),
            "one succeeded in between"
        );
        health.failed(&a, 1, false);
        health.failed(&b, 1, false);
        assert!(health.is_failing(&d, 1), "three in a row");
        assert!(
            !health.is_failing(&d, 2) && !health.is_failing(&a, 2),
            "for that namespace only"
        );
        assert!(
            !health.is_failing(&image("e.f/d"), 1),
            "of that registry only"
        );
        health.succeeded(&a);
        assert!(!health.is_failing(&a, 1) && !health.is_failing(&d, 1));
        tokio::time::advance(FAILING).await;
        assert!(!health.is_failing(&b, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_connection_it_fails_for_every_image() {
        let health = Health::default();
        health.failed(&image("a"), 1, true);
        assert!(health.is_failing(&image("a"), 1) && health.is_failing(&image("e.f/d"), 1));
        health.succeeded(&image("a"));
        assert!(!health.is_failing(&image("e.f/d"), 1));
        health.failed(&image("a"), 1, true);
        tokio::time::advance(FAILING).await;
        assert!(!health.is_failing(&image("a"), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_remembers_is_bounded() {
        let health = Health::default();
        health.failed(&image("a"), 2, false);
        for number in 0..2 * FAILURES {
            health.failed(&image(&format!("r{number}.test/x")), 1, false);
        }
        assert_eq!(health.0.lock().len(), 1 + FAILURES_OF_NAMESPACE);
        assert!(
            health.is_failing(&image("a"), 2),
            "one namespace takes no places of others"
        );
        for namespace in 0..2 * FAILURES as u64 {
            health.failed(&image("a"), namespace, false);
        }
        assert_eq!(health.0.lock().len(), FAILURES);
    }
}
