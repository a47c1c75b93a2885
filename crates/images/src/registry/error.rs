//! Reasons why a lookup failed, and their consequences. No error text quotes what a registry sent, except for the names
//! of hosts.

use std::borrow::Cow;
use std::time::Duration;

use super::manifest::ManifestError;
use super::target::Target;
use tolerarch_core::image::{LookupError, PlatformSet};

/// What a failure says about the registry, the image and the credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureClass {
    /// This credential may not read the image; another one may.
    Refused,
    /// There is no such image, or none that this credential may see.
    Missing,
    /// No node can run the image: the registry gave a definite answer, or all of the registry's addresses are
    /// forbidden.
    Unusable,
    /// The answer means neither yes nor no.
    Unclear,
    /// A server failed: no answer in time, no connection, or a status of 500 or above.
    Fault(Target),
    /// No request was sent to the registry, so the failure says nothing about it.
    NotSent,
    /// The source of the credential gave none. No request was sent, and the next candidate is tried.
    NoCredential,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// 404: no such repository or manifest, or none that the credential may see.
    #[error("not found: the registry has no such manifest")]
    NotFound,
    /// 401 or 403, from the registry or its token server.
    #[error("denied: {0}")]
    Denied(Cow<'static, str>),
    /// The credential's source gave none that can be sent: a program returned none or failed, or a token cannot be the
    /// value of an HTTP header.
    #[error("denied: the source of the credential gave none that can be used for the image")]
    NoCredential,
    /// The registry names a token server to which its credential, or the client certificate that is configured for that
    /// server, must not be sent.
    #[error(
        "the registry names {host:?} as its token server; if that is right, set {}",
        token_hosts(registry, host)
    )]
    TokenHost { registry: String, host: String },
    /// 429, with the time of `Retry-After`.
    #[error("throttled: the registry limits requests{}", .0.map_or_else(String::new, retry_after))]
    Throttled(Option<Duration>),
    #[error("timed out: no answer within lookup.timeout")]
    Timeout,
    /// No connection to the endpoint, or to the target of its redirect.
    #[error("failed: {0}")]
    NoConnection(String),
    /// The TLS settings of the host cannot be used, so no request was sent.
    #[error("failed: {0}")]
    TlsSetup(String),
    /// A broken connection, a status of 500 or above, or no connection to a token server at another origin.
    #[error("failed: {0}")]
    Unreachable(String),
    /// A reused connection that ended before the first byte of the answer.
    #[error("failed: {0}")]
    Closed(String),
    /// A status or a redirect that means neither yes nor no.
    #[error("failed: {0}")]
    Unexpected(String),
    /// A registry named the server, which already gets as many requests as it may: for this tenant, or in total.
    #[error("not asked: too many concurrent requests to this server")]
    Crowded,
    #[error("the configuration does not allow it (see registries.allow, registries.deny)")]
    NotAllowed,
    #[error("every address of the host is forbidden (see network.allow)")]
    AddressNotAllowed,
    /// The registry redirected the request to another host (truncated, ASCII), where it failed.
    #[error("{registry} redirects to {host}: {cause}")]
    Redirected {
        registry: String,
        host: String,
        cause: Box<Error>,
    },
    /// The entries of the index that nodes of the platforms `unknown` choose could not be looked up.
    #[error("{cause}; so it is unknown for {unknown}")]
    Partial {
        runs: PlatformSet,
        unknown: PlatformSet,
        cause: Box<Error>,
    },
    #[error("the registry's answer is no image: {0}")]
    BadManifest(#[from] ManifestError),
}

