//! Opens pools to a Pod that exists, as the API server allows it: tolerations are appended, and the annotation says so.
//!
//! The patch names the Pod by its uid, and never replaces a list: the list of tolerations is one value to every other kind
//! of patch. Nothing else that a decision edits can be changed any more.

use serde_json::{Value, json};

use super::pace::Pace;
use super::{ControllerMetrics, Leadership};
use tolerarch_core::decision::Decision;
use tolerarch_core::patch;
use tolerarch_core::placement::Edits;
use tolerarch_core::pod::{POOLS_KEY, Pod, REASON_KEY};
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, PatchType, StoredPod};

/// Patches a second, so that a whole cluster of Pods is no load for the API server; and how many may be made at once, if
/// there were none for a while.
pub(super) const PER_SECOND: u32 = 50;
pub(super) const BURST: u32 = 100;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repaired {
    /// The pools are open.
    Done,
    /// The Pod is gone.
    Gone,
    /// It is another one by now, or the API server does not take the change.
    Refused,
    /// This right is missing, or the fence is in the way.
    Forbidden,
    /// That is not known: the API server did not answer.
    Failed,
    /// Not tried, as another replica leads.
    NotLeading,
}

impl Repaired {
    pub(super) const COUNTED: [Self; 5] =
        [Self::Done, Self::Gone, Self::Refused, Self::Forbidden, Self::Failed];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "repaired",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::Failed | Self::NotLeading => "failed",
        }
    }
}

/// Patches Pods, so many a second.
pub(super) struct Repair<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) leadership: &'a Leadership,
    pub(super) metrics: &'a ControllerMetrics,
    pub(super) pace: Pace,
}

impl Repair<'_> {
    /// Makes this change of the Pod.
    pub(super) async fn apply(&self, pod: &StoredPod, patch: &Value) -> Repaired {
        self.pace.turn().await;
        if !self.leadership.holds() {
            return Repaired::NotLeading;
        }
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace(), pod.name());
        let patched = self.cluster.patch(&path, PatchType::Json, patch).await;
        let repaired = match patched {
            Ok(()) => Repaired::Done,
            Err(ClusterError::NotFound) => Repaired::Gone,
            Err(ClusterError::Invalid | ClusterError::Conflict) => Repaired::Refused,
            Err(ClusterError::Forbidden | ClusterError::Unauthorized) => Repaired::Forbidden,
            Err(_) => Repaired::Failed,
        };
        self.metrics.repaired(repaired);
        let (namespace, name, result) = (pod.namespace(), pod.name(), repaired.as_str());
        tracing::info!(namespace, pod = name, result, error = ?patched.err(), "repaired");
        repaired
    }
}

/// The patch that opens the pools; `None` where nothing is to be opened, or where something would have to be taken back.
pub(super) fn patch_of(pod: &StoredPod, facts: &Pod<'_>, decision: Decision<'_>) -> Option<Value> {
    if decision.reason != Reason::Tolerated || !decision.edits.remove.is_empty() {
        return None;
    }
    let Edits { add, mut annotations, .. } = decision.edits;
    annotations.retain(|edit| [POOLS_KEY, REASON_KEY].contains(&edit.key));
    let edits = Edits { add, annotations, ..Edits::default() };
    let operations: Vec<Value> = serde_json::from_str(&patch::build("", facts, &edits)).ok()?;
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": pod.uid()})];
    if !facts.has_annotations() {
        // Another may have written some since: they would be replaced.
        patch.push(json!({"op": "test", "path": "/metadata/annotations", "value": null}));
    }
    patch.extend(operations);
    Some(patch.into())
}
