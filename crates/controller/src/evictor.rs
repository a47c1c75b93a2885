//! Evicts Pods that failed on their node's architecture, within disruption budgets: successors are kept from there.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::loops::Context;
use super::metrics::count;
use tolerarch_core::pod::{POOLS_KEY, REQUIRED_KEY};
use tolerarch_engine::lessons::Timestamp;
use tolerarch_images::registry::Digest;
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, StoredPod};
use tolerarch_support::recently::Recently;

pub(super) const NO_EVICTIONS: &str = "the right to create pods/eviction is missing";
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

/// Claims an eviction of the Pod. Returns whether it helps and the workload has evictions left: a controller creates
/// another Pod, and tolerarch has let this one onto the node.
pub(super) fn claim(evicted: &mut Recently, pod: &StoredPod) -> bool {
    let (Some(owner), Some(facts)) = (pod.controller(), &pod.facts) else { return false };
    let mut has_turn =
        |whose: &str, most: usize| (0..most).any(|turn| evicted.insert(&format!("{whose} {turn}")));
    [POOLS_KEY, REQUIRED_KEY].iter().any(|key| facts.has_annotation(key))
        && owner.kind != "DaemonSet"
        && has_turn(&owner.uid, OF_WORKLOAD)
        && has_turn(pod.namespace(), OF_NAMESPACE)
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

/// Evicts a Pod while the failure of its image is on record. Returns the last answer; `None` if no eviction was due any
/// more.
pub(super) async fn evict(
    context: &Context,
    pod: StoredPod,
    image: Digest,
) -> Option<Result<(), ClusterError>> {
    let (namespace, name) = (pod.namespace(), pod.name());
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
    let eviction = eviction(namespace, name, pod.uid());
    let (mut pause, mut answer) = (KNOWN, None);
    for _ in 0..TRIES {
        sleep(std::mem::replace(&mut pause, PAUSE)).await;
        let snapshot = context.current.load_full();
        let failure = snapshot.lessons.failure(&image, namespace, Timestamp::now());
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
    let answer = context.check_right(NO_EVICTIONS, answer?);
    // In a conflict another Pod has the name.
    let result = count(&context.metrics.evictions, answer, ["evicted", "gone"]);
    tracing::info!(%namespace, pod = name, result, "eviction of a Pod whose image failed on the node's architecture");
    Some(answer)
}

#[cfg(test)]
mod tests;
