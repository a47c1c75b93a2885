//! Reasons why the shared cache is not in use, with the remedy. They are derived from the server's answer, if there is
//! one.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};
use rustls::{Error as TlsError, InvalidMessage};

use super::settings::ServerUrl;
use tolerarch_support::health::State;

/// State before the first connection, and of a server that cannot be reached.
pub(super) const NOT_CONNECTED: &str =
    "no server answers; every replica asks the registries itself";
/// State after a connection has failed, until the next attempt gives the reason.
pub(super) const LOST: &str = "the last request failed; every replica asks the registries itself";

/// Reason why the shared cache is not in use.
pub(super) struct Fault {
    pub(super) state: State,
    /// The error, and what to change if there is a known remedy.
    pub(super) text: String,
}

/// Operation that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    Connect,
    /// A write that the server refused.
    Write,
    /// A write during which the connection ended.
    Lost,
}

/// File of `cache.shared` that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cache.shared.{setting}: {file}: {cause}")]
pub(super) struct UnusableFile {
    pub(super) setting: &'static str,
    pub(super) file: String,
    pub(super) cause: String,
}

/// TLS handshake without an answer: a server without TLS waits for the end of a line.
#[derive(Debug, thiserror::Error)]
#[error("the TLS handshake is not answered")]
pub(super) struct SilentHandshake;

impl Fault {
    pub(super) fn of(error: &RedisError, url: &ServerUrl, failed: Failed) -> Self {
        let mut cause = Cause::of(error, url);
        // The end of a connection that was in use says nothing about the URL.
        if cause == Some(Cause::Closed) && failed != Failed::Connect {
            cause = None;
        }
        let state = match (cause, failed) {
            (Some(cause), _) => cause.state(),
            (None, Failed::Write) => {
                "the server takes no writes, see the log; replicas share what is there already"
            }
            (None, _) if is_of_server(error) => {
                "the server answers with an error, see the log; every replica asks the registries itself"
            }
            (None, Failed::Connect) => NOT_CONNECTED,
            (None, Failed::Lost) => LOST,
        };
        // The library's error for an unreadable answer contains the answer's bytes, line by line.
        let mut text = match cause {
            Some(Cause::NoRedis) => "what answers is no Valkey or Redis".to_owned(),
            _ => error.to_string(),
        };
        if let Some(advice) = cause.and_then(|cause| cause.advice(url)) {
            text = format!("{text}; {advice}");
        }
        Self {
            state: State::Degraded(state),
            text,
        }
    }
}

/// Returns whether a server sent this error.
fn is_of_server(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed
    )
}

/// Reason, as a server's answer or a failed connection shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Cluster,
    NoCluster,
    ClusterDown,
    Password,
    ProtectedMode,
    Rights,
    Loading,
    ReadOnly,
    NoPrimary,
    Full,
    NotSaved,
    Clients,
    Command,
    Database,
    NoRedis,
    NoTls,
    Closed,
    Tls,
    File,
}

