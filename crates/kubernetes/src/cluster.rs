//! All that talks to the Kubernetes API: as the service account that is mounted, or as a person's kubeconfig says, so that
//! no request waits long for an API server that does not answer.
//!
//! Of kube only the client is used, and what it gives is read here: whatever comes back has a bound.

mod caller;
mod event;
mod lease;
mod list;
mod metadata;
mod namespace;
mod node;
mod node_pool;
mod object;
mod pod;
mod quantity;
mod selector;
mod tainted_node;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod user;
mod watch;

use std::sync::{Mutex, PoisonError};

use std::time::SystemTime;

use http::header::{ACCEPT, CONTENT_TYPE, DATE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::Config;
use serde::de::DeserializeOwned;
use tokio::time::{Duration, Instant, timeout};
use zeroize::Zeroizing;

use tolerarch_support::environment::Environment;

pub use caller::{Caller, ConnectError};
pub use event::{EventType, PodEvent};
pub use lease::{Lease, LeaseName, StoredLease, micro_time};
pub use metadata::or_default;
pub use namespace::Namespace;
pub use node::{Node, Taint};
pub use node_pool::{NodePool, Requirement};
pub use pod::{ContainerStatus, Owner, Phase, Requests, StoredPod, Terminated, Waiting};
pub use quantity::{Quantity, QuantityError};
pub use selector::Selector;
pub use tainted_node::{TAINTS_KEY, TaintedNode};
pub use user::{Page, RequestError, UserClient};
pub use watch::{Change, Known, Selection, UnreadMetrics, Watcher};

/// How long an answer may take in all.
const TIME: Duration = Duration::from_secs(3);
/// Bytes of an answer. A Secret may have 1 MiB; one with credentials for registries has a few kilobytes, which may be there
/// twice (kubectl's annotation).
const BODY: usize = 512 << 10;
/// How long an API server that did not answer is not asked, so that no Pod waits for it in the meantime.
const REST: Duration = Duration::from_secs(15);
/// How an object comes back without what is in it.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Longest name of an object (RFC 1123, as Kubernetes checks names).
const NAME: usize = 253;

/// The MutatingWebhookConfiguration of the manifests. API servers call webhooks in the order of these names.
pub const WEBHOOK_CONFIGURATION: &str = "zz-tolerarch";

/// Why something was not read. Never quotes an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ClusterError {
    /// No such object.
    #[error("not found")]
    NotFound,
    /// The service account has no right to read it.
    #[error("forbidden")]
    Forbidden,
    /// The API server does not know the service account.
    #[error("unauthorized")]
    Unauthorized,
    /// No answer in time.
    #[error("timeout")]
    Timeout,
    /// No connection, or a broken one.
    #[error("unreachable")]
    Unreachable,
    /// It did not answer a moment ago, and is not asked now.
    #[error("not asked, as it did not answer a moment ago")]
    Resting,
    /// A status that means neither yes nor no.
    #[error("unexpected status")]
    Status,
    /// More bytes than are read.
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
    /// The change cannot be made: it does not apply, or what comes of it is not valid.
    #[error("invalid")]
    Invalid,
}

/// What was read, and when by the API server's clock, where it says so.
#[derive(Debug)]
pub struct Answer<T> {
    pub object: T,
    /// The clock.
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

    /// As it stands in a path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A client of the cluster's API server.
pub struct Cluster {
    config: Config,
    client: Mutex<Client>,
    time: Duration,
    /// Since when it does not answer.
    silent: Mutex<Option<Instant>>,
}

impl Cluster {
    /// As the one on whose behalf it is. Needs the runtime.
    ///
    /// # Errors
    /// Nothing says where the API server is and as whom to ask it, or that cannot be used.
    pub fn of(caller: Caller, environment: &Environment) -> Result<Self, ConnectError> {
        Self::new(caller.config(environment)?, TIME)
    }

    /// With another configuration and another limits.
    pub(crate) fn new(mut config: Config, time: Duration) -> Result<Self, ConnectError> {
        // Callers have no time for retries and their pauses.
        config.default_retry = false;
        config.connect_timeout = Some(time);
        // Those of a connection count while it rests; each request has a deadline of its own.
        config.read_timeout = None;
        config.write_timeout = None;
        let client = Client::try_from(config.clone()).map_err(ConnectError::Client)?;
        Ok(Self { config, client: Mutex::new(client), time, silent: Mutex::default() })
    }

    /// With a client that leads to no server.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_client(client: Client, time: Duration) -> Self {
        let config = Config::new(http::Uri::from_static("http://localhost"));
        Self { config, client: Mutex::new(client), time, silent: Mutex::default() }
    }

    /// Reads one Secret, by its name.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn secret<T: DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<T, ClusterError> {
        // Both are untrusted input: names of pull secrets are checked after admission.
        if !is_label(namespace) || !is_name(name) {
            return Err(ClusterError::Name);
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let silent = || self.silent.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Reads one object for a background task, and asks even if there was no answer a moment ago. `path` has
    /// been checked.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, ClusterError> {
        let Answer { object: body, date } = self.bounded(|| request(Method::GET, path, None)).await?;
        let object = serde_json::from_slice(&body).map_err(|_| ClusterError::Malformed)?;
        Ok(Answer { object, date })
    }

