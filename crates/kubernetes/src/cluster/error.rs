//! Errors of requests to the API server: detailed for the commands, one word for the services.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::config::InClusterError;

use super::access::PluginError;

/// Maximum characters of the API server's message in an error.
const MESSAGE: usize = 500;

/// Reason why the Kubernetes API cannot be reached at all. Each text includes its causes.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no service account is mounted here (automountServiceAccountToken): {0}")]
    ServiceAccount(InClusterError),
    /// The files that were tried, and the reason why there is no service account.
    #[error(
        "no current context in a kubeconfig ({0}), and no service account is mounted here: {1}"
    )]
    NoContext(String, InClusterError),
    #[error("{file} is not a kubeconfig: {1}", file = .0.display())]
    NoKubeconfig(PathBuf, String),
    #[error("the kubeconfig cannot be used: {0}")]
    Unusable(String),
    /// A file of the kubeconfig, or one that it names.
    #[error("the kubeconfig cannot be used: {file} cannot be read: {1}", file = .0.display())]
    File(PathBuf, io::Error),
    #[error("the kubeconfig cannot be used: its certificate-authority holds no certificate in PEM")]
    Authority,
    #[error("the kubeconfig cannot be used: its client-certificate holds no certificate in PEM")]
    Certificate,
    #[error(
        "the kubeconfig cannot be used: its client-key holds no private key in PEM, or an encrypted one"
    )]
    Key,
    /// The program, and the reason why it gives no credentials.
    #[error("the kubeconfig's program {0} gives no credentials: {1}")]
    Plugin(String, PluginError),
    #[error("no client of the Kubernetes API can be made with these settings: {0}")]
    Client(kube::Error),
}

/// Reason why an object was not read or changed. Never quotes a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ClusterError {
    /// No such object, or no such kind.
    #[error("not found")]
    NotFound,
    #[error("forbidden")]
    Forbidden,
    /// The API server refuses the credentials.
    #[error("unauthorized")]
    Unauthorized,
    #[error("timeout")]
    Timeout,
    /// No connection, a broken connection, or no token to send: the kubelet may write a valid token in a moment.
    #[error("unreachable")]
    Unreachable,
    #[error("not requested, as the API server did not answer a moment ago")]
    Resting,
    /// A status that is neither success nor an error of this list.
    #[error("unexpected status")]
    Status,
    #[error("too large")]
    TooLarge,
    /// A response that is not the expected JSON.
    #[error("malformed")]
    Malformed,
    /// A name that no object can have; it must not become part of a path.
    #[error("invalid name")]
    Name,
    /// The object has changed since it was read, or exists already.
    #[error("conflict")]
    Conflict,
    /// The API server cannot continue a list or a watch at this position any more.
    #[error("expired")]
    Expired,
    /// The change does not apply, or its result is not valid.
    #[error("invalid")]
    Invalid,
}

impl ClusterError {
    pub(super) fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Expired,
            422 => Self::Invalid,
            _ => Self::Status,
        }
    }
}

impl From<RequestError> for ClusterError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused { status, .. } => Self::of_status(status),
            RequestError::Timeout(..) => Self::Timeout,
            RequestError::Unreachable(..) | RequestError::Body => Self::Unreachable,
            RequestError::Malformed(_) => Self::Malformed,
            RequestError::TooLarge => Self::TooLarge,
            RequestError::Path(_) => Self::Name,
        }
    }
}

/// Reason why a request failed, with a message for people.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{message} ({status})")]
    Refused {
        status: u16,
        /// The API server's message: untrusted text.
        message: String,
        /// Token to continue an expired list, with the objects that exist now.
        rest: Option<String>,
    },
    #[error("no answer from the API server {0} within {time} s", time = .1.as_secs())]
    Timeout(Arc<str>, Duration),
    #[error("cannot reach the API server {0}: {cause}", cause = cause(.1))]
    Unreachable(Arc<str>, Box<kube::Error>),
    /// The response broke off.
    #[error("the answer cannot be read")]
    Body,
    #[error("the answer is not of the expected form: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the answer, or an object in it, is too large")]
    TooLarge,
    #[error("not a path of the API")]
    Path(#[from] http::Error),
}

impl RequestError {
    pub(super) fn refused(status: StatusCode, body: &[u8]) -> Self {
        let answer = serde_json::from_slice::<Status>(body).unwrap_or_default();
        let message = match answer.message {
            Some(message) => message,
            None => String::from_utf8_lossy(body).trim().to_owned(),
        };
        Self::Refused {
            status: status.as_u16(),
            message: message.chars().take(MESSAGE).collect(),
            rest: answer.metadata.continue_.filter(|token| !token.is_empty()),
        }
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { status: 403, .. })
    }

    /// Returns whether other requests would fail as well: the API server does not answer, or refuses the credentials.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Refused { status: 401, .. } | Self::Timeout(..) | Self::Unreachable(..)
        )
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// Returns the reason for a missing response: where the connection failed, the last cause, as the others add nothing.
fn cause(error: &kube::Error) -> String {
    let mut has_connect_error = false;
    let mut last = None;
    for cause in successors(error.source(), |&error| error.source()) {
        has_connect_error |= last.is_some_and(is_connect_error);
        last = Some(cause);
    }
    match last {
        Some(last) if has_connect_error => match last.downcast_ref::<io::Error>() {
            Some(system) if system.raw_os_error().is_some() => system.kind().to_string(),
            _ => last.to_string(),
        },
        _ => error.to_string(),
    }
}

fn is_connect_error(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<hyper_util::client::legacy::Error>() {
        Some(error) => error.is_connect(),
        None => false,
    }
}
