//! Evicts Pods that failed on their node's architecture, within disruption budgets. Their successors get no tolerations
//! for such nodes.

use std::collections::HashMap;
use std::convert::Infallible;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, sleep};

use super::fair_queue::FairQueue;
use super::loops::Context;
use super::metrics::count;
use tolerarch_core::pod::{POOLS_KEY, REQUIRED_KEY};
use tolerarch_engine::lessons::Timestamp;
use tolerarch_images::registry::Digest;
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, StoredPod};

pub(super) const NO_EVICTIONS: &str = "the right to create pods/eviction is missing";
/// Delay of an eviction. After this time, every replica of the webhook has read the record of the failure.
const RECORD_DELAY: Duration = Duration::from_secs(10);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of attempts.
const ATTEMPTS: usize = 60;
/// Maximum number of evictions of a workload's Pods in [`HOUR`].
const OF_WORKLOAD: usize = 5;
/// Maximum number of evictions of a namespace's Pods in [`HOUR`].
const OF_NAMESPACE: usize = 50;
const HOUR: Duration = Duration::from_secs(3600);
/// Maximum number of evictions in progress: at most 1 MiB. A disruption budget may delay each of them for an hour, so
/// one of the namespace with the most is given up for one of a namespace with fewer.
const AT_ONCE: usize = 512;

/// Evictions in progress, and recent ones.
pub(super) struct Evictor<'c> {
    context: &'c Context,
    recent: RecentEvictions,
    pub(super) running: FuturesUnordered<BoxFuture<'c, ()>>,
    /// Slots of the evictions in progress. An eviction ends when it loses its slot.
    slots: FairQueue<Slot>,
}

/// Channel on which nothing is sent. It is closed when the eviction ends, and dropped when the eviction is given up.
type Slot = oneshot::Sender<Infallible>;

impl<'c> Evictor<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        Self {
            context,
            recent: RecentEvictions::default(),
            running: FuturesUnordered::new(),
            slots: FairQueue::new(AT_ONCE),
        }
    }

    /// Begins to evict the Pod if it will be replaced, unless too many evictions are recent or in progress.
    pub(super) fn begin(&mut self, pod: StoredPod, image: Digest) {
        let Some(owner) = replacing_owner(&pod) else {
            return;
        };
        if !self.recent.add(pod.namespace(), owner) {
            return;
        }
        let (slot, mut displaced) = oneshot::channel();
        self.slots.retain(|slot| !slot.is_closed());
        drop(self.slots.push(pod.namespace(), slot));
        if displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed) {
            self.recent.remove_last(pod.namespace());
            return;
        }
        // The facts of the Pod are no longer needed.
        let pod = StoredPod { facts: None, ..pod };
        let context = self.context;
        self.running.push(Box::pin(async move {
            tokio::select! {
                _ = evict(context, &pod, image) => {}
                _ = &mut displaced => {
                    context.metrics.evictions.with_label_values(&["failed"]).inc();
                    let namespace = pod.namespace();
                    let pod = pod.name();
                    tracing::info!(namespace, pod, "an eviction is given up for those of other namespaces");
                }
            }
        }));
    }
}

/// Returns the UID of the controller that replaces the Pod, if tolerarch has changed the Pod.
fn replacing_owner(pod: &StoredPod) -> Option<&str> {
    let facts = pod.facts.as_ref()?;
    let owner = pod.controller()?;
    let is_changed = facts.has_annotation(POOLS_KEY) || facts.has_annotation(REQUIRED_KEY);
    if !is_changed || owner.kind == "DaemonSet" {
        return None;
    }
    Some(&owner.uid)
}

/// Evictions of the last [`HOUR`] by namespace. Only examined Pods are evicted, at most five a second, so all of them
/// take at most 8 MiB.
#[derive(Default)]
struct RecentEvictions(HashMap<String, Vec<RecentEviction>>);

struct RecentEviction {
    /// UID of the workload, which any Pod of the namespace may name.
    owner: String,
    time: Instant,
}

impl RecentEvictions {
    /// Adds an eviction. Returns `false`, and adds nothing, if the namespace or the workload has had too many.
    fn add(&mut self, namespace: &str, owner: &str) -> bool {
        let now = Instant::now();
        self.0.retain(|_, evictions| {
            evictions.retain(|eviction| now.duration_since(eviction.time) < HOUR);
            !evictions.is_empty()
        });
        let evictions = self.0.entry(namespace.to_owned()).or_default();
        let of_workload = evictions.iter().filter(|eviction| eviction.owner == owner);
        if evictions.len() >= OF_NAMESPACE || of_workload.count() >= OF_WORKLOAD {
            return false;
        }
        evictions.push(RecentEviction {
            owner: owner.to_owned(),
            time: now,
        });
        true
    }

    /// Removes the last eviction of the namespace.
    fn remove_last(&mut self, namespace: &str) {
        if let Some(evictions) = self.0.get_mut(namespace) {
            evictions.pop();
        }
    }
}

/// Tries a dry run of an eviction, which shows whether the right has been granted. The Pod need not exist.
pub(super) async fn try_one(cluster: &Cluster) -> Result<(), ClusterError> {
    let path = "/api/v1/namespaces/default/pods/tolerarch/eviction?dryRun=All";
    cluster
        .create(path, &eviction("default", "tolerarch", ""))
        .await
}

fn eviction(namespace: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    })
}

/// Evicts a Pod while the failure of its image is on record. Returns the last answer; `None` if no attempt was made.
async fn evict(
    context: &Context,
    pod: &StoredPod,
    image: Digest,
) -> Option<Result<(), ClusterError>> {
    let namespace = pod.namespace();
    let name = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let eviction = eviction(namespace, name, pod.uid());
    let mut answer = None;
    for attempt in 0..ATTEMPTS {
        let pause = if attempt == 0 { RECORD_DELAY } else { PAUSE };
        sleep(pause).await;
        let snapshot = context.current.load_full();
        let failure = snapshot
            .lessons
            .failure(&image, namespace, Timestamp::now());
        if failure.is_none() || !context.leadership.holds() {
            continue;
        }
        let attempted = context.cluster.create(&path, &eviction).await;
        answer = Some(attempted);
        match attempted {
            // The answer of a disruption budget is 429.
            Err(ClusterError::Status | ClusterError::Timeout | ClusterError::Unreachable) => {}
            _ => break,
        }
    }
    let answer = context.check_right(NO_EVICTIONS, answer?);
    // In a conflict, another Pod has the name.
    let result = count(&context.metrics.evictions, answer, ["evicted", "gone"]);
    tracing::info!(%namespace, pod = name, result, "eviction of a Pod whose image failed on the node's architecture");
    Some(answer)
}

#[cfg(test)]
mod tests;
