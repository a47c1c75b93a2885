//! Lookups of the images of running Pods at startup, so that the next Pods find the platforms cached.
//!
//! A lookup begins only while no Pod waits for one and most permits are free. Few lookups run at a time. A registry is left
//! out once its circuit opens, once it limits requests, or once it reports that less than three quarters of its limit
//! remain.

use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::stream;
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant, Interval, MissedTickBehavior, interval};

use crate::decide::{CurrentSnapshot, Snapshot};
use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_images::resolver::Requester;
use tolerarch_kubernetes::cluster::{Change, ClusterError, StoredPod, Watcher};
use tolerarch_support::health::{Reported, State};

/// Maximum number of images.
const IMAGES: usize = 20_000;
/// Maximum bytes of the images' entries, their names included: with the table some 10 MiB.
const BYTES: usize = 8 << 20;
/// Maximum number of concurrent lookups.
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

/// An image of a running Pod, and the Pod's namespace and pull secrets for the lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RunningImage {
    image: ImageRef,
    /// Namespace of the Pod; empty if the Pod names no pull secrets.
    namespace: String,
    pull_secrets: Vec<String>,
}

/// The different images of running Pods, within the limits.
#[derive(Default)]
struct RunningImages {
    images: HashSet<RunningImage>,
    bytes: usize,
}

impl RunningImages {
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
        let mut bytes_without_image = size_of::<RunningImage>() + namespace.len();
        for name in &pull_secrets {
            bytes_without_image += size_of::<String>() + name.len();
        }
        for usage in facts.images() {
            let Ok(image) = usage.image else { continue };
            let bytes = bytes_without_image + image.as_str().len();
            if self.images.len() >= IMAGES || self.bytes + bytes > BYTES {
                continue;
            }
            let is_new = self.images.insert(RunningImage {
                image,
                namespace: namespace.into(),
                pull_secrets: pull_secrets.clone(),
            });
            if is_new {
                self.bytes += bytes;
            }
        }
    }
}

/// Lists the running Pods and looks up their images.
pub async fn run(
    watcher: Watcher,
    current: CurrentSnapshot,
    settings: WarmSettings,
    state: Reported,
) {
    let begun = Instant::now();
    let Some(running) = list(&watcher, &current, &state).await else {
        return;
    };
    state.set(State::Healthy);
    let images = running.images.len();
    let known = look_up(running, &current, settings.per_second).await;
    let seconds = begun.elapsed().as_secs();
    tracing::info!(
        images,
        known,
        seconds,
        "looked up the images of running Pods"
    );
}

/// Returns the images of running Pods, once the Pods have been listed; `None` without the right to list them.
async fn list(
    watcher: &Watcher,
    current: &CurrentSnapshot,
    state: &Reported,
) -> Option<RunningImages> {
    let mut changes = watcher.follow::<StoredPod>(Some("status.phase=Running"));
    let with_secrets = current.load_full().credentials.reads_pull_secrets();
    let mut running = RunningImages::default();
    while let Some(change) = changes.next().await {
        match change {
            Change::Begins => running = RunningImages::default(),
            Change::Listed(pod) => running.add(&pod, with_secrets),
            // Later Pods come as reviews, which look up their images.
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
    Some(running)
}

/// Looks up the images, and returns how many of them have known platforms afterwards.
async fn look_up(running: RunningImages, current: &CurrentSnapshot, per_second: usize) -> usize {
    let per_second = u32::try_from(per_second).unwrap_or(u32::MAX).max(1);
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let lookups = WarmLookups {
        current,
        ticks: Mutex::new(ticks),
        left_out: Mutex::default(),
    };
    let mut looked_up = stream::iter(running.images)
        .map(|image| lookups.look_up(image))
        .buffer_unordered(LOOKUPS);
    let mut known = 0;
    while let Some(is_known) = looked_up.next().await {
        known += usize::from(is_known);
    }
    known
}

struct WarmLookups<'c> {
    current: &'c CurrentSnapshot,
    /// The pace at which lookups begin.
    ticks: Mutex<Interval>,
    /// Registries at which no more images are looked up.
    left_out: Mutex<HashSet<String>>,
}

impl WarmLookups<'_> {
    /// Looks up one image, and returns whether its platforms are known afterwards.
    async fn look_up(&self, running: RunningImage) -> bool {
        let RunningImage {
            image,
            namespace,
            pull_secrets,
        } = &running;
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
