//! All that talks to the Kubernetes API: as the service account that is mounted, or as a person's kubeconfig says, so that
//! nobody waits for an API server that does not answer.
//!
//! The types of kube are not used for what comes back: its client reads bodies of any size, and logs those that it
//! cannot read.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::{Config, InClusterError, InferConfigError};
use serde::de::DeserializeOwned;
use tokio::time::{Duration, Instant, timeout};
use zeroize::Zeroizing;

/// How long an answer may take in all.
const TIME: Duration = Duration::from_secs(3);
/// Bytes of an answer. A Secret may have 1 MiB; one with credentials for registries has a few kilobytes, which may be there
/// twice (kubectl's annotation).
const BODY: usize = 512 << 10;
/// How long an API server that did not answer is not asked, so that no Pod waits for it in the meantime.
const REST: Duration = Duration::from_secs(15);
/// Longest name of an object (RFC 1123, as Kubernetes checks names).
const NAME: usize = 253;

/// On whose behalf the Kubernetes API is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The webhook, as the service account that is mounted into its Pod. Without one it does not start.
    Webhook,
    /// Whoever runs a command, as the kubeconfig says, else as the service account. Goes on without either.
    Person,
}

/// Why the Kubernetes API cannot be talked to at all. Each text is whole: the causes are in it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No service account is mounted, or this is no cluster.
    #[error("no service account is mounted here (automountServiceAccountToken): {0}")]
    ServiceAccount(InClusterError),
    /// There is no kubeconfig that can be used, nor a service account.
    #[error("no kubeconfig can be used here: {0}")]
    Kubeconfig(Box<InferConfigError>),
    /// Reading the kubeconfig has to wait for something.
    #[error("the kubeconfig cannot be read at once")]
    Waits,
    /// The client cannot be set up with it.
    #[error("what is to be used for the Kubernetes API is not right: {0}")]
    Client(kube::Error),
}

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
    pub fn of(caller: Caller) -> Result<Self, ConnectError> {
        let config = match caller {
            Caller::Webhook => Config::incluster().map_err(ConnectError::ServiceAccount)?,
            // Async by its signature only: it reads files, and waits for nothing.
            Caller::Person => Config::infer()
                .now_or_never()
                .ok_or(ConnectError::Waits)?
                .map_err(|error| ConnectError::Kubeconfig(error.into()))?,
        };
        Self::new(config, TIME)
    }

    /// With another configuration and another limits.
    pub(crate) fn new(mut config: Config, time: Duration) -> Result<Self, ConnectError> {
        // Retries and their pauses are of no use to whoever waits.
        config.default_retry = false;
        config.connect_timeout = Some(time);
        // Those of a connection count while it rests; each request has a deadline of its own.
        config.read_timeout = None;
        config.write_timeout = None;
        let client = Client::try_from(config.clone()).map_err(ConnectError::Client)?;
        Ok(Self { config, client: Mutex::new(client), time, silent: Mutex::default() })
    }

    /// Reads one Secret, by its name.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn secret<T: DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<T, ClusterError> {
        // Both come from strangers: names of pull secrets are checked after admission.
        if !is_label(namespace) || !is_name(name) {
            return Err(ClusterError::Name);
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let silent = || self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent().is_some_and(|since| since.elapsed() < REST) {
            return Err(ClusterError::Resting);
        }
        let body = timeout(self.time, self.get(&path)).await.unwrap_or(Err(ClusterError::Timeout));
        if matches!(body, Err(ClusterError::Timeout | ClusterError::Unreachable)) {
            *silent() = Some(Instant::now());
        }
        let body = body?;
        serde_json::from_slice(&body).map_err(|_| ClusterError::Malformed)
    }

    async fn get(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, ClusterError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ask(&client, path).await {
            Err(ClusterError::Unauthorized) => {}
            answer => return answer,
        }
        // kube reads the token once a minute; one that was replaced earlier is refused until then.
        let client = Client::try_from(self.config.clone()).map_err(|_| ClusterError::Unauthorized)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client.clone();
        ask(&client, path).await
    }
}

async fn ask(client: &Client, path: &str) -> Result<Zeroizing<Vec<u8>>, ClusterError> {
    let request = Request::get(path).header(http::header::ACCEPT, "application/json").body(Body::empty());
    let request = request.map_err(|_| ClusterError::Name)?;
    let answer = client.send(request).await.map_err(|_| ClusterError::Unreachable)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(ClusterError::Unauthorized),
        StatusCode::FORBIDDEN => return Err(ClusterError::Forbidden),
        StatusCode::NOT_FOUND => return Err(ClusterError::NotFound),
        _ => return Err(ClusterError::Status),
    }
    match Limited::new(answer.into_body(), BODY).collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec().into()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(ClusterError::TooLarge),
        Err(_) => Err(ClusterError::Unreachable),
    }
}

/// A DNS subdomain, as Kubernetes wants the names of most objects. No name is a step of a path.
pub(crate) fn is_name(name: &str) -> bool {
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
pub(crate) mod tests;
