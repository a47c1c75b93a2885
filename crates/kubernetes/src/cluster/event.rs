//! An event (`events.k8s.io/v1`) on a Pod, as `kubectl describe pod` shows it.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use super::{Cluster, ClusterError, StoredPod, micro_time};

/// Bytes of a note, as the API server limits it.
const NOTE: usize = 1024;
/// Bytes of what tells who reports, likewise.
const INSTANCE: usize = 128;
/// Who reports.
const CONTROLLER: &str = "tolerarch.io/controller";

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// For information.
    Normal,
    /// Something is wrong.
    Warning,
}

/// Something that happened to a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    pub namespace: String,
    /// The name of the Pod.
    pub pod: String,
    pub uid: String,
    /// Whether something is wrong.
    pub r#type: EventType,
    /// What happened, in one word.
    pub reason: &'static str,
    /// What was done or tried, in one word.
    pub action: &'static str,
    /// What happened, for people. At most 1 KiB of it is written.
    pub note: String,
}

impl PodEvent {
    /// What two events have in common that are about the same Pod and say the same: its name in the cluster. Every
    /// replica writes the same one, and the API server forgets it an hour later by default.
    pub fn name(&self) -> String {
        let hash = digest(&SHA256, [&self.uid, self.reason].join("\0").as_bytes());
        hash.as_ref().iter().take(16).fold("tolerarch-".to_owned(), |mut name, byte| {
            // A text takes everything.
            let _ = write!(name, "{byte:02x}");
            name
        })
    }

    pub fn on(
        pod: &StoredPod,
        r#type: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) -> Self {
        let [namespace, name, uid] = [pod.namespace(), pod.name(), pod.uid()].map(str::to_owned);
        Self { namespace, pod: name, uid, r#type, reason, action, note }
    }

    /// Creates it. `instance` tells which process reports.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] where the cluster has it already; see [`ClusterError`].
    pub async fn write(&self, cluster: &Cluster, instance: &str) -> Result<(), ClusterError> {
        let Self { namespace, pod, uid, r#type, reason, action, note } = self;
        let r#type = match r#type {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
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
