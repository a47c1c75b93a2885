//! Looks up the images of running Pods at the start, so that the next Pods find the platforms cached.
//!
//! A lookup begins only while no Pod waits for one and most permits are free. Few run at a time, and a registry is left
//! out once its circuit opens, it limits requests, or reports that less than three quarters of its limit are left.

use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant, Interval, MissedTickBehavior, interval};

use crate::decide::{Current, Snapshot};
use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_images::resolver::Requester;
use tolerarch_kubernetes::cluster::{Change, ClusterError, StoredPod, Watcher};
use tolerarch_support::health::{Reported, State};

/// Maximum number of images, and bytes of their names and of the rest of their entries: some 10 MiB in all.
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
        let mut pull_secrets: Vec<String> = Vec::new();
        if with_secrets {
            pull_secrets.extend(facts.pull_secrets().map(str::to_owned));
        }
        let namespace = if pull_secrets.is_empty() {
            ""
        } else {
            pod.namespace()
        };
        let mut bytes_without_image = size_of::<Wanted>() + namespace.len();
        for name in &pull_secrets {
            bytes_without_image += size_of::<String>() + name.len();
        }
        for usage in facts.images() {
            let Ok(image) = usage.image else { continue };
            let bytes = bytes_without_image + image.as_str().len();
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
    let per_second = u32::try_from(per_second).unwrap_or(u32::MAX).max(1);
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let run = Run {
        current,
        ticks: Mutex::new(ticks),
        left_out: Mutex::default(),
    };
    let mut looked_up = stream::iter(found.seen)
        .map(|wanted| run.look_up(wanted))
        .buffer_unordered(LOOKUPS);
    let mut known = 0;
    while let Some(is_known) = looked_up.next().await {
        known += usize::from(is_known);
    }
    known
}

struct Run<'c> {
    current: &'c Current,
    /// The pace at which lookups begin.
    ticks: Mutex<Interval>,
    /// Registries that are not asked any more.
    left_out: Mutex<HashSet<String>>,
}

impl Run<'_> {
    /// Looks up one image, and returns whether it is known then.
    async fn look_up(&self, wanted: Wanted) -> bool {
        let Wanted {
            image,
            namespace,
            pull_secrets,
        } = &wanted;
        let snapshot = self.current.load_full();
        let Snapshot {
            credentials,
            resolver,
            ..
        } = &*snapshot;
        let shared = credentials.shared_keyring();
        if resolver.is_settled(image, &shared.candidates(image)) {
            return true;
        }
        loop {
            self.ticks.lock().await.tick().await;
            if self.left_out.lock().await.contains(image.host()) {
                return false;
            }
            if resolver.has_spare(image) {
                break;
            }
        }
        let pull_secrets = pull_secrets.iter().map(String::as_str);
        let keyring = credentials.keyring(namespace, pull_secrets).await;
        let candidates = |image: &ImageRef| keyring.candidates(image);
        let deadline = Instant::now() + TIME;
        let mut lookups = resolver.lookups(Requester::OPERATOR, &[image], candidates, deadline);
        let outcome = lookups.next().await.map(|(_, outcome)| outcome);
        let is_refused = matches!(
            outcome,
            Some(Err(LookupError::Throttled | LookupError::CircuitOpen))
        );
        if is_refused || !resolver.allowances().is_plentiful(image.host()) {
            self.left_out.lock().await.insert(image.host().to_owned());
        }
        matches!(outcome, Some(Ok(_)))
    }
}

#[cfg(test)]
mod tests;
