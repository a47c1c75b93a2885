//! What is said to a plugin and back: `CredentialProviderRequest` and `CredentialProviderResponse` of
//! credentialprovider.kubelet.k8s.io (k8s.io/kubelet/pkg/apis/credentialprovider/v1/types.go), decoded strictly.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use tokio::time::Duration;

use super::super::credential::{Credential, Sensitive};
use super::super::docker_keyring::DockerKeyring;
use tolerarch_text::go_duration;

/// For which images an answer is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum CacheKeyType {
    /// This one.
    Image,
    /// All of this registry.
    Registry,
    /// All.
    Global,
}

/// What a plugin says.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) cache_key: CacheKeyType,
    /// How long it is good; `None` for the configured default, zero for this time only.
    pub(super) cache_duration: Option<Duration>,
    pub(super) keyring: DockerKeyring<Arc<Credential>>,
}

/// Why an answer is none. Never quotes it, as it may hold credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("its answer has another apiVersion than configured")]
    ApiVersion,
    #[error("its answer is no CredentialProviderResponse")]
    Malformed,
    #[error("its answer has a cacheKeyType that is none of Image, Registry and Global")]
    CacheKeyType,
    #[error("its answer has a cacheDuration that is none")]
    CacheDuration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResponseBody {
    kind: String,
    #[expect(dead_code, reason = "read before, with its own fault")]
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

#[derive(Deserialize)]
struct Version<'a> {
    #[serde(rename = "apiVersion", borrow)]
    api_version: std::borrow::Cow<'a, str>,
}

impl Auth {
    /// None if it is empty: kubelet then sends nothing.
    fn credential(self) -> Option<Credential> {
        let (user, password) = (self.username.unwrap_or_default(), self.password.unwrap_or_default());
        let is_empty = user.is_empty() && password.reveal().is_empty();
        (!is_empty).then_some(Credential::Basic { user, password })
    }
}

/// Asks for an image (`host/repository`).
pub(super) fn request(api_version: &str, image: &str) -> Vec<u8> {
    let request =
        serde_json::json!({"apiVersion": api_version, "kind": "CredentialProviderRequest", "image": image});
    request.to_string().into_bytes()
}

pub(super) fn response(text: &[u8], api_version: &str) -> Result<Response, ResponseError> {
    let version: Version<'_> = serde_json::from_slice(text).map_err(|_| ResponseError::Malformed)?;
    if version.api_version != api_version {
        return Err(ResponseError::ApiVersion);
    }
    let document: ResponseBody = serde_json::from_slice(text).map_err(|_| ResponseError::Malformed)?;
    if document.kind != "CredentialProviderResponse" {
        return Err(ResponseError::Malformed);
    }
    let cache_key = match document.cache_key_type.unwrap_or_default().as_str() {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        _ => return Err(ResponseError::CacheKeyType),
    };
    let cache_duration = match document.cache_duration {
        Some(text) => Some(go_duration::parse_or_zero(&text).ok_or(ResponseError::CacheDuration)?),
        None => None,
    };
    let auth = document.auth.unwrap_or_default();
    let credentials = auth.into_iter().filter_map(|(key, auth)| Some((key, auth?.credential()?)));
    let credentials: Vec<(String, Arc<Credential>)> =
        credentials.map(|(key, credential)| (key, Arc::new(credential))).collect();
    let keyring = DockerKeyring::new(
        credentials.iter().map(|(key, credential)| (key.as_str(), Arc::clone(credential))),
    );
    Ok(Response { cache_key, cache_duration, keyring })
}
