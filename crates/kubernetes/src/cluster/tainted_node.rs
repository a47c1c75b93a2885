//! Nodes, as far as is needed to change their taints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::metadata::{labels, or_default, resource};

/// The annotation of nodes that names the taints that tolerarch has set, comma-separated: the list of taints is one value
/// to the API server, so that managed fields do not tell whose a taint is.
pub const TAINTS_KEY: &str = "tolerarch.io/node-taints";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Wire")]
pub struct TaintedNode {
    /// Its name and labels; nothing else but what identifies it.
    pub metadata: ObjectMeta,
    /// Its taints as they stand there, with what is not known of them here.
    pub taints: Vec<Value>,
    /// What the annotation [`TAINTS_KEY`] says; empty where it is missing.
    pub own: String,
}

resource!(TaintedNode, ClusterResourceScope, "", "v1", "Node", "nodes");

impl TaintedNode {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    resource_version: Option<String>,
    #[serde(deserialize_with = "labels")]
    labels: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<Time>,
    #[serde(deserialize_with = "or_default")]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "tolerarch.io/node-taints")]
    own: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Value>,
}

impl From<Wire> for TaintedNode {
    fn from(Wire { metadata, spec }: Wire) -> Self {
        let Metadata { name, resource_version, labels, deletion_timestamp, annotations } = metadata;
        let metadata =
            ObjectMeta { name, resource_version, labels, deletion_timestamp, ..ObjectMeta::default() };
        Self { metadata, taints: spec.taints, own: annotations.own }
    }
}
