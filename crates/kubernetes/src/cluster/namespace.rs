//! Namespaces, with the fields that selectors use.

use kube::api::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::metadata::Metadata;
use super::watch::Followed;

#[derive(Clone, Debug, Deserialize)]
pub struct Namespace {
    /// Name, labels and identity of the namespace only.
    #[serde(deserialize_with = "identity")]
    pub metadata: ObjectMeta,
}

fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Metadata::deserialize(deserializer).map(ObjectMeta::from)
}

impl Followed for Namespace {
    const LIST: &'static str = "/api/v1/namespaces";

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}
