//! A Lease (`coordination.k8s.io/v1`) by which replicas agree on a leader, as client-go writes it.
//!
//! Every write names the version of the Lease that it was decided on, and is refused (409) where another replica came
//! first. It is created by an apply without a holder, which RBAC can limit to its name, and which changes nothing where it
//! is there.

use k8s_openapi::api::coordination::v1::Lease;
pub use k8s_openapi::api::coordination::v1::LeaseSpec;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{Cluster, ClusterError, ObjectName, PatchType};

#[derive(Clone, Debug)]
pub struct LeaseName {
    pub namespace: String,
    pub name: ObjectName,
}

#[derive(Debug)]
pub struct StoredLease {
    /// What it says. Clocks of others are not to be trusted: of its times only that they change means something.
    pub spec: LeaseSpec,
    version: String,
}

impl LeaseName {
    fn path(&self) -> String {
        let Self { namespace, name } = self;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", name.as_str())
    }

    /// Reads it, and creates it where it is missing.
    pub async fn read(&self, cluster: &Cluster) -> Result<StoredLease, ClusterError> {
        let answer = match cluster.get::<Lease>(&self.path()).await {
            Err(ClusterError::NotFound) => {
                self.create(cluster).await?;
                cluster.get::<Lease>(&self.path()).await?
            }
            answer => answer?,
        };
        let Lease { metadata, spec } = answer.object;
        let version = metadata.resource_version.ok_or(ClusterError::Malformed)?;
        Ok(StoredLease { spec: spec.unwrap_or_default(), version })
    }

    async fn create(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name.as_str(), "namespace": self.namespace},
        });
        cluster.patch(&self.path(), PatchType::Apply, &lease).await
    }

    /// Writes it as `spec` says, unless it has changed since it was read.
    pub async fn write(
        &self,
        cluster: &Cluster,
        read: &StoredLease,
        spec: &LeaseSpec,
    ) -> Result<(), ClusterError> {
        let patch = json!({"metadata": {"resourceVersion": read.version}, "spec": spec});
        cluster.patch(&self.path(), PatchType::Merge, &patch).await
    }
}

/// The time now, as Kubernetes writes it where it is to be exact.
pub fn micro_time() -> MicroTime {
    MicroTime(Timestamp::now())
}
