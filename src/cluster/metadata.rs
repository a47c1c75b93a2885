//! What the types of ours share that are read from the Kubernetes API.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer};

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

/// Reads the metadata that names an object, its labels and when it was deleted. Annotations and managed fields may be most
/// of an object, and nothing asks for them.
pub(crate) fn names_and_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Kept {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
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
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
