//! Nodes, with the fields that tolerarch uses.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metadata::{Metadata, or_default, take};
use super::pod::Requests;
use tolerarch_core::pod::ARCH_KEY;

/// Annotation of nodes with the taints that tolerarch has set, comma-separated. Managed fields do not show who has set
/// a taint, as the list of taints is atomic.
pub const TAINTS_KEY: &str = "tolerarch.io/node-taints";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Node {
    pub metadata: Metadata,
    pub taints: Vec<Taint>,
    /// The taints as JSON, including unknown fields.
    pub raw_taints: Vec<Value>,
    /// Value of the annotation [`TAINTS_KEY`]; empty without the annotation.
    pub own_taints: String,
    /// Architecture: the node's label, which the scheduler uses, or else the kubelet's report. Empty before the node
    /// registers.
    pub architecture: String,
    /// Operating system, from the same sources.
    pub os: String,
    /// Version of the kubelet, such as `v1.36.1`; empty before the node registers.
    pub kubelet: String,
    /// Identity of the machine at its provider (`spec.providerID`); empty before the provider has set it.
    pub provider_id: String,
    /// Name of the node's Machine in Cluster API or OpenShift, from an annotation; empty elsewhere.
    pub machine: String,
    /// CPU and memory of the machine, including those that are reserved for the system.
    pub capacity: Requests,
}

impl Node {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

impl TryFrom<Value> for Node {
    type Error = serde_json::Error;

    fn try_from(mut node: Value) -> Result<Self, serde_json::Error> {
        let own_taints = take(&mut node, "/metadata/annotations/tolerarch.io~1node-taints")?;
        let mut machine: String =
            take(&mut node, "/metadata/annotations/cluster.x-k8s.io~1machine")?;
        if machine.is_empty() {
            machine = take(
                &mut node,
                "/metadata/annotations/machine.openshift.io~1machine",
            )?;
        }
        let metadata: Metadata = take(&mut node, "/metadata")?;
        let provider_id = take(&mut node, "/spec/providerID")?;
        let raw_taints: Vec<Value> = take(&mut node, "/spec/taints")?;
        let mut labelled = |key: &str, reported: &str| match metadata.labels.get(key) {
            Some(value) => Ok(value.clone()),
            None => take(&mut node, reported),
        };
        let architecture = labelled(ARCH_KEY, "/status/nodeInfo/architecture")?;
        let os = labelled("kubernetes.io/os", "/status/nodeInfo/operatingSystem")?;
        let kubelet = take(&mut node, "/status/nodeInfo/kubeletVersion")?;
        // Only reports use the capacity, so an invalid one does not make the node unreadable.
        let capacity = take(&mut node, "/status/capacity").unwrap_or_default();
        let taints = raw_taints.iter().map(Taint::deserialize);
        let taints = taints.collect::<Result<_, _>>()?;
        Ok(Self {
            metadata,
            taints,
            raw_taints,
            own_taints,
            architecture,
            os,
            kubelet,
            provider_id,
            machine,
            capacity,
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    /// Value of the taint; empty is the same as absent.
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Taint {
    /// Returns whether the two taints exclude each other: no two taints of a node have the same key and effect.
    pub fn has_same_key_and_effect(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// Writes a taint as `kubectl taint` does: `key=value:effect`, or `key:effect`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        let equals = if value.is_empty() { "" } else { "=" };
        write!(f, "{key}{equals}{value}:{effect}")
    }
}
