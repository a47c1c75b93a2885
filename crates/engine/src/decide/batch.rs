//! Lookups of many Pods for which no API server waits, as a command does them: a complete answer instead of a quick one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant};

use tolerarch_core::image::ImageRef;
use tolerarch_images::credentials::CredentialCandidate;
use tolerarch_images::resolver::{LookupSettings, Outcome, Resolver, Tenant};
use tolerarch_support::sync::Mutex;

/// An image is waited for longer than any lookup takes, so that its outcome is seen.
const LONGER: Duration = Duration::from_secs(2);

/// Limits on the lookups of a batch. All images of a Pod are waited for, so that its decision does not depend on which is
/// known first, and each has a time of its own. No more are asked for at a time than may be looked up at a time: none is
/// refused because too many wait, and none loses its time waiting for its turn.
pub struct BatchLimits {
    /// For one image, once it is its turn.
    pub(super) time: Duration,
    per_registry: usize,
    running: Semaphore,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl BatchLimits {
    /// The limits that suit lookups with these settings.
    pub fn new(lookup: &LookupSettings) -> Self {
        Self {
            time: lookup.timeout + LONGER,
            per_registry: lookup.per_registry,
            running: Semaphore::new(lookup.concurrency),
            hosts: Mutex::default(),
        }
    }

    pub(super) async fn resolve(
        &self,
        resolver: &Resolver,
        images: &[&ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
    ) -> Vec<Option<Outcome>> {
        let candidates = &candidates;
        let one = async |image: &ImageRef| {
            let host = self.host(image.host());
            // First the host's share, so that one that hangs keeps no others waiting. They are never closed.
            let share = host.acquire().await;
            let turn = self.running.acquire().await;
            let deadline = Instant::now() + self.time;
            let images = [image];
            let answers = resolver.resolve(Tenant::Operator, &images, candidates, deadline, |_, _| false);
            let outcome = answers.await.into_iter().next().flatten();
            drop((share, turn));
            self.leave(image.host(), host);
            outcome
        };
        join_all(images.iter().map(|image| one(image))).await
    }

    fn host(&self, name: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock();
        let host =
            hosts.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.per_registry)));
        host.clone()
    }

    /// Forgets a host that no other image is asked of: Pods name hosts as they like.
    fn leave(&self, name: &str, host: Arc<Semaphore>) {
        let mut hosts = self.hosts.lock();
        drop(host);
        if hosts.get(name).is_some_and(|host| Arc::strong_count(host) == 1) {
            hosts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::testing::{BOTH, Bench, pod};
    use tolerarch_core::pod::Pod;

    #[tokio::test]
    async fn only_what_is_wanted_is_asked_and_no_host_is_kept() {
        let bench = Bench::new().await;
        let (wanted, other) = (bench.image("wanted", &BOTH), bench.image("other", &BOTH));
        let snapshot = bench.current.get();
        let limits = BatchLimits::new(&LookupSettings::default());
        let mut pod = pod(&[&wanted, &other]);
        pod["spec"]["initContainers"] = json!([{"image": wanted}]);
        let pod = Pod::of_value(&pod).unwrap();
        let supports = snapshot.supports(&snapshot.policy, "shop", &pod, |given| given == wanted, &limits);
        assert_eq!(supports.await.len(), 2, "as an init container and as a container");
        assert_eq!(bench.remote.requests().len(), 1);
        assert!(limits.hosts.lock().is_empty());
    }
}
