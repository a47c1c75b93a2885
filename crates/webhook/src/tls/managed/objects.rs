//! Kubernetes objects of the issuer: Secrets, and the webhook configurations.
//!
//! Every write names the object's version that it was planned for, and gets 409 if another came first. RBAC can limit
//! all of it to these names: creating too, as a patch of a missing object is authorised by name, and a POST is not.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, WebhookClientConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;
use zeroize::Zeroizing;

use super::authority::{Authority, read_bundle, write_bundle};
use super::plan::{Ca, Der};
use tolerarch_kubernetes::cluster::{Answer, Cluster, ClusterError, ObjectName, PatchType};

/// Keys of the CAs in their Secret: of the newest one, and of the one that was in use before.
const CAS: [[&str; 2]; 2] = [["ca.crt", "ca.key"], ["previous.crt", "previous.key"]];
/// Key of the certificate in the Secret that replicas mount.
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";
/// Key of the certificate of the CA that signed it.
pub(super) const CA: &str = "ca.crt";

/// Secret. The type of k8s-openapi is not used, as it does not overwrite its values in memory when they are dropped.
#[derive(Deserialize)]
pub(super) struct Secret {
    metadata: ObjectMeta,
    data: Option<BTreeMap<String, SecretValue>>,
}

/// Key of a Secret and the value to write there, `None` to remove the key.
pub(super) type Entry = (&'static str, Option<Zeroizing<String>>);

/// Decoded value, empty if it is not base64.
#[derive(Deserialize)]
#[serde(from = "String")]
struct SecretValue(Zeroizing<Vec<u8>>);

impl From<String> for SecretValue {
    fn from(text: String) -> Self {
        Self(BASE64_STANDARD.decode(Zeroizing::new(text).as_bytes()).unwrap_or_default().into())
    }
}

impl Secret {
    fn path(cluster: &Cluster, name: &ObjectName) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", cluster.namespace(), name.as_str())
    }

    /// Reads the Secret of this name, in the namespace of the service account.
    pub(super) async fn read(cluster: &Cluster, name: &ObjectName) -> Result<Answer<Self>, ClusterError> {
        cluster.get(&Self::path(cluster, name)).await
    }

    /// Creates the Secret without content, if it is missing. Content is a second write, which can name a version.
    pub(super) async fn create(cluster: &Cluster, name: &ObjectName) -> Result<(), ClusterError> {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name.as_str()}, "type": "Opaque"});
        cluster.patch(&Self::path(cluster, name), PatchType::Apply, &object).await
    }

    /// Returns the value of this key, empty if there is none.
    pub(super) fn value(&self, key: &str) -> &[u8] {
        self.data.as_ref().and_then(|data| data.get(key)).map_or(&[], |value| &value.0)
    }

    /// Returns the CAs that can be used, the newest first.
    pub(super) fn authorities(&self) -> Vec<Authority> {
        let read = |[certificate, key]: [&str; 2]| Authority::read(self.value(certificate), self.value(key));
        CAS.into_iter().filter_map(read).collect()
    }

    /// Writes these values into the Secret, if it has not changed since it was read.
    pub(super) async fn write(
        &self,
        cluster: &Cluster,
        name: &ObjectName,
        values: Vec<Entry>,
    ) -> Result<(), ClusterError> {
        let encoded = |text: Zeroizing<String>| Value::from(BASE64_STANDARD.encode(text.as_bytes()));
        let data = values.into_iter().map(|(key, text)| (key.to_owned(), text.map_or(Value::Null, encoded)));
        let data: serde_json::Map<String, Value> = data.collect();
        let version = self.metadata.resource_version.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
        cluster.patch(&Self::path(cluster, name), PatchType::Merge, &patch).await
    }
}

/// Returns the content of the Secret that has these CAs, the newest first, and no other.
pub(super) fn values(authorities: &[&Authority]) -> Vec<Entry> {
    let mut written = authorities.iter().map(|authority| authority.written());
    let pairs = CAS.into_iter().map(|keys| (keys, written.next().unzip()));
    pairs.flat_map(|([certificate, key], (signed, secret))| [(certificate, signed), (key, secret)]).collect()
}

pub(super) struct Configuration {
    path: String,
    version: String,
    pub(super) bundles: Vec<Vec<Ca>>,
    /// Names or addresses by which the API server calls the webhooks.
    pub(super) names: Vec<String>,
}

impl Configuration {
    pub(super) async fn read(cluster: &Cluster, name: &ObjectName) -> Result<Self, ClusterError> {
        let path =
            format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{}", name.as_str());
        let object: MutatingWebhookConfiguration = cluster.get(&path).await?.object;
        let (mut bundles, mut names) = (Vec::new(), Vec::new());
        for WebhookClientConfig { ca_bundle, service, url } in
            object.webhooks.into_iter().flatten().map(|webhook| webhook.client_config)
        {
            bundles.push(ca_bundle.map_or_else(Vec::new, |bundle| read_bundle(&bundle.0)));
            // As the API server's ServerName: pkg/util/webhook/client.go.
            let service = service.map(|service| format!("{}.{}.svc", service.name, service.namespace));
            names.extend(service.or_else(|| host(&url?)));
        }
        let version = object.metadata.resource_version.unwrap_or_default();
        Ok(Self { path, version, bundles, names })
    }

    /// Writes this bundle into each webhook that has another.
    pub(super) async fn write(&self, cluster: &Cluster, bundle: &[Der]) -> Result<(), ClusterError> {
        let text = BASE64_STANDARD.encode(write_bundle(bundle));
        let other = |(at, old): (usize, &Vec<Ca>)| old.iter().map(|ca| &ca.der).ne(bundle).then_some(at);
        let others = self.bundles.iter().enumerate().filter_map(other);
        // With the version the webhooks are known by their places.
        let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": self.version});
        let bundles = others.map(
            |at| json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": text}),
        );
        let patch: Vec<Value> = std::iter::once(version).chain(bundles).collect();
        if patch.len() == 1 {
            return Ok(());
        }
        cluster.patch(&self.path, PatchType::Json, &patch.into()).await
    }
}

/// Returns the host of a webhook's URL, as a certificate names it: an IPv6 address without brackets.
fn host(url: &str) -> Option<String> {
    Some(Url::parse(url).ok()?.host_str()?.trim_matches(['[', ']']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_written_as_in_certificates() {
        for (url, name) in [
            ("https://Hook.example:8443/mutate", Some("hook.example")),
            ("https://10.1.2.3/", Some("10.1.2.3")),
            ("https://[FD00:0::7]:8443/", Some("fd00::7")),
            ("hook.example", None),
        ] {
            assert_eq!(host(url).as_deref(), name);
        }
    }
}
