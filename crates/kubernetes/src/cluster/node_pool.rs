//! Karpenter's NodePools (`karpenter.sh/v1`), as far as anything here asks about them.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::metadata::{Condition, Metadata, holds, or_default, take};
use super::node::Taint;
use super::watch::Followed;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct NodePool {
    /// Its name and labels; nothing else but what identifies it, and whether it is being deleted.
    pub metadata: ObjectMeta,
    /// Karpenter tries the heaviest first; 0 if it has none.
    pub weight: u32,
    /// Whether it keeps a number of nodes, whatever Pods there are.
    pub is_static: bool,
    /// The labels of its nodes, as far as its template has them.
    pub template_labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Taints that its nodes have only while they start.
    pub startup_taints: Vec<Taint>,
    /// What its nodes have to be.
    pub requirements: Vec<Requirement>,
    /// How much its nodes may have in all, by resource, as Kubernetes' quantities.
    pub limits: BTreeMap<String, String>,
    /// How much they have.
    pub resources: BTreeMap<String, String>,
    /// Whether Karpenter says that it can be used; `None` if it has not said anything yet.
    pub is_ready: Option<bool>,
}

impl Followed for NodePool {
    const LIST: &'static str = Self::PATH;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl NodePool {
    /// The most that one can weigh.
    pub const HEAVIEST: u32 = 100;
    pub const PATH: &'static str = "/apis/karpenter.sh/v1/nodepools";

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

/// What a label of nodes has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`, and whatever may come.
    pub operator: String,
    /// What it is compared with.
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<String>,
}

impl TryFrom<Value> for NodePool {
    type Error = serde_json::Error;

    fn try_from(mut pool: Value) -> Result<Self, serde_json::Error> {
        let pool = &mut pool;
        Ok(Self {
            metadata: take::<Metadata>(pool, "/metadata")?.into(),
            weight: take(pool, "/spec/weight")?,
            is_static: take::<Option<u64>>(pool, "/spec/replicas")?.is_some(),
            template_labels: take(pool, "/spec/template/metadata/labels")?,
            taints: take(pool, "/spec/template/spec/taints")?,
            startup_taints: take(pool, "/spec/template/spec/startupTaints")?,
            requirements: take(pool, "/spec/template/spec/requirements")?,
            limits: quantities(take(pool, "/spec/limits")?),
            resources: quantities(take(pool, "/status/resources")?),
            is_ready: holds(&take::<Vec<Condition>>(pool, "/status/conditions")?, "Ready"),
        })
    }
}

/// The texts of quantities, which may stand there as numbers.
fn quantities(read: BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let text = |quantity| match quantity {
        Value::String(text) => text,
        other => other.to_string(),
    };
    read.into_iter().map(|(name, quantity)| (name, text(quantity))).collect()
}
