//! Evicts Pods that failed on their node's architecture, within disruption budgets: successors are kept from there.

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
/// Delay of an eviction: by then every replica of the webhook has read the record of the failure.
const KNOWN: Duration = Duration::from_secs(10);
/// Pause between tries, and their number.
const PAUSE: Duration = Duration::from_secs(60);
const TRIES: usize = 60;
/// Maximum number of evictions in [`HOUR`]: of a workload's Pods, and of a namespace's.
const OF_WORKLOAD: usize = 5;
const OF_NAMESPACE: usize = 50;
const HOUR: Duration = Duration::from_secs(3600);
/// Maximum number of evictions that wait or are tried at a time: 1 MiB at most. A disruption budget may hold each back
/// for an hour, so one of the namespace with the most gives way to one of a namespace with fewer.
const AT_ONCE: usize = 512;

/// Evictions that wait or are tried, and the turns that they took.
pub(super) struct Evictor<'c> {
    context: &'c Context,
    turns: Turns,
    pub(super) running: FuturesUnordered<BoxFuture<'c, ()>>,
    /// Place of each of those. Without its place an eviction ends.
    places: FairQueue<Place>,
}

/// Nothing is ever sent: it is closed when the eviction ends, and dropped when the eviction gives way.
type Place = oneshot::Sender<Infallible>;

impl<'c> Evictor<'c> {
    pub(super) fn new(context: &'c Context) -> Self {
        Self {
            context,
            turns: Turns::default(),
            running: FuturesUnordered::new(),
            places: FairQueue::new(AT_ONCE),
        }
    }

    /// Begins to evict the Pod, if that helps and there is a place and a turn for it.
    pub(super) fn begin(&mut self, pod: StoredPod, image: Digest) {
        let Some(owner) = replacing_owner(&pod) else {
            return;
        };
        if !self.turns.take(pod.namespace(), owner) {
            return;
        }
        let (place, mut displaced) = oneshot::channel();
        self.places.retain(|place| !place.is_closed());
        drop(self.places.push(pod.namespace(), place));
        if displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed) {
            self.turns.give_back(pod.namespace());
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
                    tracing::info!(namespace, pod, "an eviction gives way to those of other namespaces");
                }
            }
        }));
    }
}

/// Returns the UID of the controller that creates another Pod, if tolerarch has let this one onto its node.
fn replacing_owner(pod: &StoredPod) -> Option<&str> {
    let facts = pod.facts.as_ref()?;
    let owner = pod.controller()?;
    let is_changed = facts.has_annotation(POOLS_KEY) || facts.has_annotation(REQUIRED_KEY);
    if !is_changed || owner.kind == "DaemonSet" {
        return None;
    }
    Some(&owner.uid)
}

/// Evictions of the last [`HOUR`] by namespace. Only examined Pods are evicted, five in a second at most, so all of
/// them take 8 MiB at most.
#[derive(Default)]
struct Turns(HashMap<String, Vec<Turn>>);

struct Turn {
    /// UID of the workload, which any Pod of the namespace may name.
    owner: String,
    taken: Instant,
}

impl Turns {
    /// Takes a turn of the namespace and of its workload. Returns whether each had one; if not, none is taken.
    fn take(&mut self, namespace: &str, owner: &str) -> bool {
        let now = Instant::now();
        self.0.retain(|_, turns| {
            turns.retain(|turn| now.duration_since(turn.taken) < HOUR);
            !turns.is_empty()
        });
        let turns = self.0.entry(namespace.to_owned()).or_default();
        let of_workload = turns.iter().filter(|turn| turn.owner == owner).count();
        if turns.len() >= OF_NAMESPACE || of_workload >= OF_WORKLOAD {
            return false;
        }
        turns.push(Turn {
            owner: owner.to_owned(),
            taken: now,
        });
        true
    }

    /// Gives the last turn of the namespace back.
    fn give_back(&mut self, namespace: &str) {
        if let Some(turns) = self.0.get_mut(namespace) {
            turns.pop();
        }
    }
}

/// Tries an eviction of no Pod, which shows whether the right is there.
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

/// Evicts a Pod while the failure of its image is on record. Returns the last answer; `None` if no eviction was due any
/// more.
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
    for attempt in 0..TRIES {
        sleep(if attempt == 0 { KNOWN } else { PAUSE }).await;
        let snapshot = context.current.load_full();
        let failure = snapshot
            .lessons
            .failure(&image, namespace, Timestamp::now());
        if failure.is_none() || !context.leadership.holds() {
            continue;
        }
        answer = Some(context.cluster.create(&path, &eviction).await);
        // A disruption budget answers 429.
        if !matches!(
            answer,
            Some(Err(ClusterError::Status
                | ClusterError::Timeout
                | ClusterError::Unreachable))
        ) {
            break;
        }
    }
    let answer = context.check_right(NO_EVICTIONS, answer?);
    // In a conflict another Pod has the name.
    let result = count(&context.metrics.evictions, answer, ["evicted", "gone"]);
    tracing::info!(%namespace, pod = name, result, "eviction of a Pod whose image failed on the node's architecture");
    Some(answer)
}

#[cfg(test)]
mod tests;
