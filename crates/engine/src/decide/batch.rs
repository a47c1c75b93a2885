//! Lookups for commands, which examine many Pods while no API server waits: the answer is complete rather than quick.

use std::borrow::Cow;

use futures_util::StreamExt;
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant, timeout_at};

use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_images::credentials::CredentialCandidate;
use tolerarch_images::resolver::{LookupSettings, Lookups, Outcome, Requester, Resolver, Tenant};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Permit};

/// Time added to a lookup's timeout, so that the lookup ends first and gives the outcome.
const GRACE: Duration = Duration::from_secs(2);

/// Limits on the lookups of a batch. The time of each image starts with its lookup. A lookup begins only with a permit, so
/// that no lookup is refused or times out in the queue. Cached images need no permit.
pub struct BatchLimits {
    /// Time for one image, from the start of its lookup.
    pub(super) time: Duration,
    limit: ConcurrencyLimit,
    /// Time after which no lookup begins: images that are not cached by then are unknown.
    end: Option<Instant>,
}

impl BatchLimits {
    pub fn new(lookup: &LookupSettings) -> Self {
        let limit = ConcurrencyLimit::new(Capacity {
            all: lookup.concurrency,
            per_host: lookup.per_registry,
            waiting: Semaphore::MAX_PERMITS,
        });
        Self {
            time: lookup.timeout + GRACE,
            limit,
            end: None,
        }
    }

    /// Lets no lookup begin after `end`.
    #[must_use]
    pub fn until(mut self, end: Instant) -> Self {
        self.end = Some(end);
        self
    }

    /// Returns the lookups of all images.
    pub(super) fn lookups<'r>(
        &'r self,
        resolver: &'r Resolver,
        images: &[&'r ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
    ) -> Lookups<'r> {
        let mut lookups = Lookups::default();
        for (index, &image) in images.iter().enumerate() {
            let candidates = candidates(image);
            lookups.push(async move {
                let outcome = self.outcome(resolver, image, candidates).await;
                (index, outcome)
            });
        }
        lookups
    }

    async fn outcome(
        &self,
        resolver: &Resolver,
        image: &ImageRef,
        candidates: Cow<'static, [CredentialCandidate]>,
    ) -> Outcome {
        let permit = if resolver.is_settled(image, &candidates) {
            None
        } else {
            Some(self.permit(image).await?)
        };
        let deadline = Instant::now() + self.time;
        let candidates = |_: &ImageRef| candidates.clone();
        let mut lookups = resolver.lookups(Requester::OPERATOR, &[image], candidates, deadline);
        let outcome = lookups.next().await;
        drop(permit);
        match outcome {
            Some((_, outcome)) => outcome,
            None => Err(LookupError::Internal),
        }
    }

    /// Waits for the permit to look up an image.
    pub(super) async fn permit(&self, image: &ImageRef) -> Result<Permit, LookupError> {
        let queued = self.limit.queue(&Tenant::Operator, image.host());
        let queued = queued.ok_or(LookupError::Overloaded)?;
        let Some(end) = self.end else {
            return Ok(queued.await);
        };
        if Instant::now() >= end {
            return Err(LookupError::BudgetExceeded);
        }
        match timeout_at(end, queued).await {
            Ok(permit) => Ok(permit),
            Err(_) => Err(LookupError::BudgetExceeded),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{FutureExt, poll};
    use serde_json::json;
    use testregistry::Fault;
    use tokio::task::yield_now;

    use super::*;
    use crate::decide::Wait;
    use crate::decide::testing::{BOTH, TestEngine, pod};
    use tolerarch_core::pod::Pod;
    use tolerarch_core::reason::Reason;

    #[tokio::test]
    async fn cached_image_needs_no_permit_even_after_the_end() {
        let engine = TestEngine::new().await;
        let cached = engine.image("cached", &BOTH);
        let hanging = engine.image("hanging", &BOTH);
        let late = engine.image("late", &BOTH);
        engine.remote.repo("hanging").fault(Some(Fault::hang()));
        let snapshot = engine.current.load_full();
        let one_at_a_time = || {
            let settings = LookupSettings {
                concurrency: 1,
                per_registry: 1,
                ..LookupSettings::default()
            };
            BatchLimits::new(&settings)
        };
        let examine = async |image: &str, limits: &BatchLimits| {
            let pod = pod(&[image]);
            let pod = Pod::of_value(&pod).unwrap();
            snapshot
                .examine(&snapshot.policy, "shop", &pod, limits)
                .await
                .reason
        };
        let limits = one_at_a_time();
        assert_eq!(examine(&cached, &limits).await, Reason::Tolerated);
        let mut hangs = pin!(examine(&hanging, &limits));
        while engine.remote.requests().len() < 2 {
            assert!(poll!(hangs.as_mut()).is_pending());
            yield_now().await;
        }
        assert_eq!(
            examine(&cached, &limits).now_or_never(),
            Some(Reason::Tolerated)
        );
        let ended = one_at_a_time().until(Instant::now());
        assert_eq!(examine(&cached, &ended).await, Reason::Tolerated);
        assert_eq!(
            examine(&late, &ended).await,
            Reason::Unknown(LookupError::BudgetExceeded)
        );
        assert_eq!(engine.remote.requests().len(), 2);
    }

    #[tokio::test]
    async fn only_images_of_the_given_usages_are_looked_up() {
        let engine = TestEngine::new().await;
        let wanted = engine.image("wanted", &BOTH);
        let other = engine.image("other", &BOTH);
        let snapshot = engine.current.load_full();
        let limits = BatchLimits::new(&LookupSettings::default());
        let mut pod = pod(&[&wanted, &other]);
        pod["spec"]["initContainers"] = json!([{"image": wanted}]);
        let pod = Pod::of_value(&pod).unwrap();
        let mut usages = pod.images();
        usages.retain(|usage| usage.given == wanted);
        let wait = Wait::ForAll(&limits);
        let supports = snapshot.look_up(&snapshot.policy, "shop", &pod, &usages, wait, |_| false);
        assert_eq!(
            supports.await.images.len(),
            2,
            "as an init container and as a container"
        );
        assert_eq!(engine.remote.requests().len(), 1);
    }
}
