//! Looks up the images of running Pods at the start, so that the next Pods find the platforms cached.
//!
//! A lookup begins only while no Pod waits for one and most permits are free. Few run at a time, and a registry is left
//! out once its circuit opens, it limits requests, or reports that less than three quarters of its limit are left.

use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use crate::decide::Current;
use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_images::resolver::Tenant;
use tolerarch_kubernetes::cluster::{Change, ClusterError, StoredPod, Watcher};
use tolerarch_support::health::{Reported, State};

/// Maximal number of images, and bytes of their names and of the rest of their entries: some 10 MiB in all.
const IMAGES: usize = 20_000;
const BYTES: usize = 8 << 20;
const LOOKUPS: usize = 2;
/// Time for which one lookup is awaited.
const TIME: Duration = Duration::from_secs(15);

pub const NOT_LISTED: &str =
    "Pods could not be listed; each image is looked up when a Pod needs it";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmSettings {
    pub from_pods: bool,
    pub per_second: usize,
}

impl Default for WarmSettings {
    fn default() -> Self {
        Self {
            from_pods: false,
            per_second: 20,
        }
    }
}

/// An image, and the Pod's namespace and pull secrets for its lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    image: ImageRef,
    /// Namespace of the Pod; empty if the Pod names no pull secrets.
    namespace: String,
    pull_secrets: Vec<String>,
}

#[derive(Default)]
struct Found {
    seen: HashSet<Wanted>,
    bytes: usize,
}

impl Found {
    fn add(&mut self, pod: &StoredPod, with_secrets: bool) {
        let Some(facts) = &pod.facts else { return };
        let pull_secrets = facts.pull_secrets().filter(|_| with_secrets);
        let pull_secrets: Vec<String> = pull_secrets.map(str::to_owned).collect();
        let namespace = if pull_secrets.is_empty() {
            ""
        } else {
            pod.namespace()
        };
        let secrets: usize = pull_secrets
            .iter()
            .map(|name| size_of::<String>() + name.len())
            .sum();
        let shared = size_of::<Wanted>() + namespace.len() + secrets;
        for image in facts
            .images()
            .into_iter()
            .filter_map(|usage| usage.image.ok())
        {
            let bytes = shared + image.as_str().len();
            let wanted = Wanted {
                image,
                namespace: namespace.into(),
                pull_secrets: pull_secrets.clone(),
            };
            if self.seen.len() < IMAGES && self.bytes + bytes <= BYTES && self.seen.insert(wanted) {
                self.bytes += bytes;
            }
        }
    }
}

pub async fn run(watcher: Watcher, current: Current, settings: WarmSettings, state: Reported) {
    let begun = Instant::now();
    let Some(found) = list(&watcher, &current, &state).await else {
        return;
    };
    state.set(State::Healthy);
    let images = found.seen.len();
    let known = look_up(found, &current, settings.per_second).await;
    let seconds = begun.elapsed().as_secs();
    tracing::info!(
        images,
        known,
        seconds,
        "looked up the images of running Pods"
    );
}

/// Returns the images of running Pods, as soon as they can be listed; `None` without the right to.
async fn list(watcher: &Watcher, current: &Current, state: &Reported) -> Option<Found> {
    let mut changes = watcher.follow::<StoredPod>(Some("status.phase=Running"));
    let with_secrets = current.load_full().credentials.reads_pull_secrets();
    let mut found = Found::default();
    while let Some(change) = changes.next().await {
        match change {
            Change::Begins => found = Found::default(),
            Change::Listed(pod) => found.add(&pod, with_secrets),
            // What comes from now on comes as reviews, too.
            Change::Complete => break,
            Change::Unread(_) | Change::Applied(_) | Change::Deleted(_) => {}
            Change::Failed(error) => {
                let given_up = error == ClusterError::Forbidden;
                if state.get() == State::Healthy {
                    tracing::warn!(%error, given_up, "cache.warm.fromPods: Pods cannot be listed");
                    state.set(State::Degraded(NOT_LISTED));
                }
                if given_up {
                    return None;
                }
            }
        }
    }
    Some(found)
}

/// Looks up the images, and returns how many of them are known then.
async fn look_up(found: Found, current: &Current, per_second: usize) -> usize {
    let mut ticks =
        interval(Duration::from_secs(1) / u32::try_from(per_second).unwrap_or(u32::MAX).max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (ticks, left_out) = (&Mutex::new(ticks), &Mutex::new(HashSet::<String>::new()));
    let one = async |wanted: Wanted| {
        let Wanted {
            image,
            namespace,
            pull_secrets,
        } = &wanted;
        let snapshot = current.load_full();
        let shared = snapshot.credentials.shared_keyring();
        if snapshot
            .resolver
            .is_settled(image, &shared.candidates(image))
        {
            return true;
        }
        loop {
            ticks.lock().await.tick().await;
            if left_out.lock().await.contains(image.host()) {
                return false;
            }
            if snapshot.resolver.has_spare(image) {
                break;
            }
        }
        let pull_secrets = pull_secrets.iter().map(String::as_str);
        let keyring = snapshot.credentials.keyring(namespace, pull_secrets).await;
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let (images, deadline) = ([image], Instant::now() + TIME);
        let asked =
            snapshot
                .resolver
                .resolve(Tenant::Operator, &images, candidates, deadline, |_, _| {
                    false
                });
        let found = asked.await.into_iter().next().flatten();
        let refused = matches!(
            found,
            Some(Err(LookupError::Throttled | LookupError::CircuitOpen))
        );
        if refused || !snapshot.resolver.allowances().is_plentiful(image.host()) {
            left_out.lock().await.insert(image.host().to_owned());
        }
        matches!(found, Some(Ok(_)))
    };
    let looked_up = stream::iter(found.seen).map(one).buffer_unordered(LOOKUPS);
    looked_up
        .fold(0, async |known, is_known| known + usize::from(is_known))
        .await
}

#[cfg(test)]
mod tests;
