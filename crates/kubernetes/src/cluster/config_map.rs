//! A text in a ConfigMap of its own, by which replicas share what they know.
//!
//! Every write names the version of the object that it was decided on, and is refused (409) where it has changed since. It
//! is created by an apply, which RBAC can limit to its name.

use kube::api::ObjectMeta;
use serde::Deserialize;
use serde_json::json;

use super::metadata::{Metadata, or_default};
use super::watch::Followed;
use super::{Cluster, ClusterError, ObjectName, PatchType};

/// The key of its text.
const KEY: &str = "record.json";

#[derive(Clone, Debug)]
pub struct ConfigMapName {
    pub namespace: String,
    pub name: ObjectName,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Wire")]
pub struct ConfigMap {
    /// What identifies it.
    pub metadata: ObjectMeta,
    /// Empty where it has none.
    pub text: String,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    #[serde(rename = "record.json")]
    text: String,
}

impl From<Wire> for ConfigMap {
    fn from(Wire { metadata, data }: Wire) -> Self {
        Self { metadata: metadata.into(), text: data.text }
    }
}

impl Followed for ConfigMap {
    const LIST: &'static str = "/api/v1/configmaps";

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl ConfigMapName {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{}", self.namespace, self.name.as_str())
    }

    /// Reads it; creates it where it is missing, and empties it where it cannot be read.
    pub async fn read(&self, cluster: &Cluster) -> Result<ConfigMap, ClusterError> {
        let path = self.path();
        let name = json!({"name": self.name.as_str(), "namespace": self.namespace});
        match cluster.get::<ConfigMap>(&path).await {
            Err(ClusterError::NotFound) => {
                let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name});
                cluster.patch(&path, PatchType::Apply, &empty).await?;
            }
            // What others have put there is nothing that could be read later, either.
            Err(ClusterError::TooLarge | ClusterError::Malformed) => {
                let nothing = json!({"data": null, "binaryData": null});
                cluster.patch(&path, PatchType::Merge, &nothing).await?;
            }
            answer => return Ok(answer?.object),
        }
        Ok(cluster.get::<ConfigMap>(&path).await?.object)
    }

    /// Writes this text, unless it has changed since it was read.
    pub async fn write(&self, cluster: &Cluster, read: &ConfigMap, text: &str) -> Result<(), ClusterError> {
        let version = read.metadata.resource_version.as_ref().ok_or(ClusterError::Malformed)?;
        let patch = json!({"metadata": {"resourceVersion": version}, "data": {KEY: text}});
        cluster.patch(&self.path(), PatchType::Merge, &patch).await
    }
}
