//! All that talks to the Kubernetes API: as the service account that is mounted, or as a person's kubeconfig says, so that
//! no request waits long for an API server that does not answer.
//!
//! Of kube only the client is used, and what it gives is read here: whatever comes back has a bound.

mod caller;
mod config_map;
mod event;
mod kubeconfig;
mod list;
mod metadata;
mod namespace;
mod node;
mod node_pool;
mod object;
mod owned;
mod pod;
mod quantity;
mod selector;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod user;
mod watch;

use std::time::SystemTime;

use http::header::{ACCEPT, CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{AuthInfo, Config};
use serde::de::DeserializeOwned;
use tokio::time::{Duration, Instant, timeout};
use zeroize::Zeroizing;

use tolerarch_support::environment::Environment;
use tolerarch_support::sync::Mutex;

pub use caller::{Caller, ConnectError};
pub use config_map::{ConfigMap, RECORD, record};
pub use event::{EventKind, PodEvent};
pub use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
pub use metadata::{Owner, or_default};
pub use namespace::Namespace;
pub use node::{Node, TAINTS_KEY, Taint};
pub use node_pool::{NodePool, Requirement};
pub use owned::{Lease, LeaseSpec, MicroTime, OwnedName, micro_time};
pub use pod::{ContainerStatus, Phase, StoredPod, Terminated};
pub use quantity::{Quantity, QuantityError};
pub use selector::Selector;
pub use tolerarch_core::pod::is_name;
pub use user::{Page, RequestError, UserClient};
pub use watch::{Change, Followed, Known, UnreadMetrics, Watcher};

/// How long an answer may take in all.
const TIME: Duration = Duration::from_secs(3);
/// Bytes of an answer. A Secret may have 1 MiB; one for registries has a few KB, perhaps twice (kubectl's annotation).
const BODY: usize = 512 << 10;
/// How long an API server that did not answer is not asked, so that no Pod waits for it in the meantime.
const REST: Duration = Duration::from_secs(15);
const JSON: &str = "application/json";
/// How an object comes back without what is in it.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The MutatingWebhookConfiguration of the manifests. API servers call webhooks in the order of these names.
pub const WEBHOOK_CONFIGURATION: &str = "zz-tolerarch";

/// Why something was not read or changed. Never quotes an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ClusterError {
    /// No such object, or no such kind.
    #[error("not found")]
    NotFound,
    /// The right is missing.
    #[error("forbidden")]
    Forbidden,
    /// The API server does not know the service account.
    #[error("unauthorized")]
    Unauthorized,
    #[error("timeout")]
    Timeout,
    /// No connection, or a broken one.
    #[error("unreachable")]
    Unreachable,
    #[error("not asked, as it did not answer a moment ago")]
    Resting,
    /// A status that means neither yes nor no.
    #[error("unexpected status")]
    Status,
    #[error("too large")]
    TooLarge,
    /// Not the JSON that it should be.
    #[error("malformed")]
    Malformed,
    /// No name that an object can have, and so nothing to put into a path.
    #[error("invalid name")]
    Name,
    /// The object has changed since it was read, or is there already.
    #[error("conflict")]
    Conflict,
    /// The change does not apply, or what comes of it is not valid.
    #[error("invalid")]
    Invalid,
}

impl ClusterError {
    /// What this status means, which is none of success.
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Unauthorized,
            StatusCode::FORBIDDEN => Self::Forbidden,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::CONFLICT => Self::Conflict,
            StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid,
            _ => Self::Status,
        }
    }
}

/// What was read, and when by the API server's clock, where it says so.
#[derive(Debug)]
pub struct Answer<T> {
    pub object: T,
    pub date: Option<SystemTime>,
}

/// How a change is written.
#[derive(Clone, Copy, Debug)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Server-side apply, which also creates.
    Apply,
}

impl PatchType {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The name of an object that the configuration names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    /// None if no object can have it.
    pub fn new(name: &str) -> Option<Self> {
        is_name(name).then(|| Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of an object that belongs to the one of this name.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        Self(format!("{}{suffix}", self.0))
    }
}

pub struct Cluster {
    config: Config,
    client: Mutex<Client>,
    time: Duration,
    /// Since when it does not answer.
    silent: Mutex<Option<Instant>>,
}

impl Cluster {
    /// As the one on whose behalf it is. Needs the runtime.
    pub fn of(caller: Caller, environment: &Environment) -> Result<Self, ConnectError> {
        Self::new(caller.config(environment)?, TIME)
    }

    /// With another configuration and another limits.
    pub(crate) fn new(config: Config, time: Duration) -> Result<Self, ConnectError> {
        let client = client(config.clone(), time, None)?;
        Ok(Self { config, client: Mutex::new(client), time, silent: Mutex::default() })
    }

    pub async fn secret<T: DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<T, ClusterError> {
        // Both are untrusted input: names of pull secrets are checked after admission.
        if !is_name(namespace) || !is_name(name) {
            return Err(ClusterError::Name);
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let silent = || self.silent.lock();
        if silent().is_some_and(|since| since.elapsed() < REST) {
            return Err(ClusterError::Resting);
        }
        let answer = self.get(&path).await;
        if matches!(answer, Err(ClusterError::Timeout | ClusterError::Unreachable)) {
            *silent() = Some(Instant::now());
        }
        Ok(answer?.object)
    }

    /// The namespace of the service account, or of the kubeconfig.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Reads one object for a background task, even if there was no answer a moment ago. `path` has been checked.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, ClusterError> {
        let Answer { object: body, date } = self.ask(Method::GET, path, JSON, None).await?;
        let object = serde_json::from_slice(&body).map_err(|_| ClusterError::Malformed)?;
        Ok(Answer { object, date })
    }