    /// Changes one object. What comes back is not looked at.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn patch(
        &self,
        path: &str,
        r#type: PatchType,
        patch: &serde_json::Value,
    ) -> Result<(), ClusterError> {
        let path = format!("{path}?fieldManager=tolerarch");
        let patch = patch.to_string();
        self.bounded(|| request(Method::PATCH, &path, Some((r#type.media_type(), &patch)))).await.map(drop)
    }

    /// Creates one object in a list. What comes back is not looked at.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] where there is one by this name already; see [`ClusterError`].
    pub async fn create(&self, list: &str, object: &serde_json::Value) -> Result<(), ClusterError> {
        let path = format!("{list}?fieldManager=tolerarch");
        let object = object.to_string();
        let made = || request(Method::POST, &path, Some(("application/json", &object)));
        self.bounded(made).await.map(drop)
    }

    /// The last line that a container of a Pod has written, or its first KiB; of the run before the present one where
    /// `previous` says so. Untrusted text.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn last_line(
        &self,
        pod: &StoredPod,
        container: &str,
        previous: bool,
    ) -> Result<String, ClusterError> {
        let path = log_path(pod, container, previous);
        let logged = || {
            let request = Request::builder().uri(&path).header(ACCEPT, "text/plain, */*");
            request.body(Body::empty()).map_err(|_| ClusterError::Name)
        };
        let Answer { object: line, .. } = self.bounded(logged).await?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Whether there is a right to get this; `None` where nobody says so.
    pub async fn may_get(&self, path: &str) -> Option<bool> {
        match self.bounded(|| request(Method::GET, path, None)).await {
            Err(ClusterError::Forbidden | ClusterError::Unauthorized) => Some(false),
            Err(ClusterError::Timeout | ClusterError::Unreachable | ClusterError::Resting) => None,
            _ => Some(true),
        }
    }

    async fn bounded(
        &self,
        request: impl Fn() -> Result<Request<Body>, ClusterError>,
    ) -> Result<Answer<Zeroizing<Vec<u8>>>, ClusterError> {
        timeout(self.time, self.send(request)).await.unwrap_or(Err(ClusterError::Timeout))
    }

    async fn send(
        &self,
        request: impl Fn() -> Result<Request<Body>, ClusterError>,
    ) -> Result<Answer<Zeroizing<Vec<u8>>>, ClusterError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ask(&client, request()?).await {
            Err(ClusterError::Unauthorized) => {}
            answer => return answer,
        }
        // kube reads the token once a minute; one that was replaced earlier is refused until then.
        let client = Client::try_from(self.config.clone()).map_err(|_| ClusterError::Unauthorized)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client.clone();
        ask(&client, request()?).await
    }
}

/// The path of the last line that a container has written.
pub fn log_path(pod: &StoredPod, container: &str, previous: bool) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("container", container)
        .append_pair("previous", if previous { "true" } else { "false" })
        .append_pair("tailLines", "1")
        .append_pair("limitBytes", "1024")
        .finish();
    format!("/api/v1/namespaces/{}/pods/{}/log?{query}", pod.namespace(), pod.name())
}

fn request(method: Method, path: &str, change: Option<(&str, &str)>) -> Result<Request<Body>, ClusterError> {
    // What comes back of a change is not looked at, and a Pod may be large.
    let accepted = if change.is_some() { METADATA } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header(ACCEPT, accepted);
    let request = match change {
        Some((media_type, body)) => {
            request.header(CONTENT_TYPE, media_type).body(body.as_bytes().to_vec().into())
        }
        None => request.body(Body::empty()),
    };
    request.map_err(|_| ClusterError::Name)
}

async fn ask(client: &Client, request: Request<Body>) -> Result<Answer<Zeroizing<Vec<u8>>>, ClusterError> {
    let answer = client.send(request).await.map_err(|_| ClusterError::Unreachable)?;
    match answer.status() {
        StatusCode::OK | StatusCode::CREATED => {}
        StatusCode::UNAUTHORIZED => return Err(ClusterError::Unauthorized),
        StatusCode::FORBIDDEN => return Err(ClusterError::Forbidden),
        StatusCode::NOT_FOUND => return Err(ClusterError::NotFound),
        StatusCode::CONFLICT => return Err(ClusterError::Conflict),
        StatusCode::UNPROCESSABLE_ENTITY => return Err(ClusterError::Invalid),
        _ => return Err(ClusterError::Status),
    }
    let date =
        answer.headers().get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    match Limited::new(answer.into_body(), BODY).collect().await {
        Ok(body) => Ok(Answer { object: body.to_bytes().to_vec().into(), date }),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(ClusterError::TooLarge),
        Err(_) => Err(ClusterError::Unreachable),
    }
}

/// A DNS subdomain, as Kubernetes wants the names of most objects. No name is a step of a path.
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.len() <= NAME
        && bytes.first().copied().is_some_and(plain)
        && bytes.last().copied().is_some_and(plain)
        && bytes.iter().all(|&b| plain(b) || b == b'-')
}

#[cfg(test)]
mod tests;