impl Error {
    /// Returns the innermost error, without the host or the platforms that it concerns.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Redirected { cause, .. } | Self::Partial { cause, .. } => cause.cause(),
            error => error,
        }
    }

    /// Classifies the failure. The class alone decides the consequences.
    pub(crate) fn class(&self) -> FailureClass {
        match self {
            Self::Denied(_) | Self::TokenHost { .. } => FailureClass::Refused,
            Self::NoCredential => FailureClass::NoCredential,
            Self::NotFound => FailureClass::Missing,
            Self::BadManifest(_) | Self::AddressNotAllowed => FailureClass::Unusable,
            Self::Throttled(_) | Self::Unexpected(_) => FailureClass::Unclear,
            Self::Timeout | Self::NoConnection(_) | Self::Closed(_) | Self::Unreachable(_) => {
                FailureClass::Fault(Target::Registry)
            }
            Self::TlsSetup(_) | Self::Crowded | Self::NotAllowed => FailureClass::NotSent,
            Self::Redirected { cause, .. } => match cause.class() {
                FailureClass::Fault(_) => FailureClass::Fault(Target::RedirectTarget),
                // The redirect was the registry's answer.
                FailureClass::NotSent => FailureClass::Unclear,
                class => class,
            },
            // The registry served the index, so it works.
            Self::Partial { cause, .. } => match cause.class() {
                FailureClass::Fault(_) | FailureClass::NotSent => FailureClass::Unclear,
                class => class,
            },
        }
    }

    /// Returns the server that caused the failure, by its answer or by giving none.
    pub(crate) fn target(&self) -> Target {
        match self {
            Self::Redirected { .. } => Target::RedirectTarget,
            Self::Partial { cause, .. } => cause.target(),
            _ => Target::Registry,
        }
    }
}

impl FailureClass {
    /// Returns whether the failure concerns one credential only, so that the next one is tried.
    pub(crate) fn is_of_credential(self) -> bool {
        matches!(self, Self::Refused | Self::Missing | Self::NoCredential)
    }

    /// Returns whether the registry gave a definite answer about the image.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Self::Refused | Self::Missing | Self::Unusable)
    }

    /// Returns whether the failure invalidates an older good answer. A 404 does not: caches (distribution 2.8, Harbor)
    /// also answer 404 if the registry behind them fails, and nodes that still have the image have the older one.
    pub(crate) fn ends_older_answers(self) -> bool {
        matches!(self, Self::Refused | Self::Unusable)
    }

    /// Returns whether no request was sent.
    pub(crate) fn is_unsent(self) -> bool {
        matches!(self, Self::NotSent | Self::NoCredential)
    }

    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::Fault(_))
    }
}

/// The only translation of a registry's failure into the core's error.
impl From<&Error> for LookupError {
    fn from(error: &Error) -> Self {
        match error {
            Error::NotFound => Self::NotFound,
            Error::Denied(_) | Error::NoCredential | Error::TokenHost { .. } => Self::Denied,
            Error::Throttled(_) => Self::Throttled,
            Error::Timeout => Self::Timeout,
            Error::NoConnection(_)
            | Error::TlsSetup(_)
            | Error::Closed(_)
            | Error::Unreachable(_)
            | Error::Unexpected(_) => Self::Unreachable,
            Error::Crowded => Self::Overloaded,
            Error::NotAllowed => Self::NotAllowed,
            Error::AddressNotAllowed => Self::AddressNotAllowed,
            Error::BadManifest(_) => Self::BadManifest,
            Error::Redirected { cause, .. } | Error::Partial { cause, .. } => (&**cause).into(),
        }
    }
}

fn retry_after(time: Duration) -> String {
    format!("; retry after {} s", time.as_secs())
}

/// Returns the configuration that allows this registry to name that host.
pub(super) fn token_hosts(registry: &str, host: &str) -> String {
    // In YAML the brackets of an IPv6 address would begin a list.
    let host = if host.starts_with('[') {
        format!("{host:?}")
    } else {
        host.to_owned()
    };
    format!("registries.hosts.{registry:?}.tokenHosts: [{host}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_after_redirect_or_index_is_unclear() {
        let not_sent = || {
            [
                Error::Crowded,
                Error::NotAllowed,
                Error::TlsSetup(String::new()),
            ]
        };
        for error in not_sent() {
            assert_eq!(error.class(), FailureClass::NotSent);
        }
        for cause in not_sent() {
            let redirected = Error::Redirected {
                registry: String::new(),
                host: String::new(),
                cause: Box::new(cause),
            };
            assert_eq!(redirected.class(), FailureClass::Unclear);
        }
        for (cause, class) in [
            (Error::Crowded, FailureClass::Unclear),
            (Error::Timeout, FailureClass::Unclear),
            (Error::NotFound, FailureClass::Missing),
        ] {
            let partial = Error::Partial {
                runs: PlatformSet::default(),
                unknown: PlatformSet::default(),
                cause: Box::new(cause),
            };
            assert_eq!(partial.class(), class);
        }
    }
}
