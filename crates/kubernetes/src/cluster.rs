//! Client of the Kubernetes API, with the credentials of a service account or of a kubeconfig. Each request has a
//! timeout.
//!
//! Of kube only the client is used: responses are read here, within a bound each.

mod access;
mod api;
mod daemon_set;
mod error;
mod event;
mod kinds;
mod kubeconfig;
mod later;
mod list;
mod metadata;
mod node;
mod node_class;
mod node_overlay;
mod node_pool;
mod owned;
mod pod;
mod quantity;
mod quota;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod user;
mod watch;
mod webhook;

use std::time::SystemTime;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderValue};
use http::request::Builder;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use zeroize::Zeroizing;

use access::Access;
use api::{Api, JSON, read_all, require_success, with_query};
use list::OBJECT;
use tolerarch_support::environment::Environment;
use tolerarch_support::sync::Mutex;

pub use access::PluginError;
pub use daemon_set::DaemonSet;
pub use error::{ClusterError, ConnectError, RequestError};
pub use event::{EventKind, ObjectEvent};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
pub use kinds::{KindName, NoSuchKind, ServedKind, ServedKinds};
pub use kubeconfig::Caller;
pub use metadata::{Lifetime, Metadata, Namespace, or_default};
pub use node::{Node, TAINTS_KEY, Taint};
pub use node_class::NodeClass;
pub use node_overlay::{NodeOverlay, Price};
pub use node_pool::{NodeClassRef, NodePool};
pub use owned::{ConfigMap, Lease, LeaseSpec, MicroTime, OwnedName, RECORD, micro_time, record};
pub use pod::{ContainerStatus, Phase, Requests, StoredPod};
pub use quantity::Quantity;
pub use quota::{ResourceQuota, Shortage};
pub use tolerarch_core::pod::is_name;
pub use user::UserClient;
pub use watch::{Change, ObjectStore, WatchedKind, Watcher, unread_objects};
pub use webhook::{Scope, Webhook, WebhookCall, WebhookConfiguration, covers};

/// Timeout of a whole request.
const TIME: Duration = Duration::from_secs(3);
/// Time within which a request of a background task is sent again if the API server requests a pause. A Lease lasts
/// longer, and reads of a Lease end earlier.
const PATIENCE: Duration = Duration::from_secs(8);
/// Maximum bytes of a response. A pull secret has a few KB, or twice that (kubectl's annotation); its maximum is 1 MiB.
const BODY: usize = 512 << 10;
/// Back-off after a request for a Secret without an answer: no Secret is requested in this time, so that no Pod waits.
const REST: Duration = Duration::from_secs(15);
/// Media type for the metadata of an object only.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Name of the MutatingWebhookConfiguration in the manifests. API servers call webhooks in the order of these names.
pub const WEBHOOK_CONFIGURATION: &str = "zz-tolerarch";

/// An object, and the API server's time, if its response has a `Date` header.
#[derive(Debug)]
pub struct Answer<T> {
    pub object: T,
    pub date: Option<SystemTime>,
}

