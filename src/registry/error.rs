//! Why a lookup failed, and what that implies. No text quotes what a registry sent.

use std::borrow::Cow;
use std::time::Duration;

use super::manifest::ManifestError;
use super::net::RequestError;

/// Why a lookup failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// 404: no such repository or manifest, or none that the credential may see.
    #[error("not found: the registry has no such manifest")]
    NotFound,
    /// 401 or 403, of the registry or its token server.
    #[error("denied: {0}")]
    Denied(Cow<'static, str>),
    /// Its tokens come from a host that may get neither its credentials nor what the operator configured for that host.
    #[error(
        "the registry names {host:?} as its token server; if that is right, list it in registries.hosts.{registry:?}.tokenHosts"
    )]
    TokenHost {
        /// The registry, as the configuration names it.
        registry: String,
        /// The host that it names.
        host: String,
    },
    /// 429, with what `Retry-After` says.
    #[error("throttled: the registry limits requests{}", .0.map_or_else(String::new, |time| format!("; retry after {} s", time.as_secs())))]
    Throttled(Option<Duration>),
    /// No answer in time.
    #[error("timed out: no answer within lookup.timeout")]
    Timeout,
    /// No connection, a broken one, or a status of 500 or above.
    #[error("failed: {0}")]
    Unreachable(String),
    /// A status or a redirect that means neither yes nor no.
    #[error("failed: {0}")]
    Unexpected(String),
    /// The configuration does not allow asking this registry for this image.
    #[error("the configuration does not allow it (see registries.allow, registries.deny)")]
    NotAllowed,
    /// The address guard denies every address of a host.
    #[error("every address of the host is forbidden (see network.allow)")]
    AddressNotAllowed,
    /// The answer is not an image.
    #[error("the registry's answer is no image: {0}")]
    BadManifest(#[from] ManifestError),
}

impl Error {
    /// Whether the registry failed, which counts towards opening its circuit.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Timeout | Self::Unreachable(_))
    }

    /// Whether the registry gave a definite answer about the image, which an earlier good answer must not hide.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::NotFound | Self::BadManifest(_) | Self::AddressNotAllowed) || self.is_refusal()
    }

    /// Whether the registry refuses the credential.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::TokenHost { .. })
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Forbidden => Self::AddressNotAllowed,
            RequestError::NoConnection(cause) => Self::Unreachable(format!("no connection: {cause}")),
            RequestError::Broken(cause) => Self::Unreachable(format!("the connection broke: {cause}")),
            RequestError::TooLarge => ManifestError::TooLarge.into(),
            RequestError::Crowded => {
                Self::Unexpected("the answer was too large or slow while memory was needed for others".into())
            }
            RequestError::Encoding => ManifestError::Encoding.into(),
        }
    }
}
