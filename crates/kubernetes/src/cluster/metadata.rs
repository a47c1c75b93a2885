//! Parts that several types read from the Kubernetes API share; namespaces, of which nothing else is read.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::watch::Followed;
use tolerarch_text::json::First;

/// Maximal bytes of each text of an owner that is used: the author of an object chooses them.
const TEXT: usize = 253;
/// Maximal number of an object's labels: nodes have up to some hundreds.
const LABELS: usize = 1024;
/// Maximal items of a list that are read. No Pod has as many containers.
const ITEMS: usize = 4096;

/// Metadata without other annotations and managed fields, which may be most of an object and are not needed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    /// Empty for an object of the cluster.
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    #[serde(deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
    /// Owner that manages the object. An author may name thousands of others.
    #[serde(rename = "ownerReferences", deserialize_with = "controller")]
    pub controller: Option<Owner>,
}

impl Metadata {
    /// Returns the key of an object among those of its kind.
    pub(super) fn key(&self) -> String {
        match &*self.namespace {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Namespace {
    pub metadata: Metadata,
}

impl Followed for Namespace {
    const LIST: &'static str = "/api/v1/namespaces";

    fn key(&self) -> String {
        self.metadata.key()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

impl Owner {
    pub fn is_small(&self) -> bool {
        [&self.api_version, &self.kind, &self.name, &self.uid].iter().all(|text| text.len() <= TEXT)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    r#type: String,
    status: String,
}

/// Returns the status of a condition: `True`, `False` or `Unknown`.
pub(super) fn status_of<'c>(conditions: &'c [Condition], r#type: &str) -> Option<&'c str> {
    conditions.iter().find(|condition| condition.r#type == r#type).map(|condition| &*condition.status)
}

/// Reads `null` as absent, as Kubernetes does.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads `null` as absent, and only the first [`ITEMS`] of a list, so that a longer one takes no more memory.
pub(super) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::<First<T, ITEMS>>::deserialize(deserializer)?.map_or_else(Vec::new, |first| first.0))
}

/// Reads the owner that manages an object; at most one does.
fn controller<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Owner>, D::Error> {
    Ok(first(deserializer)?.into_iter().find(|owner: &Owner| owner.controller))
}

/// Reads labels, unless there are too many for any object: as many as fit into a Pod take twenty times its bytes.
fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Few;
    impl<'de> Visitor<'de> for Few {
        type Value = BTreeMap<String, String>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("labels")
        }
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some((key, value)) = members.next_entry()? {
                if labels.len() == LABELS {
                    return Err(A::Error::custom("too many labels"));
                }
                labels.insert(key, value);
            }
            Ok(labels)
        }
    }
    deserializer.deserialize_any(Few)
}

/// Takes the value at a JSON pointer out of an object that only kubelets and administrators write.
pub(super) fn take<T: Default + DeserializeOwned>(
    object: &mut Value,
    place: &str,
) -> Result<T, serde_json::Error> {
    or_default(object.pointer_mut(place).map(Value::take).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text behind the labels is not read, so it takes no memory.
    #[test]
    fn reading_ends_at_the_first_label_too_many() {
        let labels = |count: usize, last: &str| {
            let all: String = (0..count).map(|label| format!("\"l{label}\":\"\",")).collect();
            serde_json::from_str::<Metadata>(&format!("{{\"labels\":{{{all}\"last\":{last}}}}}"))
        };
        assert_eq!(labels(LABELS - 1, "\"\"").unwrap().labels.len(), LABELS);
        for (count, last) in [(LABELS, "\"\""), (LABELS + 1, "7")] {
            let error = labels(count, last).err().unwrap().to_string();
            assert!(error.contains("too many labels"), "{error}");
        }
    }
}