/// Media type of a patch.
#[derive(Clone, Copy, Debug)]
pub struct PatchType(&'static str);

impl PatchType {
    /// JSON Patch (RFC 6902).
    pub const JSON: Self = Self("application/json-patch+json");
    /// JSON Merge Patch (RFC 7386).
    pub const MERGE: Self = Self("application/merge-patch+json");
    /// Server-side apply, which also creates the object.
    pub const APPLY: Self = Self("application/apply-patch+yaml");
}

/// Valid name of an object to which the configuration refers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName(String);

impl ObjectName {
    /// Checks the name; `None` if no object can have it.
    pub fn new(name: &str) -> Option<Self> {
        if is_name(name) {
            Some(Self(name.to_owned()))
        } else {
            None
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        Self(format!("{}{suffix}", self.0))
    }
}

pub struct Cluster {
    api: Api,
    /// Time of the last request for a Secret without an answer.
    unanswered: Mutex<Option<Instant>>,
}

impl Cluster {
    /// Connects with the caller's credentials. Must be called inside a Tokio runtime.
    pub fn of(caller: Caller, environment: &Environment) -> Result<Self, ConnectError> {
        Self::new(caller.access(environment)?, TIME)
    }

    pub(crate) fn new(access: impl Into<Access>, time: Duration) -> Result<Self, ConnectError> {
        Ok(Self {
            api: Api::new(access.into(), time, PATIENCE)?,
            unanswered: Mutex::default(),
        })
    }

    pub async fn secret<T: DeserializeOwned>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<T, ClusterError> {
        // Both names are untrusted input: the API server validates names of pull secrets after admission.
        if !is_name(namespace) || !is_name(name) {
            return Err(ClusterError::Name);
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let unanswered = *self.unanswered.lock();
        if unanswered.is_some_and(|time| time.elapsed() < REST) {
            return Err(ClusterError::Resting);
        }
        let request = Request::get(&path).header(ACCEPT, JSON);
        // A review waits for the Secret, so the request is not sent again.
        let answer = async {
            let answer = self
                .api
                .send_with_renewal(request.body(Vec::new())?)
                .await?;
            let answer = require_success(answer).await?;
            read_all(answer.into_body(), BODY).await
        };
        match self.api.in_time(answer).await.map_err(ClusterError::from) {
            Ok(answer) => {
                let answer = Zeroizing::new(answer);
                serde_json::from_slice(&answer).map_err(|_| ClusterError::Malformed)
            }
            Err(error) => {
                if matches!(error, ClusterError::Timeout | ClusterError::Unreachable) {
                    *self.unanswered.lock() = Some(Instant::now());
                }
                Err(error)
            }
        }
    }

    /// Returns the namespace of the service account, or of the kubeconfig.
    pub fn namespace(&self) -> &str {
        self.api.namespace()
    }

    /// Reads one object for a background task, even during a back-off. The caller has checked `path`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, ClusterError> {
        self.get_within(path, BODY).await
    }

    /// Reads an object that tolerarch manages, of any size: nobody can make it too large to be repaired.
    pub async fn get_managed<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Answer<T>, ClusterError> {
        self.get_within(path, OBJECT).await
    }

    /// Reads one object of at most `limit` bytes.
    async fn get_within<T: DeserializeOwned>(
        &self,
        path: &str,
        limit: usize,
    ) -> Result<Answer<T>, ClusterError> {
        let request = Request::get(path).header(ACCEPT, JSON);
        let Answer { object: body, date } = self.send(request, Vec::new(), limit).await?;
        let object = serde_json::from_slice(&body).map_err(|_| ClusterError::Malformed)?;
        Ok(Answer { object, date })
    }

    pub async fn patch(
        &self,
        path: &str,
        r#type: PatchType,
        patch: &Value,
    ) -> Result<(), ClusterError> {
        let request = Request::patch(managed(path)).header(CONTENT_TYPE, r#type.0);
        self.change(request, patch).await
    }

    /// Creates an object and ignores the returned one. [`ClusterError::Conflict`] if an object of this name exists.
    pub async fn create(&self, list: &str, object: &Value) -> Result<(), ClusterError> {
        let request = Request::post(managed(list)).header(CONTENT_TYPE, JSON);
        self.change(request, object).await
    }

    /// Deletes the object; [`ClusterError::Conflict`] if it has changed since this version.
    pub async fn delete(&self, path: &str, version: &str) -> Result<(), ClusterError> {
        let options = json!({"preconditions": {"resourceVersion": version}});
        let request = Request::delete(path).header(CONTENT_TYPE, JSON);
        self.change(request, &options).await
    }

    async fn change(&self, request: Builder, change: &Value) -> Result<(), ClusterError> {
        let request = request.header(ACCEPT, METADATA);
        // A Pod may be large, and the response is ignored.
        self.send(request, change.to_string().into(), OBJECT)
            .await?;
        Ok(())
    }

    /// Returns the last line of a container's log, or its first KiB; of the `previous` run if set. Untrusted text.
    pub async fn last_line(
        &self,
        pod: &StoredPod,
        container: &str,
        previous: bool,
    ) -> Result<String, ClusterError> {
        let namespace = pod.namespace();
        let pod = pod.name();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/log");
        let previous = if previous { "true" } else { "false" };
        let last = [
            ("container", container),
            ("previous", previous),
            ("tailLines", "1"),
            ("limitBytes", "1024"),
        ];
        let request = Request::get(with_query(&path, last)).header(ACCEPT, "text/plain, */*");
        let line = self.send(request, Vec::new(), BODY).await?.object;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    async fn send(
        &self,
        request: Builder,
        body: Vec<u8>,
        limit: usize,
    ) -> Result<Answer<Zeroizing<Vec<u8>>>, ClusterError> {
        let request = request.body(body).map_err(RequestError::from)?;
        let answer = self.api.send(request).await?;
        let answer = self.api.require_success(answer).await?;
        let date = match answer.headers().get(DATE).map(HeaderValue::to_str) {
            Some(Ok(date)) => httpdate::parse_http_date(date).ok(),
            _ => None,
        };
        let object = self.api.read_all(answer.into_body(), limit).await?;
        Ok(Answer {
            object: object.into(),
            date,
        })
    }
}

fn managed(path: &str) -> String {
    with_query(path, [("fieldManager", "tolerarch")])
}

#[cfg(test)]
mod tests;