impl Cause {
    /// Returns the state, which names the remedy.
    fn state(self) -> &'static str {
        match self {
            Self::Cluster => {
                "the server belongs to a cluster: the URL of cache.shared has to begin with redis+cluster://"
            }
            Self::NoCluster => {
                "the server is no cluster: the URL of cache.shared has to begin with redis://"
            }
            Self::ClusterDown => "the cluster is down; every replica asks the registries itself",
            Self::Password => {
                "the server wants another user or password: see cache.shared.passwordFile and usernameFile"
            }
            Self::ProtectedMode => {
                "the server is in protected mode: it takes connections from its own host only"
            }
            Self::Rights => {
                "the user of cache.shared lacks rights: it needs GETRANGE, SET and DEL for keys with the prefix"
            }
            Self::Loading => {
                "the server is loading its data; every replica asks the registries itself"
            }
            Self::ReadOnly => {
                "the server takes no writes, as it is a replica; replicas share what is there already"
            }
            Self::NoPrimary => "the server is a replica that has lost its primary",
            Self::Full => {
                "the server takes no writes, as its memory is full; replicas share what is there already"
            }
            Self::NotSaved => {
                "the server takes no writes, as it cannot save them; replicas share what is there already"
            }
            Self::Clients => "the server takes no more connections: see maxclients there",
            Self::Command => {
                "the server does not know a command: it is a Sentinel, a proxy, or too old"
            }
            Self::Database => {
                "the server has no such database: see the end of the URL of cache.shared"
            }
            Self::NoRedis => {
                "what answers is no Valkey or Redis, or speaks TLS: see the URL of cache.shared"
            }
            Self::Closed => {
                "the server closes each connection: it may speak TLS, or take none from here; see the log"
            }
            Self::NoTls => {
                "the server does not speak TLS: the URL of cache.shared has to begin with redis://"
            }
            Self::Tls => {
                "the TLS handshake with the server fails: see cache.shared.caFile and the log"
            }
            Self::File => {
                "a file of cache.shared cannot be used, see the log; every replica asks the registries itself"
            }
        }
    }

    /// Returns what to change.
    fn advice(self, url: &ServerUrl) -> Option<String> {
        let tls = if url.tls { "s" } else { "" };
        let advice = match self {
            Self::Cluster => {
                return Some(format!(
                    "the server belongs to a cluster: write redis{tls}+cluster:// in cache.shared.url"
                ));
            }
            Self::NoCluster => {
                return Some(format!(
                    "the server is no cluster: write redis{tls}:// in cache.shared.url"
                ));
            }
            Self::NoRedis if !url.tls => {
                "see host and port of cache.shared.url; if it speaks TLS, write rediss://"
            }
            Self::NoRedis => "see host and port of cache.shared.url",
            Self::Closed if !url.tls => {
                "if it speaks TLS, write rediss:// in cache.shared.url; else see its log, and what \
                 is between"
            }
            Self::Closed => "see its log, and whether its port speaks TLS",
            _ => self.advice_for_any_url()?,
        };
        Some(advice.to_owned())
    }

    /// Returns what to change, where that does not depend on the URL.
    fn advice_for_any_url(self) -> Option<&'static str> {
        let advice = match self {
            Self::Password => {
                "set cache.shared.passwordFile to a file with its password, and usernameFile for a \
                 user of its ACL"
            }
            Self::ProtectedMode => {
                "set a password there (requirepass, or an ACL) and cache.shared.passwordFile here, \
                 or bind it to an address and set protected-mode no"
            }
            Self::Rights => {
                "its user needs `+getrange +set +del +select ~tolerarch:*`, with \
                 cache.shared.prefix for the keys, and with a cluster `+cluster|slots +ping \
                 +asking` as well"
            }
            Self::Loading => "it is tried again",
            Self::ReadOnly => "name the primary in cache.shared.url, or a Service that leads to it",
            Self::NoPrimary => {
                "name the primary in cache.shared.url, or set replica-serve-stale-data yes there"
            }
            Self::Full => "set maxmemory-policy allkeys-lru there, or a larger maxmemory",
            Self::NotSaved => {
                "see the server's log, its disk, and its replicas (min-replicas-to-write)"
            }
            Self::Clients => {
                "raise maxclients there, or see who holds its connections (CLIENT LIST)"
            }
            Self::Command => {
                "name the primary itself if it is a Sentinel, which mostly listens on 26379; a \
                 proxy and a server have to know GETRANGE, SET with EX, and DEL (Redis 6.2, Valkey)"
            }
            Self::Database => {
                "see the number at the end of cache.shared.url, and `databases` there"
            }
            Self::NoTls => {
                "write redis:// in cache.shared.url if TLS is not wanted, or name its TLS port"
            }
            Self::Tls => {
                "cache.shared.caFile has to contain the authority of its certificate, which has to \
                 name the host of the URL; client certificates are not supported (tls-auth-clients \
                 no)"
            }
            Self::ClusterDown => "see CLUSTER INFO there",
            Self::Cluster | Self::NoCluster | Self::NoRedis | Self::Closed | Self::File => {
                return None;
            }
        };
        Some(advice)
    }

    fn of(error: &RedisError, url: &ServerUrl) -> Option<Self> {
        if let Some(tls) = inner::<TlsError>(error) {
            return Some(match tls {
                TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NoTls,
                _ => Self::Tls,
            });
        }
        if inner::<UnusableFile>(error).is_some() {
            return Some(Self::File);
        }
        if inner::<SilentHandshake>(error).is_some() {
            return Some(Self::NoTls);
        }
        if is_closed(error) {
            return Some(Self::Closed);
        }
        let code = error.code().unwrap_or_default();
        Self::of_code(code, url).or_else(|| Self::of_text(error))
    }

    fn of_code(code: &str, url: &ServerUrl) -> Option<Self> {
        match code {
            "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" if url.is_cluster => {
                Some(Self::ClusterDown)
            }
            "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" => Some(Self::Cluster),
            "NOAUTH" | "WRONGPASS" => Some(Self::Password),
            "DENIED" => Some(Self::ProtectedMode),
            "NOPERM" => Some(Self::Rights),
            "LOADING" => Some(Self::Loading),
            "READONLY" => Some(Self::ReadOnly),
            "MASTERDOWN" => Some(Self::NoPrimary),
            "OOM" => Some(Self::Full),
            "MISCONF" | "NOREPLICAS" => Some(Self::NotSaved),
            _ => None,
        }
    }

    /// Finds the reason in the text of an error: the library reports errors of a cluster's nodes without a code, and
    /// errors of connections as texts.
    fn of_text(error: &RedisError) -> Option<Self> {
        let text = error.to_string();
        let has = |part: &str| text.contains(part);
        if has("InvalidContentType") {
            Some(Self::NoTls)
        } else if has("peer certificate") || has("fatal alert") {
            Some(Self::Tls)
        } else if has("cluster support disabled") {
            Some(Self::NoCluster)
        } else if has("max number of clients") {
            Some(Self::Clients)
        } else if has("protected mode") {
            Some(Self::ProtectedMode)
        } else if has("unknown command") || has("unknown subcommand") {
            Some(Self::Command)
        } else if has("DB index") || has("switch database") {
            Some(Self::Database)
        } else if error.kind() == ErrorKind::AuthenticationFailed
            || has("AUTH")
            || has("uthentication")
            || has("password")
        {
            Some(Self::Password)
        } else if error.kind() == ErrorKind::Parse || has("Parse error") {
            Some(Self::NoRedis)
        } else {
            None
        }
    }
}

/// Returns the error that ended the connection, if it has this type.
fn inner<E: StdError + 'static>(error: &RedisError) -> Option<&E> {
    connection_error(error)?.get_ref()?.downcast_ref()
}

/// Returns whether the server accepted the connection and then ended it.
fn is_closed(error: &RedisError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};

    let kind = connection_error(error).map(io::Error::kind);
    matches!(
        kind,
        Some(BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    )
}

/// Returns the error of the connection, which the library wraps in its own types.
fn connection_error(error: &RedisError) -> Option<&io::Error> {
    let source = error.source()?;
    let shared = source.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
    shared.downcast_ref::<io::Error>()
}

#[cfg(test)]
mod tests;
