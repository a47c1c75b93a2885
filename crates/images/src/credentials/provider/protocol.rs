//! The request to a plugin and its response: `CredentialProviderRequest` and `CredentialProviderResponse` of
//! credentialprovider.kubelet.k8s.io (k8s.io/kubelet/pkg/apis/credentialprovider/v1/types.go), decoded strictly.

use std::collections::BTreeMap;

use serde::Deserialize;
use tokio::time::Duration;

use super::super::credential::{Credential, Sensitive};
use super::super::docker_keyring::DockerKeyring;
use super::super::program::{Response, Scope};
use tolerarch_text::go_duration;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResponseBody {
    kind: String,
    api_version: String,
    cache_key_type: Option<String>,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, Option<Auth>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    username: Option<String>,
    password: Option<Sensitive>,
}

impl Auth {
    /// None if it is empty: kubelet then sends nothing.
    fn credential(self) -> Option<Credential> {
        let (user, password) = (self.username.unwrap_or_default(), self.password.unwrap_or_default());
        let is_empty = user.is_empty() && password.reveal().is_empty();
        (!is_empty).then_some(Credential::Basic { user, password })
    }
}

pub(super) fn request(api_version: &str, image: &str) -> Vec<u8> {
    let request =
        serde_json::json!({"apiVersion": api_version, "kind": "CredentialProviderRequest", "image": image});
    request.to_string().into_bytes()
}

const MALFORMED: &str = "its answer is no CredentialProviderResponse";

/// `default` is for an answer that does not say how long it is good. An error never quotes it: it may hold credentials.
pub(super) fn response(text: &[u8], api_version: &str, default: Duration) -> Result<Response, &'static str> {
    let body: ResponseBody = serde_json::from_slice(text).map_err(|_| MALFORMED)?;
    if body.kind != "CredentialProviderResponse" {
        return Err(MALFORMED);
    }
    if body.api_version != api_version {
        return Err("its answer has another apiVersion than configured");
    }
    let scope = match body.cache_key_type.unwrap_or_default().as_str() {
        "Image" => Scope::Image,
        "Registry" => Scope::Registry,
        "Global" => Scope::Global,
        _ => return Err("its answer has a cacheKeyType that is none of Image, Registry and Global"),
    };
    let life = body.cache_duration.map_or(Some(default), |text| go_duration::parse_or_zero(&text));
    let life = life.ok_or("its answer has a cacheDuration that is none")?;
    let auth = body.auth.unwrap_or_default();
    let credentials = auth.into_iter().filter_map(|(key, auth)| Some((key, auth?.credential()?.into())));
    Ok(Response { scope, life, keyring: DockerKeyring::new(credentials) })
}
