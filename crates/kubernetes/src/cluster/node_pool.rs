//! Karpenter's NodePools (`karpenter.sh/v1`), with the fields that tolerarch uses.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use serde::Deserialize;
use serde_json::Value;

use super::metadata::{Condition, Metadata, or_default, status_of, take};
use super::node::Taint;
use super::quantity::Quantity;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NodePool {
    pub metadata: Metadata,
    /// Weight; 0 if it is absent. Karpenter tries the NodePool with the largest weight first.
    pub weight: u32,
    /// Set if the NodePool keeps a fixed number of nodes, however many Pods are pending.
    pub is_static: bool,
    /// Labels of the nodes in the NodePool's template.
    pub template_labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Class of the nodes at their provider.
    pub node_class: NodeClassRef,
    /// Taints that the nodes have only while they start.
    pub startup_taints: Vec<Taint>,
    /// Requirements on labels of the nodes. Some have operators that only Karpenter has.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Limits on the resources of all nodes together, by name of the resource.
    pub limits: BTreeMap<String, Quantity>,
    /// Resources of all nodes together.
    pub resources: BTreeMap<String, Quantity>,
    /// Readiness as Karpenter reports it; `None` before the first report.
    pub is_ready: Option<bool>,
    /// Set if Karpenter reports that the NodePool's last nodes could not be launched, or did not register.
    pub is_stuck: bool,
}

/// Reference to a node class. All fields are empty if the NodePool names no class.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct NodeClassRef {
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

impl NodePool {
    pub const HEAVIEST: u32 = 100;

    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

impl TryFrom<Value> for NodePool {
    type Error = serde_json::Error;

    fn try_from(mut pool: Value) -> Result<Self, serde_json::Error> {
        let pool = &mut pool;
        let conditions: Vec<Condition> = take(pool, "/status/conditions")?;
        Ok(Self {
            metadata: take(pool, "/metadata")?,
            weight: take(pool, "/spec/weight")?,
            is_static: take::<Option<u64>>(pool, "/spec/replicas")?.is_some(),
            template_labels: take(pool, "/spec/template/metadata/labels")?,
            taints: take(pool, "/spec/template/spec/taints")?,
            node_class: take(pool, "/spec/template/spec/nodeClassRef")?,
            startup_taints: take(pool, "/spec/template/spec/startupTaints")?,
            requirements: take(pool, "/spec/template/spec/requirements")?,
            limits: quantities(take(pool, "/spec/limits")?),
            resources: quantities(take(pool, "/status/resources")?),
            is_ready: status_of(&conditions, "Ready").map(|status| status == "True"),
            is_stuck: status_of(&conditions, "NodeRegistrationHealthy") == Some("False"),
        })
    }
}

/// Returns the valid quantities, which may be numbers in JSON. Others are dropped.
fn quantities(values: BTreeMap<String, Value>) -> BTreeMap<String, Quantity> {
    let mut quantities = BTreeMap::new();
    for (name, value) in values {
        let quantity = match value {
            Value::String(text) => Quantity::parse(&text),
            other => Quantity::parse(&other.to_string()),
        };
        if let Some(quantity) = quantity {
            quantities.insert(name, quantity);
        }
    }
    quantities
}
