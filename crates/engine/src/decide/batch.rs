//! Lookups of many Pods for which no API server waits, as commands do them: a complete answer instead of a quick one.

use std::borrow::Cow;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant};

use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_images::credentials::CredentialCandidate;
use tolerarch_images::resolver::{LookupSettings, Outcome, Resolver, Tenant};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit};

/// Time beyond that of any lookup for which an image is waited for, so that the lookup's own outcome is seen.
const LONGER: Duration = Duration::from_secs(2);

/// Limits on the lookups of a batch. All images of a Pod are waited for, each with its own time, so that which is known
/// first does not matter. No more lookups begin than may run: none is refused, or spends its time in the queue.
pub struct BatchLimits {
    /// Time for one image, once its lookup has begun.
    pub(super) time: Duration,
    limit: ConcurrencyLimit,
}

impl BatchLimits {
    pub fn new(lookup: &LookupSettings) -> Self {
        let (all, per_host, waiting) = (lookup.concurrency, lookup.per_registry, Semaphore::MAX_PERMITS);
        let limit = ConcurrencyLimit::new(Capacity { all, per_host, waiting });
        Self { time: lookup.timeout + LONGER, limit }
    }

    pub(super) async fn resolve(
        &self,
        resolver: &Resolver,
        images: &[&ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
    ) -> Vec<Option<Outcome>> {
        let candidates = &candidates;
        let one = async |image: &ImageRef| {
            let Some(queued) = self.limit.queue(&Tenant::Operator, image.host()) else {
                return Some(Err(LookupError::Overloaded));
            };
            let _permit = queued.await;
            let deadline = Instant::now() + self.time;
            let images = [image];
            let answers = resolver.resolve(Tenant::Operator, &images, candidates, deadline, |_, _| false);
            answers.await.into_iter().next().flatten()
        };
        join_all(images.iter().map(|image| one(image))).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::Wait;
    use crate::decide::testing::{BOTH, Bench, pod};
    use tolerarch_core::pod::Pod;

    #[tokio::test]
    async fn only_what_is_wanted_is_asked() {
        let bench = Bench::new().await;
        let (wanted, other) = (bench.image("wanted", &BOTH), bench.image("other", &BOTH));
        let snapshot = bench.current.load_full();
        let limits = BatchLimits::new(&LookupSettings::default());
        let mut pod = pod(&[&wanted, &other]);
        pod["spec"]["initContainers"] = json!([{"image": wanted}]);
        let pod = Pod::of_value(&pod).unwrap();
        let mut usages = pod.images();
        usages.retain(|usage| usage.given == wanted);
        let wait = Wait::ForAll(&limits);
        let supports = snapshot.look_up(&snapshot.policy, "shop", &pod, &usages, wait, |_| false);
        assert_eq!(supports.await.len(), 2, "as an init container and as a container");
        assert_eq!(bench.remote.requests().len(), 1);
    }
}
