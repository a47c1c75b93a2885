//! Passive health checks of mirrors: a failing mirror is tried last. Pure, except for the clock.
//!
//! Pods choose the images, so the failure of one image says little about a mirror that all tenants share. It counts
//! only for the namespace of the lookup, and there for the image's repository. Once different repositories of a
//! registry fail without a success in between, it counts for that whole registry. Only a failed connection counts for
//! all namespaces.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

use tolerarch_core::image::ImageRef;
use tolerarch_support::sync::Mutex;

/// For this long after a failure, a mirror is tried last.
pub(super) const FAILING: Duration = Duration::from_secs(20);
/// Number of repositories of a registry that fail in a row before a mirror is tried last for all of the registry.
const IN_A_ROW: usize = 3;
/// Maximum number of failures to remember.
const MAX_FAILURES: usize = 256;
/// Maximum number of failures of one namespace to remember.
const MAX_FAILURES_OF_NAMESPACE: usize = 16;

/// Recent failures of one mirror, at most one for each repository and namespace, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<VecDeque<Failure>>);

#[derive(Debug)]
struct Failure {
    image: ImageRef,
    /// Hash of the namespace's name.
    namespace: u64,
    until: Instant,
    /// True if there was no connection, and no request to the mirror has succeeded since.
    is_unreachable: bool,
    /// True if no request for an image of the same registry has succeeded since.
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

    /// Records that the mirror closed the connection, took too long or answered with a server error for this image, or
    /// that there was no connection to it.
    pub(crate) fn failed(&self, image: &ImageRef, namespace: u64, is_unreachable: bool) {
        let now = Instant::now();
        let mut failures = self.0.lock();
        failures.retain(|failure| {
            let is_same = failure.namespace == namespace && failure.image.name() == image.name();
            now < failure.until && !is_same
        });
        let is_of_namespace = |failure: &Failure| failure.namespace == namespace;
        let count = failures
            .iter()
            .filter(|failure| is_of_namespace(failure))
            .count();
        if count >= MAX_FAILURES_OF_NAMESPACE {
            if let Some(oldest) = failures.iter().position(is_of_namespace) {
                failures.remove(oldest);
            }
        } else if failures.len() >= MAX_FAILURES {
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
    async fn failure_counts_for_its_repository_until_three_fail() {
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
    async fn failed_connection_counts_for_every_image() {
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
    async fn remembered_failures_are_bounded() {
        let health = Health::default();
        health.failed(&image("a"), 2, false);
        for number in 0..2 * MAX_FAILURES {
            health.failed(&image(&format!("r{number}.test/x")), 1, false);
        }
        assert_eq!(health.0.lock().len(), 1 + MAX_FAILURES_OF_NAMESPACE);
        assert!(
            health.is_failing(&image("a"), 2),
            "failures of one namespace evict none of another"
        );
        for namespace in 0..2 * MAX_FAILURES as u64 {
            health.failed(&image("a"), namespace, false);
        }
        assert_eq!(health.0.lock().len(), MAX_FAILURES);
    }
}
