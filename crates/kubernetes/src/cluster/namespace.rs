//! Namespaces, as far as selectors ask about them.

use kube::api::ObjectMeta;
use serde::Deserialize;

use super::metadata::{names_and_labels, resource};

#[derive(Clone, Debug, Deserialize)]
pub struct Namespace {
    /// Its name and labels; nothing else but what identifies it.
    #[serde(deserialize_with = "names_and_labels")]
    pub metadata: ObjectMeta,
}

resource!(Namespace, ClusterResourceScope, "", "v1", "Namespace", "namespaces");
