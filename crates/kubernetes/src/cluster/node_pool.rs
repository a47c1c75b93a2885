//! Karpenter's NodePools (`karpenter.sh/v1`), as far as anything here asks about them.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::metadata::{Metadata, Wire, or_default};
use super::node::{Condition, Taint, holds};
use super::watch::Followed;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Wire<Spec, Status>")]
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    weight: Option<u32>,
    replicas: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    template: Template,
    #[serde(deserialize_with = "or_default")]
    limits: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: TemplateSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateSpec {
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Taint>,
    #[serde(deserialize_with = "or_default")]
    startup_taints: Vec<Taint>,
    #[serde(deserialize_with = "or_default")]
    requirements: Vec<Requirement>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    resources: BTreeMap<String, Value>,
}

/// Quantities, which may stand there as numbers.
fn texts(quantities: BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let text = |quantity| match quantity {
        Value::String(text) => text,
        other => other.to_string(),
    };
    quantities.into_iter().map(|(name, quantity)| (name, text(quantity))).collect()
}

impl From<Wire<Spec, Status>> for NodePool {
    fn from(Wire { metadata, spec, status }: Wire<Spec, Status>) -> Self {
        let Spec { weight, replicas, template, limits } = spec;
        let TemplateSpec { taints, startup_taints, requirements } = template.spec;
        Self {
            metadata: metadata.into(),
            weight: weight.unwrap_or_default(),
            is_static: replicas.is_some(),
            template_labels: template.metadata.labels.unwrap_or_default(),
            taints,
            startup_taints,
            requirements,
            limits: texts(limits),
            resources: texts(status.resources),
            is_ready: holds(&status.conditions, "Ready"),
        }
    }
}
