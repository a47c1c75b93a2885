//! Nodes, as far as anything here asks about them.

use std::collections::BTreeMap;
use std::fmt;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::Deserialize;

use super::metadata::{names_and_labels, or_default, resource};
use tolerarch_core::pod::ARCH_KEY;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct Node {
    /// Its name and labels; nothing else but what identifies it.
    pub metadata: ObjectMeta,
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Whether its kubelet reports that it is ready.
    pub is_ready: bool,
    /// Its architecture as the scheduler sees it, else as its kubelet reports it; empty before it is registered.
    pub architecture: String,
    /// Its operating system, likewise.
    pub os: String,
}

resource!(Node, ClusterResourceScope, "", "v1", "Node", "nodes");

impl Node {
    /// Where they are listed.
    pub const PATH: &'static str = "/api/v1/nodes";

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().get(key).map(String::as_str)
    }
}

/// What keeps Pods without a toleration away.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    /// Its value; empty is as good as none.
    #[serde(deserialize_with = "or_default")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Taint {
    /// Whether a node can have only one of both: its taints differ by their keys and effects.
    pub fn is_at_the_place_of(&self, other: &Self) -> bool {
        (&self.key, &self.effect) == (&other.key, &other.effect)
    }
}

/// As `kubectl taint` writes them: `key=value:effect`, or `key:effect`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let equals = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{equals}{value}:{effect}")
    }
}

/// A condition of a status.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    r#type: String,
    status: String,
}

/// The status of the condition `Ready`, if it is there.
pub(super) fn ready(conditions: &[Condition]) -> Option<&str> {
    let ready = conditions.iter().find(|condition| condition.r#type == "Ready")?;
    Some(&ready.status)
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "names_and_labels")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Taint>,
    #[serde(deserialize_with = "or_default")]
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    architecture: String,
    operating_system: String,
}

impl From<Wire> for Node {
    fn from(Wire { metadata, spec, status }: Wire) -> Self {
        let none = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&none);
        let labelled = |key: &str, reported: String| labels.get(key).cloned().unwrap_or(reported);
        let NodeInfo { architecture, operating_system } = status.node_info;
        let architecture = labelled(ARCH_KEY, architecture);
        let os = labelled("kubernetes.io/os", operating_system);
        let is_ready = ready(&status.conditions) == Some("True");
        let Spec { taints, unschedulable } = spec;
        Self { metadata, taints, unschedulable, is_ready, architecture, os }
    }
}
