//! Reasons why a lookup failed, and their consequences. No text quotes what a registry sent.

use std::borrow::Cow;
use std::time::Duration;

use super::manifest::ManifestError;
use tolerarch_core::image::PlatformSet;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// 404: no such repository or manifest, or none that the credential may see.
    #[error("not found: the registry has no such manifest")]
    NotFound,
    /// 401 or 403, of the registry or its token server.
    #[error("denied: {0}")]
    Denied(Cow<'static, str>),
    /// Tokens come from a host that may get neither the registry's credentials nor what is configured for that host.
    #[error(
        "the registry names {host:?} as its token server; if that is right, set {}",
        token_hosts(registry, host)
    )]
    TokenHost { registry: String, host: String },
    /// 429, with the time of `Retry-After`.
    #[error("throttled: the registry limits requests{}", .0.map_or_else(String::new, |time| format!("; retry after {} s", time.as_secs())))]
    Throttled(Option<Duration>),
    #[error("timed out: no answer within lookup.timeout")]
    Timeout,
    #[error("failed: {0}")]
    NoConnection(String),
    /// The TLS settings of the host cannot be used, so that no request was sent.
    #[error("failed: {0}")]
    TlsSetup(String),
    /// A broken connection, or a status of 500 or above.
    #[error("failed: {0}")]
    Unreachable(String),
    /// A kept connection that ended before the first byte of the answer.
    #[error("failed: {0}")]
    Closed(String),
    /// A status or a redirect that means neither yes nor no.
    #[error("failed: {0}")]
    Unexpected(String),
    #[error("the configuration does not allow it (see registries.allow, registries.deny)")]
    NotAllowed,
    #[error("every address of the host is forbidden (see network.allow)")]
    AddressNotAllowed,
    /// The registry redirected the request to another host (truncated, ASCII), which failed so.
    #[error("{registry} redirects to {host}: {cause}")]
    Redirected { registry: String, host: String, cause: Box<Error> },
    /// Entries of the index that nodes of these platforms choose could not be looked up.
    #[error("{cause}; so it is unknown for {unknown}")]
    Partly { runs: PlatformSet, unknown: PlatformSet, cause: Box<Error> },
    #[error("the registry's answer is no image: {0}")]
    BadManifest(#[from] ManifestError),
}

impl Error {
    /// Returns the innermost error, at whatever host and entry.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Redirected { cause, .. } | Self::Partly { cause, .. } => cause.cause(),
            error => error,
        }
    }

    /// Returns whether the registry failed, which counts for its circuit. A registry that gave an index works.
    pub(crate) fn is_fault(&self) -> bool {
        use Error::{Closed, NoConnection, Partly, Timeout, Unreachable};
        let is_fault = matches!(self.cause(), Timeout | NoConnection(_) | Closed(_) | Unreachable(_));
        is_fault && !matches!(self, Partly { .. })
    }

    /// Returns whether the registry gave a definite answer about the image.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.cause(), Self::NotFound | Self::BadManifest(_) | Self::AddressNotAllowed)
            || self.is_refusal()
    }

    /// Returns whether an older good answer is invalid now. An older answer outlives a 404: caches (distribution 2.8,
    /// Harbor) say 404, too, if the registry behind them fails; and nodes that still have the image have the older one.
    pub(crate) fn ends_older_answers(&self) -> bool {
        self.is_answer() && !matches!(self.cause(), Self::NotFound)
    }

    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.cause(), Self::Denied(_) | Self::TokenHost { .. })
    }
}

/// Returns the configuration that lets this registry name that host.
pub(super) fn token_hosts(registry: &str, host: &str) -> String {
    // The brackets of an IPv6 address would be a list in YAML.
    let host = if host.starts_with('[') { format!("{host:?}") } else { host.to_owned() };
    format!("registries.hosts.{registry:?}.tokenHosts: [{host}]")
}
