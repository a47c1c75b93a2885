//! A Lease (`coordination.k8s.io/v1`) by which replicas agree on a leader, as client-go writes it.
//!
//! Every write names the version of the Lease that it was decided on, and is refused (409) where another replica came
//! first. It is created by an apply without a holder, which RBAC can limit to its name, and which changes nothing where it
//! is there.

use std::time::SystemTime;

use serde::Deserialize;
use serde_json::json;
use tokio::time::Duration;

use super::metadata::or_default;
use super::{Cluster, ClusterError, ObjectName, PatchType};

/// Where a Lease is.
#[derive(Clone, Debug)]
pub struct LeaseName {
    pub namespace: String,
    pub name: ObjectName,
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it; empty where it was released.
    pub holder: String,
    /// For how long after each renewal.
    pub duration: Duration,
    /// How often another holder took it over.
    pub transitions: u32,
    /// When its holder took it over, in the holder's words.
    pub acquired: String,
    /// When it was renewed, likewise. Clocks of others are not to be trusted: only that it changes means something.
    pub renewed: String,
}

/// A Lease as it was read.
#[derive(Debug)]
pub struct StoredLease {
    /// What it says.
    pub lease: Lease,
    version: String,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    lease_transitions: Option<u32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
}

impl LeaseName {
    fn path(&self) -> String {
        let Self { namespace, name } = self;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", name.as_str())
    }

    /// Reads it, and creates it where it is missing.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn read(&self, cluster: &Cluster) -> Result<StoredLease, ClusterError> {
        let object = match cluster.get::<Object>(&self.path()).await {
            Err(ClusterError::NotFound) => {
                self.create(cluster).await?;
                cluster.get::<Object>(&self.path()).await?
            }
            answer => answer?,
        };
        let Object { metadata, spec } = object.object;
        let lease = Lease {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()),
            transitions: spec.lease_transitions.unwrap_or_default(),
            acquired: spec.acquire_time.unwrap_or_default(),
            renewed: spec.renew_time.unwrap_or_default(),
        };
        Ok(StoredLease { lease, version: metadata.resource_version })
    }

    async fn create(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name.as_str(), "namespace": self.namespace},
        });
        cluster.patch(&self.path(), PatchType::Apply, &lease).await
    }

    /// Writes it as `lease` says, unless it has changed since it was read.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn write(
        &self,
        cluster: &Cluster,
        read: &StoredLease,
        lease: &Lease,
    ) -> Result<(), ClusterError> {
        let patch = json!({
            "metadata": {"resourceVersion": read.version},
            "spec": {
                "holderIdentity": lease.holder,
                "leaseDurationSeconds": lease.duration.as_secs(),
                "leaseTransitions": lease.transitions,
                "acquireTime": lease.acquired,
                "renewTime": lease.renewed,
            },
        });
        cluster.patch(&self.path(), PatchType::Merge, &patch).await
    }
}

/// The time now, as Kubernetes writes it where it is to be exact.
pub fn micro_time() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}
