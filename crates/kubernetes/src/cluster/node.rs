//! Nodes, as far as anything here asks about them.

use std::fmt;

use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metadata::{Wire, or_default};
use super::watch::Followed;
use tolerarch_core::pod::ARCH_KEY;

/// The annotation of nodes that names the taints that tolerarch has set, comma-separated: the list of taints is one value
/// to the API server, so that managed fields do not tell whose a taint is.
pub const TAINTS_KEY: &str = "tolerarch.io/node-taints";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Wire<Spec, Status>")]
pub struct Node {
    /// Its name and labels; nothing else but what identifies it.
    pub metadata: ObjectMeta,
    pub taints: Vec<Taint>,
    /// The same as they stand there, with what is not known of them here.
    pub raw_taints: Vec<Value>,
    /// What the annotation [`TAINTS_KEY`] says; empty where it is missing.
    pub own_taints: String,
    pub unschedulable: bool,
    pub is_ready: bool,
    /// Its architecture as the scheduler sees it, else as its kubelet reports it; empty before it is registered.
    pub architecture: String,
    /// Its operating system, likewise.
    pub os: String,
}

impl Followed for Node {
    const LIST: &'static str = Self::PATH;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Node {
    pub const PATH: &'static str = "/api/v1/nodes";

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

/// What keeps Pods without a toleration away.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    /// Its value; empty is as good as none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
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

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    r#type: String,
    status: String,
}

/// Whether this condition holds, if it is there.
pub(super) fn holds(conditions: &[Condition], r#type: &str) -> Option<bool> {
    conditions.iter().find(|condition| condition.r#type == r#type).map(|condition| condition.status == "True")
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Value>,
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

impl TryFrom<Wire<Spec, Status>> for Node {
    type Error = serde_json::Error;

    fn try_from(read: Wire<Spec, Status>) -> Result<Self, serde_json::Error> {
        let Wire { mut metadata, spec, status } = read;
        let own_taints = std::mem::take(&mut metadata.annotations.node_taints);
        let metadata = ObjectMeta::from(metadata);
        let labelled = |key: &str, reported: String| {
            metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or(reported)
        };
        let architecture = labelled(ARCH_KEY, status.node_info.architecture);
        let os = labelled("kubernetes.io/os", status.node_info.operating_system);
        let Spec { taints: raw_taints, unschedulable } = spec;
        let taints = raw_taints.iter().map(Taint::deserialize).collect::<Result<_, _>>()?;
        let is_ready = holds(&status.conditions, "Ready") == Some(true);
        Ok(Self { metadata, taints, raw_taints, own_taints, unschedulable, is_ready, architecture, os })
    }
}
