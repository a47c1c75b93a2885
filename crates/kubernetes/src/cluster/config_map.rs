//! A text in a ConfigMap of tolerarch's own, by which replicas share what they know.

pub use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use super::watch::Followed;

/// The key of the text.
pub const RECORD: &str = "record.json";

/// The text; empty where there is none.
pub fn record(map: &ConfigMap) -> &str {
    map.data.as_ref().and_then(|data| data.get(RECORD)).map_or("", String::as_str)
}

impl Followed for ConfigMap {
    const LIST: &'static str = "/api/v1/configmaps";

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}
