//! Events (`events.k8s.io/v1`) on Pods, their owners and their nodes, as `kubectl describe` shows them.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use super::{Cluster, ClusterError, Node, OwnerReference, StoredPod, micro_time};

/// Maximum bytes of a note, by the API server's validation.
const NOTE: usize = 1024;
/// Maximum bytes of the reporting instance, by the same validation.
const INSTANCE: usize = 128;
const CONTROLLER: &str = "tolerarch.io/controller";
/// Namespace of events on cluster-scoped objects, by the same validation.
const CLUSTER_SCOPED: &str = "default";

/// Reason and action of an event, each in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKind {
    /// `Normal`, or `Warning` for a problem.
    pub r#type: &'static str,
    pub reason: &'static str,
    pub action: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEvent {
    pub namespace: String,
    pub object: OwnerReference,
    /// Set if the object has a namespace; the event then has the same one.
    pub is_namespaced: bool,
    pub kind: EventKind,
    /// A message for people, truncated to 1 KiB.
    pub note: String,
}

impl ObjectEvent {
    pub fn on(pod: &StoredPod, kind: EventKind) -> Self {
        Self::on_owner(pod, reference("Pod", pod.name(), pod.uid()), kind)
    }

    /// Makes an event on a node.
    pub fn on_node(node: &Node, kind: EventKind) -> Self {
        Self {
            namespace: CLUSTER_SCOPED.to_owned(),
            object: reference("Node", node.name(), &node.metadata.uid),
            is_namespaced: false,
            kind,
            note: String::new(),
        }
    }

    /// Makes an event on the Pod's owner, in the Pod's namespace.
    pub fn on_owner(pod: &StoredPod, object: OwnerReference, kind: EventKind) -> Self {
        Self {
            namespace: pod.namespace().to_owned(),
            object,
            is_namespaced: true,
            kind,
            note: String::new(),
        }
    }

    /// Returns a name that is the same for all replicas, by namespace, object and reason. The namespace counts because
    /// a Pod may name the uid of an owner in another namespace.
    pub fn name(&self) -> String {
        let parts = [&self.namespace, &*self.object.uid, self.kind.reason];
        let hash = digest(&SHA256, parts.join("\0").as_bytes());
        let half = hash.as_ref().first_chunk().copied().unwrap_or_default();
        format!("tolerarch-{:032x}", u128::from_be_bytes(half))
    }

    /// Creates the event. `instance` names the reporting process.
    pub async fn write(&self, cluster: &Cluster, instance: &str) -> Result<(), ClusterError> {
        let Self {
            namespace,
            object,
            is_namespaced,
            kind:
                EventKind {
                    r#type,
                    reason,
                    action,
                },
            note,
        } = self;
        let of_object = is_namespaced.then_some(namespace);
        let OwnerReference {
            api_version,
            kind,
            name,
            uid,
            ..
        } = object;
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name(), "namespace": namespace},
            "eventTime": micro_time(),
            "reportingController": CONTROLLER,
            "reportingInstance": truncated(instance, INSTANCE),
            "type": r#type,
            "reason": reason,
            "action": action,
            "note": truncated(note, NOTE),
            "regarding": {"apiVersion": api_version, "kind": kind, "namespace": of_object, "name": name, "uid": uid},
        });
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        cluster.create(&path, &event).await
    }
}

/// Returns a reference to an object of the core group.
fn reference(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

fn truncated(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
