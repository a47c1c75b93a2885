//! What the types of ours share that are read from the Kubernetes API.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Owner;
use tolerarch_text::json::First;

/// Labels of an object that are read: nodes have up to some hundreds.
const LABELS: usize = 1024;
/// Items of a list that are read. No Pod has as many containers.
const ITEMS: usize = 4096;

/// Other annotations and managed fields may be most of an object, and nothing asks for them.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    #[serde(deserialize_with = "labels")]
    pub(super) labels: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<Time>,
    #[serde(deserialize_with = "first")]
    pub(super) owner_references: Vec<Owner>,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: Annotations,
}

/// An object, of which anything may be absent.
#[derive(Default, serde::Deserialize)]
#[serde(default, bound(deserialize = "S: Default + Deserialize<'de>, T: Default + Deserialize<'de>"))]
pub(super) struct Wire<S, T> {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub(super) spec: S,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: T,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Annotations {
    #[serde(rename = "tolerarch.io/node-taints", deserialize_with = "or_default")]
    pub(super) node_taints: String,
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        let Metadata { name, namespace, uid, resource_version, labels, deletion_timestamp, .. } = read;
        Self { name, namespace, uid, resource_version, labels, deletion_timestamp, ..Self::default() }
    }
}

/// What is `null` counts as absent, as in Kubernetes.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The same, and of a list that is longer than any should be only its beginning, which costs no more memory than that.
pub(super) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::<First<T, ITEMS>>::deserialize(deserializer)?.map_or_else(Vec::new, |first| first.0))
}

/// Labels, unless there are more than any object should have.
fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = Option<BTreeMap<String, String>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("labels")
        }
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some((key, value)) = members.next_entry()? {
                if labels.len() == LABELS {
                    return Err(A::Error::custom("too many labels"));
                }
                labels.insert(key, value);
            }
            Ok(Some(labels))
        }
    }
    deserializer.deserialize_any(Few)
}
