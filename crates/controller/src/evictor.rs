//! Evicts Pods that failed on their node's architecture, within disruption budgets: successors are kept from there.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::loops::Context;
use tolerarch_core::pod::{POOLS_KEY, REQUIRED_KEY};
use tolerarch_engine::lessons::{FailedImage, Timestamp};
use tolerarch_images::registry::Digest;
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, StoredPod};
use tolerarch_support::recently::Recently;

/// Delay of an eviction: by then every replica of the webhook has read the record of the failure.
const KNOWN: Duration = Duration::from_secs(10);
/// Pause between tries, and their number.
const PAUSE: Duration = Duration::from_secs(60);
const TRIES: usize = 60;
/// Maximal number of evictions in an hour: of a workload's Pods, and of a namespace's, a tenth of those that can wait.
const OF_WORKLOAD: usize = 5;
const OF_NAMESPACE: usize = 50;
/// That hour, and the number of evictions that are remembered.
pub(super) const REMEMBERED: (Duration, usize) = (Duration::from_secs(3600), 1 << 14);

pub(super) struct FailedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    uid: String,
    digest: Digest,
}

/// Returns the Pod if its eviction helps and its workload has evictions left: a controller creates another one, and
/// tolerarch has let this one onto the node.
pub(super) fn candidate(evicted: &mut Recently, pod: &StoredPod, failed: &FailedImage) -> Option<FailedPod> {
    let owner = pod.controller()?;
    let facts = pod.facts.as_ref()?;
    let is_changed = [POOLS_KEY, REQUIRED_KEY].iter().any(|key| facts.has_annotation(key));
    let mut has_turn =
        |whose: &str, most: usize| (0..most).any(|turn| evicted.insert(&format!("{whose} {turn}")));
    let is_candidate = is_changed
        && owner.kind != "DaemonSet"
        && has_turn(&owner.uid, OF_WORKLOAD)
        && has_turn(pod.namespace(), OF_NAMESPACE);
    is_candidate.then(|| FailedPod {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        digest: failed.digest,
    })
}

/// Tries an eviction of no Pod, which shows whether the right is there.
pub(super) async fn try_one(cluster: &Cluster) -> Result<(), ClusterError> {
    let path = "/api/v1/namespaces/default/pods/tolerarch/eviction?dryRun=All";
    cluster.create(path, &eviction("default", "tolerarch", "")).await
}

fn eviction(namespace: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    })
}

impl FailedPod {
    /// Evicts the Pod while its failure is on record. Returns the last answer; `None` if no eviction was due any more.
    pub(super) async fn evict(&self, context: &Context) -> Option<Result<(), ClusterError>> {
        let Self { namespace, name, uid, digest } = self;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let eviction = eviction(namespace, name, uid);
        let (mut pause, mut answer) = (KNOWN, None);
        for _ in 0..TRIES {
            sleep(std::mem::replace(&mut pause, PAUSE)).await;
            if !context.settings.borrow().evict_failed {
                break;
            }
            let snapshot = context.current.load_full();
            let failure = snapshot.lessons.failure(digest, namespace, Timestamp::now());
            if failure.is_none() || !context.leadership.holds() {
                continue;
            }
            answer = Some(context.cluster.create(&path, &eviction).await);
            // A disruption budget answers 429.
            if !matches!(
                answer,
                Some(Err(ClusterError::Status | ClusterError::Timeout | ClusterError::Unreachable))
            ) {
                break;
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests;
