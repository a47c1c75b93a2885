//! Why the API server did not do what a command asked for.

use std::error::Error;
use std::iter::successors;
use std::{fmt, io};

use http::StatusCode;
use serde::Deserialize;

use super::TIME;
use crate::cluster::list::PageError;

/// Characters of what an API server said that are told.
const SHOWN: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("{message} ({status})")]
    Refused {
        status: u16,
        /// What it said: untrusted text.
        message: String,
    },
    #[error("no answer from the API server {0} within {time} s", time = TIME.as_secs())]
    Timeout(Box<Server>),
    /// No connection, or a broken one.
    #[error("cannot reach the API server {0}: {1}")]
    Unreachable(Box<Server>, String),
    /// The answer broke off, or is too large.
    #[error("the answer cannot be read")]
    Body,
    #[error("the answer is not what it should be: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("an object of the list is too large")]
    TooLarge,
    #[error("not a path of the API")]
    Path,
}

/// Which API server is asked: `https://10.0.0.1:443 (context "prod")`.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) address: String,
    /// Empty without a kubeconfig.
    pub(super) context: String,
}

impl Server {
    pub(super) fn late(&self) -> RequestError {
        RequestError::Timeout(self.clone().into())
    }

    pub(super) fn unreachable(&self, error: &kube::Error) -> RequestError {
        RequestError::Unreachable(self.clone().into(), cause(error))
    }

    pub(super) fn failed(&self, error: PageError) -> RequestError {
        match error {
            PageError::Path => RequestError::Path,
            PageError::Client(error) => self.unreachable(&error),
            PageError::Broken => RequestError::Body,
            PageError::TooLarge => RequestError::TooLarge,
            PageError::Malformed(error) => RequestError::Malformed(error),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        if self.context.is_empty() { Ok(()) } else { write!(f, " (context {:?})", self.context) }
    }
}

impl RequestError {
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { status: 403, .. })
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// What the API server said instead of success.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> RequestError {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let text = match serde_json::from_slice::<Status>(body) {
        Ok(status) => status.message,
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    RequestError::Refused { status: status.as_u16(), message: text.chars().take(SHOWN).collect() }
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
