//! An event (`events.k8s.io/v1`) on a Pod, as `kubectl describe pod` shows it.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use super::{Cluster, ClusterError, StoredPod, micro_time};

/// Bytes of a note, as the API server limits it.
const NOTE: usize = 1024;
/// Bytes of what tells who reports, likewise.
const INSTANCE: usize = 128;
const CONTROLLER: &str = "tolerarch.io/controller";

/// What happened, and what was done or tried, each in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// `Normal`, or `Warning` where something is wrong.
    pub r#type: &'static str,
    pub reason: &'static str,
    pub action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    pub namespace: String,
    pub pod: String,
    uid: String,
    pub kind: EventKind,
    /// What happened, for people. At most 1 KiB of it is written.
    pub note: String,
}

impl PodEvent {
    /// Without a note.
    pub fn on(pod: &StoredPod, kind: EventKind) -> Self {
        let [namespace, name, uid] = [pod.namespace(), pod.name(), pod.uid()].map(str::to_owned);
        Self { namespace, pod: name, uid, kind, note: String::new() }
    }

    /// Equal for events that say the same of the same Pod: replicas write one, which the API server forgets in an hour.
    pub fn name(&self) -> String {
        let hash = digest(&SHA256, [&self.uid, self.kind.reason].join("\0").as_bytes());
        let half = hash.as_ref().first_chunk().copied().unwrap_or_default();
        format!("tolerarch-{:032x}", u128::from_be_bytes(half))
    }

    /// Creates it. `instance` tells which process reports.
    pub async fn write(&self, cluster: &Cluster, instance: &str) -> Result<(), ClusterError> {
        let Self { namespace, pod, uid, kind: EventKind { r#type, reason, action }, note } = self;
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name(), "namespace": namespace},
            "eventTime": micro_time(),
            "reportingController": CONTROLLER,
            "reportingInstance": beginning(instance, INSTANCE),
            "type": r#type,
            "reason": reason,
            "action": action,
            "note": beginning(note, NOTE),
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid},
        });
        cluster.create(&format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), &event).await
    }
}

/// At most so many bytes of a text, and no part of a character.
fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
