//! What the types of ours share that are read from the Kubernetes API.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use tolerarch_text::json::First;

/// Lets the runtime follow objects of one of our types, whose field `metadata` is the object's.
macro_rules! resource {
    ($type:ty, $scope:ident, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use resource;

/// Labels of an object that are read: nodes have up to some hundreds.
const LABELS: usize = 1024;
/// Items of a list that are read. No Pod has as many containers.
const ITEMS: usize = 4096;

/// Reads the metadata that names an object, its labels and when it was deleted. Annotations and managed fields may be most
/// of an object, and nothing asks for them.
pub(crate) fn names_and_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Kept {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        #[serde(deserialize_with = "labels")]
        labels: Option<BTreeMap<String, String>>,
        deletion_timestamp: Option<Time>,
    }
    let Kept { name, namespace, uid, resource_version, labels, deletion_timestamp } =
        Kept::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        labels,
        deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// What is `null` counts as absent, as in Kubernetes.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The same, and of a list that is longer than any should be only its beginning, which costs no more memory than that.
pub(crate) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::<First<T, ITEMS>>::deserialize(deserializer)?.map_or_else(Vec::new, |first| first.0))
}

/// Labels, unless there are more than any object should have.
pub(crate) fn labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
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
