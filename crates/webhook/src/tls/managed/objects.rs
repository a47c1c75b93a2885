//! Kubernetes objects of the issuer: Secrets, and the bundles of webhooks.
//!
//! Every write names the version of the object for which it was planned, and gets 409 if another write came first. RBAC
//! can limit all requests to these names. This includes creating: a patch of a missing object is authorised by name, a
//! POST is not.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::authority::{Authority, bundle_text};
use super::failure::{Cause, Failure, Operation};
use super::plan::Der;
use tolerarch_kubernetes::cluster::{
    Answer, Cluster, ClusterError, ObjectName, PatchType, WebhookConfiguration,
};

/// Keys of the CAs in their Secret: of the newest CA, and of the former one.
const CAS: [[&str; 2]; 2] = [["ca.crt", "ca.key"], ["previous.crt", "previous.key"]];
/// Key of the certificate in the Secret that replicas mount.
pub(super) const CERTIFICATE: &str = "tls.crt";
/// Key of the private key there.
pub(super) const KEY: &str = "tls.key";
/// Key of the certificate of the CA that signed it.
pub(super) const CA: &str = "ca.crt";

/// Maximum bytes of a Secret. Beyond them all other keys are removed, as the API server allows 1 MiB in all.
const SIZE: usize = 512 << 10;
/// Type of the Secrets that are created. The API server requires certain keys in Secrets of other types.
const OPAQUE: &str = "Opaque";

/// Secret. The type of k8s-openapi is not used, as it does not wipe its values from memory when they are dropped.
#[derive(Deserialize)]
pub(super) struct Secret {
    metadata: ObjectMeta,
    data: Option<BTreeMap<String, SecretValue>>,
    #[serde(rename = "type")]
    r#type: Option<String>,
    /// Set if the API server refuses every change of the data.
    immutable: Option<bool>,
}

