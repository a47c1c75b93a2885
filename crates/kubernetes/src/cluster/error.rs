//! Why the API server cannot be asked, or did not do what it was asked for: in full for people, in a word for the services.

use std::error::Error;
use std::fmt;
use std::io;
use std::iter::successors;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::config::{InClusterError, KubeconfigError};

/// Characters of what an API server said that are told.
const SHOWN: usize = 500;

/// Why the Kubernetes API cannot be talked to at all. Each text is whole: the causes are in it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no service account is mounted here (automountServiceAccountToken): {0}")]
    ServiceAccount(InClusterError),
    /// Which files were looked for, and why there is no service account.
    #[error("no current context in a kubeconfig ({0}), and no service account is mounted here: {1}")]
    NoContext(String, InClusterError),
    #[error("{file} is not a kubeconfig: {1}", file = .0.display())]
    NoKubeconfig(PathBuf, String),
    #[error("the kubeconfig cannot be used: {0}")]
    Unusable(Box<KubeconfigError>),
    #[error("what is to be used for the Kubernetes API is not right: {0}")]
    Client(kube::Error),
}

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
    /// What a list or a watch is to go on from is no longer known.
    #[error("expired")]
    Expired,
    /// The change does not apply, or what comes of it is not valid.
    #[error("invalid")]
    Invalid,
}

impl ClusterError {
    /// What this status means, which is none of success.
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
            RequestError::Unreachable(_, error) if matches!(*error, kube::Error::Auth(_)) => {
                Self::Unauthorized
            }
            RequestError::Unreachable(..) | RequestError::Body => Self::Unreachable,
            RequestError::Malformed(_) => Self::Malformed,
            RequestError::TooLarge => Self::TooLarge,
            RequestError::Path => Self::Name,
        }
    }
}

/// Why a request failed, with a message for people.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{message} ({status})")]
    Refused {
        status: u16,
        /// What it said: untrusted text.
        message: String,
        /// How to go on with a list that has expired: with what there is by now.
        rest: Option<String>,
    },
    #[error("no answer from the API server {0} within {time} s", time = .1.as_secs())]
    Timeout(Arc<Server>, Duration),
    /// No connection, or a broken one.
    #[error("cannot reach the API server {0}: {cause}", cause = cause(.1))]
    Unreachable(Arc<Server>, Box<kube::Error>),
    /// The answer broke off.
    #[error("the answer cannot be read")]
    Body,
    #[error("the answer is not what it should be: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the answer, or an object of it, is too large")]
    TooLarge,
    #[error("not a path of the API")]
    Path,
}

impl RequestError {
    /// What the API server said instead of success.
    pub(super) fn refused(status: StatusCode, body: &[u8]) -> Self {
        let said = serde_json::from_slice::<Status>(body).unwrap_or_default();
        let message = said.message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
        Self::Refused {
            status: status.as_u16(),
            message: message.chars().take(SHOWN).collect(),
            rest: said.metadata.continue_.filter(|token| !token.is_empty()),
        }
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { status: 403, .. })
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// Which API server is asked: `https://10.0.0.1:443 (context "prod")`.
#[derive(Clone, Debug, Default)]
pub struct Server {
    pub(super) address: String,
    /// Empty without a kubeconfig.
    pub(super) context: String,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        if self.context.is_empty() { Ok(()) } else { write!(f, " (context {:?})", self.context) }
    }
}

/// Why there was no answer. Of a failed connection only the last of the causes says something.
fn cause(error: &kube::Error) -> String {
    let mut causes: Vec<&(dyn Error + 'static)> =
        successors(error.source(), |&error| error.source()).collect();
    let connect = |error: &&(dyn Error + 'static)| {
        error.downcast_ref::<hyper_util::client::legacy::Error>().is_some_and(|error| error.is_connect())
    };
    let last = causes.pop().filter(|_| causes.iter().any(connect));
    let system = last.and_then(|last| last.downcast_ref::<io::Error>());
    match (last, system.filter(|error| error.raw_os_error().is_some())) {
        (_, Some(error)) => error.kind().to_string(),
        (Some(last), None) => last.to_string(),
        (None, None) => error.to_string(),
    }
}
