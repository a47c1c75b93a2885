//! Objects through which replicas coordinate: a Lease (`coordination.k8s.io/v1`), and a ConfigMap with a shared record.
//!
//! Every write names the version of the object that was read, and gets 409 if another replica has written since. An
//! object is created by an apply without content: RBAC can limit an apply to one name, and it does not change an
//! existing object.

pub use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
pub use k8s_openapi::api::core::v1::ConfigMap;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{Metadata, Resource};
use kube::api::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::watch::WatchedKind;
use super::{Cluster, ClusterError, ObjectName, PatchType};

/// Key of the record in a ConfigMap.
pub const RECORD: &str = "record.json";

#[derive(Clone, Debug)]
pub struct OwnedName {
    pub namespace: String,
    pub name: ObjectName,
}

impl OwnedName {
    fn path<K: Resource>(&self) -> String {
        let root = if K::GROUP.is_empty() { "/api" } else { "/apis" };
        let Self { namespace, name } = self;
        format!(
            "{root}/{}/namespaces/{namespace}/{}/{}",
            K::API_VERSION,
            K::URL_PATH_SEGMENT,
            name.as_str()
        )
    }

    /// Reads the object, however large it is, and creates it if it is missing.
    pub async fn read<K: Resource + DeserializeOwned>(
        &self,
        cluster: &Cluster,
    ) -> Result<K, ClusterError> {
        let path = self.path::<K>();
        let mut answer = cluster.get_managed(&path).await;
        if matches!(answer, Err(ClusterError::NotFound)) {
            let metadata = json!({"name": self.name.as_str(), "namespace": self.namespace});
            let empty =
                json!({"apiVersion": K::API_VERSION, "kind": K::KIND, "metadata": metadata});
            cluster.patch(&path, PatchType::APPLY, &empty).await?;
            answer = cluster.get_managed(&path).await;
        }
        Ok(answer?.object)
    }

    /// Writes this merge patch, unless the object has changed since it was read.
    pub async fn write<K: Resource + Metadata<Ty = ObjectMeta>>(
        &self,
        cluster: &Cluster,
        read: &K,
        mut patch: Value,
    ) -> Result<(), ClusterError> {
        let Some(version) = &read.metadata().resource_version else {
            return Err(ClusterError::Malformed);
        };
        patch["metadata"] = json!({"resourceVersion": version});
        let path = self.path::<K>();
        cluster.patch(&path, PatchType::MERGE, &patch).await
    }
}

impl WatchedKind for ConfigMap {
    const LIST: &'static str = "/api/v1/configmaps";

    fn key(&self) -> String {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.metadata.name.as_deref().unwrap_or_default();
        format!("{namespace}/{name}")
    }
}

/// Returns the record in a ConfigMap; empty if there is none.
pub fn record(map: &ConfigMap) -> &str {
    let text = map.data.as_ref().and_then(|data| data.get(RECORD));
    text.map_or("", String::as_str)
}

pub fn micro_time() -> MicroTime {
    MicroTime(Timestamp::now())
}