/// Key of a Secret and the value to write there; `None` removes the key.
pub(super) type Entry = (&'static str, Option<Zeroizing<String>>);

/// Decoded value; empty if it is null or not base64.
#[derive(Deserialize)]
#[serde(from = "Option<String>")]
struct SecretValue(Zeroizing<Vec<u8>>);

impl From<Option<String>> for SecretValue {
    fn from(text: Option<String>) -> Self {
        let text = Zeroizing::new(text.unwrap_or_default());
        let decoded = BASE64_STANDARD.decode(text.as_bytes());
        Self(decoded.unwrap_or_default().into())
    }
}

impl Secret {
    fn path(cluster: &Cluster, name: &ObjectName) -> String {
        format!(
            "/api/v1/namespaces/{}/secrets/{}",
            cluster.namespace(),
            name.as_str()
        )
    }

    /// Reads the Secret of this name, in the namespace of the service account. Creates a missing Secret, and returns
    /// `None`. A new Secret is empty: its content is a second write, which can name a version.
    pub(super) async fn read(
        cluster: &Cluster,
        name: &ObjectName,
    ) -> Result<Option<Answer<Self>>, Failure> {
        let path = Self::path(cluster, name);
        let read = cluster.get_managed(&path).await;
        if !matches!(read, Err(ClusterError::NotFound)) {
            return read.map(Some).map_err(Operation::READ_SECRET.failed());
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name.as_str()},
            "type": OPAQUE,
        });
        let created = cluster.patch(&path, PatchType::APPLY, &object).await;
        created.map_err(Operation::CREATE_SECRET.failed())?;
        Ok(None)
    }

    /// Returns the value of this key, empty if there is none.
    pub(super) fn value(&self, key: &str) -> &[u8] {
        let value = self.data.as_ref().and_then(|data| data.get(key));
        match value {
            Some(value) => &value.0,
            None => &[],
        }
    }

    /// Returns the usable CAs, the newest first.
    pub(super) fn authorities(&self) -> Vec<Authority> {
        let mut authorities = Vec::new();
        for [certificate_entry, key_entry] in CAS {
            let certificate = self.value(certificate_entry);
            let key = self.value(key_entry);
            authorities.extend(Authority::read(certificate, key));
        }
        authorities
    }

    /// Writes these values into the Secret, if the Secret has not changed since it was read. A Secret that cannot be
    /// changed is removed instead, and the result is [`Cause::Removed`].
    pub(super) async fn write(
        &self,
        cluster: &Cluster,
        name: &ObjectName,
        values: Vec<Entry>,
    ) -> Result<(), Failure> {
        let mut data = serde_json::Map::new();
        for (key, text) in values {
            let encoded = text.map(|text| BASE64_STANDARD.encode(text.as_bytes()));
            data.insert(key.to_owned(), encoded.into());
        }
        for key in self.keys_to_remove() {
            data.entry(key).or_insert(Value::Null);
        }
        let patch = json!({
            "metadata": {"resourceVersion": self.version()},
            "data": data,
        });
        let written = cluster
            .patch(&Self::path(cluster, name), PatchType::MERGE, &patch)
            .await;
        // An admission policy answers `Invalid` as well. In that case the Secret must not be deleted.
        let is_fixed = self.immutable == Some(true) || self.r#type.as_deref() != Some(OPAQUE);
        if is_fixed && matches!(written, Err(ClusterError::Invalid)) {
            return self.remove(cluster, name).await;
        }
        written.map_err(Operation::WRITE_SECRET.failed())
    }

    /// Returns all keys if the Secret is too full for a certificate.
    fn keys_to_remove(&self) -> Vec<String> {
        let Some(data) = &self.data else {
            return Vec::new();
        };
        let bytes: usize = data.values().map(|value| value.0.len()).sum();
        if bytes <= SIZE {
            return Vec::new();
        }
        data.keys().cloned().collect()
    }

    /// Deletes the Secret; if it has finalizers, which would keep it, removes those first.
    async fn remove(&self, cluster: &Cluster, name: &ObjectName) -> Result<(), Failure> {
        let path = Self::path(cluster, name);
        let name = name.as_str();
        let finalizers = self.metadata.finalizers.as_deref().unwrap_or_default();
        let removed = if finalizers.is_empty() {
            tracing::warn!(
                name,
                "a Secret of certificates cannot be changed; it is deleted and created anew"
            );
            cluster.delete(&path, self.version()).await
        } else {
            let patch = json!({
                "metadata": {"resourceVersion": self.version(), "finalizers": null},
            });
            cluster.patch(&path, PatchType::MERGE, &patch).await
        };
        removed.map_err(Operation::DELETE_SECRET.failed())?;
        Err(Failure {
            operation: Operation::DELETE_SECRET,
            cause: Cause::Removed,
        })
    }

    fn version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }
}

/// Returns the content of a Secret with these CAs, the newest first, and no other.
pub(super) fn values(authorities: &[&Authority]) -> Vec<Entry> {
    let mut values = Vec::new();
    for (index, [certificate_entry, key_entry]) in CAS.into_iter().enumerate() {
        let pem = authorities.get(index).map(|authority| authority.to_pem());
        let (certificate, key) = pem.unzip();
        values.push((certificate_entry, certificate));
        values.push((key_entry, key));
    }
    values
}

/// Writes this bundle into each webhook that has another one.
pub(super) async fn write_bundles(
    cluster: &Cluster,
    WebhookConfiguration {
        path,
        version,
        webhooks,
    }: &WebhookConfiguration,
    bundle: &[Der],
) -> Result<(), Failure> {
    let pem = bundle_text(bundle);
    let text = BASE64_STANDARD.encode(&pem);
    // In this version of the object, indices identify the webhooks.
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
    let mut patch = vec![version];
    for (index, webhook) in webhooks.iter().enumerate() {
        if webhook.bundle() != pem.as_bytes() {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            patch.push(json!({"op": "add", "path": path, "value": text}));
        }
    }
    if patch.len() == 1 {
        return Ok(());
    }
    let written = cluster.patch(path, PatchType::JSON, &patch.into()).await;
    written.map_err(Operation::WRITE_WEBHOOKS.failed())
}