    /// Changes one object. What comes back is not looked at.
    pub async fn patch(
        &self,
        path: &str,
        r#type: PatchType,
        patch: &serde_json::Value,
    ) -> Result<(), ClusterError> {
        self.change(Method::PATCH, path, r#type.media_type(), patch).await
    }

    /// What comes back is not looked at. [`ClusterError::Conflict`] where there is one by this name already.
    pub async fn create(&self, list: &str, object: &serde_json::Value) -> Result<(), ClusterError> {
        self.change(Method::POST, list, JSON, object).await
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        change: &serde_json::Value,
    ) -> Result<(), ClusterError> {
        let path = format!("{path}?fieldManager=tolerarch");
        // A Pod may be large, and nothing of it is looked at.
        self.ask(method, &path, METADATA, Some((media_type, &change.to_string()))).await.map(drop)
    }

    /// The last line of a container, or its first KiB; of the run before where `previous` says so. Untrusted text.
    pub async fn last_line(
        &self,
        pod: &StoredPod,
        container: &str,
        previous: bool,
    ) -> Result<String, ClusterError> {
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("container", container)
            .append_pair("previous", if previous { "true" } else { "false" })
            .append_pair("tailLines", "1")
            .append_pair("limitBytes", "1024")
            .finish();
        let path = format!("/api/v1/namespaces/{}/pods/{}/log?{query}", pod.namespace(), pod.name());
        let line = self.ask(Method::GET, &path, "text/plain, */*", None).await?.object;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Whether there is a right to get this; `None` where nobody says so.
    pub async fn may_get(&self, path: &str) -> Option<bool> {
        match self.ask(Method::GET, path, JSON, None).await {
            Err(ClusterError::Forbidden | ClusterError::Unauthorized) => Some(false),
            Err(ClusterError::Timeout | ClusterError::Unreachable) => None,
            _ => Some(true),
        }
    }

    /// Asks within the time that there is for an answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        change: Option<(&str, &str)>,
    ) -> Result<Answer<Zeroizing<Vec<u8>>>, ClusterError> {
        let request = || request(method.clone(), path, accept, change).map_err(|_| ClusterError::Name);
        let answer = async {
            let known = self.client.lock().clone();
            match answer(&known, request()?).await {
                Err(ClusterError::Unauthorized) => {}
                answer => return answer,
            }
            // kube reads the token once a minute; one that was replaced earlier is refused until then.
            let new = client(self.config.clone(), self.time, None).map_err(|_| ClusterError::Unauthorized)?;
            *self.client.lock() = new.clone();
            answer(&new, request()?).await
        };
        timeout(self.time, answer).await.unwrap_or(Err(ClusterError::Timeout))
    }
}

/// Tries nothing twice. `silence` is how long a connection may be silent: none where each request has a deadline.
fn client(mut config: Config, connect: Duration, silence: Option<Duration>) -> Result<Client, ConnectError> {
    config.default_retry = false;
    config.connect_timeout = Some(connect);
    config.read_timeout = silence;
    config.write_timeout = silence;
    trim_token(&mut config.auth_info);
    Client::try_from(config).map_err(ConnectError::Client)
}

/// As client-go has it: a token file counts before a token, and ends with a newline where an editor has written it. kube, which
/// takes it whole, reads it itself where nothing is to be trimmed, and again when the token has been replaced.
fn trim_token(auth: &mut AuthInfo) {
    let read = |file: &String| std::fs::read_to_string(file).ok().map(Zeroizing::new);
    if let Some(text) = auth.token_file.as_ref().and_then(read) {
        let token = text.trim();
        auth.token = (token.len() < text.len()).then(|| token.into());
    }
}

/// A request, and the media type and text of what it is to change.
fn request(
    method: Method,
    path: &str,
    accept: &str,
    change: Option<(&str, &str)>,
) -> Result<Request<Body>, http::Error> {
    let request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
    match change {
        Some((media_type, text)) => {
            request.header(CONTENT_TYPE, media_type).body(text.as_bytes().to_vec().into())
        }
        None => request.body(Body::empty()),
    }
}

async fn answer(client: &Client, request: Request<Body>) -> Result<Answer<Zeroizing<Vec<u8>>>, ClusterError> {
    let answer = client.send(request).await.map_err(|_| ClusterError::Unreachable)?;
    if !matches!(answer.status(), StatusCode::OK | StatusCode::CREATED) {
        return Err(ClusterError::of(answer.status()));
    }
    let date =
        answer.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    match read(answer.into_body(), BODY).await {
        Ok((body, true)) => Ok(Answer { object: body.into(), date }),
        Ok((_, false)) => Err(ClusterError::TooLarge),
        Err(_) => Err(ClusterError::Unreachable),
    }
}

/// So many bytes of a body at most, and whether that is all.
async fn read(mut body: Body, most: usize) -> Result<(Vec<u8>, bool), kube::Error> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let room = most - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((read, false));
        }
    }
    Ok((read, true))
}

#[cfg(test)]
mod tests;
