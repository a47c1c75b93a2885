//! Kubernetes objects of the issuer: Secrets, and the bundles of webhooks.
//!
//! Every write names the object's version that it was planned for, and gets 409 if another came first. RBAC can limit
//! all of it to these names: creating too, as a patch of a missing object is authorised by name, and a POST is not.

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

/// Keys of the CAs in their Secret: of the newest one, and of the one that was in use before.
const CAS: [[&str; 2]; 2] = [["ca.crt", "ca.key"], ["previous.crt", "previous.key"]];
/// Key of the certificate in the Secret that replicas mount.
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";
/// Key of the certificate of the CA that signed it.
pub(super) const CA: &str = "ca.crt";

/// Bytes of other keys in a Secret beyond which they are taken out, as the API server allows 1 MiB in all.
const FOREIGN: usize = 512 << 10;
/// Type of the Secrets that are created. The API server wants certain keys in those of other types.
const OPAQUE: &str = "Opaque";

/// Secret. The type of k8s-openapi is not used, as it does not overwrite its values in memory when they are dropped.
#[derive(Deserialize)]
pub(super) struct Secret {
    metadata: ObjectMeta,
    data: Option<BTreeMap<String, SecretValue>>,
    #[serde(rename = "type")]
    r#type: Option<String>,
    /// Set if the API server refuses every change of the data.
    immutable: Option<bool>,
}

/// Key of a Secret and the value to write there, `None` to remove the key.
pub(super) type Entry = (&'static str, Option<Zeroizing<String>>);

/// Decoded value, empty if it is null or not base64.
#[derive(Deserialize)]
#[serde(from = "Option<String>")]
struct SecretValue(Zeroizing<Vec<u8>>);

impl From<Option<String>> for SecretValue {
    fn from(text: Option<String>) -> Self {
        let text = text.unwrap_or_default();
        Self(
            BASE64_STANDARD
                .decode(Zeroizing::new(text).as_bytes())
                .unwrap_or_default()
                .into(),
        )
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

    /// Reads the Secret of this name, in the namespace of the service account. Creates one that is missing, and returns
    /// `None`: it has no content, as that is a second write, which can name a version.
    pub(super) async fn read(
        cluster: &Cluster,
        name: &ObjectName,
    ) -> Result<Option<Answer<Self>>, Failure> {
        let path = Self::path(cluster, name);
        let read = cluster.get_own(&path).await;
        if !matches!(read, Err(ClusterError::NotFound)) {
            return read.map(Some).map_err(Operation::READ_SECRET.failed());
        }
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name.as_str()}, "type": OPAQUE});
        let created = cluster.patch(&path, PatchType::APPLY, &object).await;
        created.map_err(Operation::CREATE_SECRET.failed())?;
        Ok(None)
    }

    /// Returns the value of this key, empty if there is none.
    pub(super) fn value(&self, key: &str) -> &[u8] {
        let value = self.data.as_ref().and_then(|data| data.get(key));
        value.map_or(&[], |value| &value.0)
    }

    /// Returns the CAs that can be used, the newest first.
    pub(super) fn authorities(&self) -> Vec<Authority> {
        let read = |[certificate, key]: [&str; 2]| {
            Authority::read(self.value(certificate), self.value(key))
        };
        CAS.into_iter().filter_map(read).collect()
    }

    /// Writes these values into the Secret, if it has not changed since it was read. A Secret that cannot be changed is
    /// removed instead, with [`Cause::Removed`].
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
        for key in self.keys_in_the_way() {
            data.entry(key).or_insert(Value::Null);
        }
        let patch = json!({"metadata": {"resourceVersion": self.version()}, "data": data});
        let written = cluster
            .patch(&Self::path(cluster, name), PatchType::MERGE, &patch)
            .await;
        // Invalid is also what an admission policy says, and then deleting would only make it worse.
        let is_fixed = self.immutable == Some(true) || self.r#type.as_deref() != Some(OPAQUE);
        if is_fixed && matches!(written, Err(ClusterError::Invalid)) {
            return self.remove(cluster, name).await;
        }
        written.map_err(Operation::WRITE_SECRET.failed())
    }

    /// Returns all keys if there is too much in the Secret for a certificate.
    fn keys_in_the_way(&self) -> Vec<String> {
        let values = self.data.iter().flatten();
        let bytes: usize = values.clone().map(|(_, value)| value.0.len()).sum();
        if bytes <= FOREIGN {
            return Vec::new();
        }
        values.map(|(key, _)| key.clone()).collect()
    }

    /// Removes the Secret, or first what keeps it from being removed.
    async fn remove(&self, cluster: &Cluster, name: &ObjectName) -> Result<(), Failure> {
        let path = Self::path(cluster, name);
        let name = name.as_str();
        let removed = if self.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            tracing::warn!(
                name,
                "a Secret of certificates cannot be changed; it is deleted and created anew"
            );
            cluster.delete(&path, self.version()).await
        } else {
            let patch =
                json!({"metadata": {"resourceVersion": self.version(), "finalizers": null}});
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

/// Returns the content of the Secret that has these CAs, the newest first, and no other.
pub(super) fn values(authorities: &[&Authority]) -> Vec<Entry> {
    let mut values = Vec::new();
    for (at, [certificate, key]) in CAS.into_iter().enumerate() {
        let written = authorities.get(at).map(|authority| authority.written());
        let (certificate_text, key_text) = written.unzip();
        values.push((certificate, certificate_text));
        values.push((key, key_text));
    }
    values
}

/// Writes this bundle into each webhook that has another.
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
    // With the version the webhooks are known by their places.
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version});
    let mut patch = vec![version];
    for (at, webhook) in webhooks.iter().enumerate() {
        if webhook.bundle() != pem.as_bytes() {
            let path = format!("/webhooks/{at}/clientConfig/caBundle");
            patch.push(json!({"op": "add", "path": path, "value": text}));
        }
    }
    if patch.len() == 1 {
        return Ok(());
    }
    let written = cluster.patch(path, PatchType::JSON, &patch.into()).await;
    written.map_err(Operation::WRITE_WEBHOOKS.failed())
}
