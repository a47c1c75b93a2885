//! The servers of one URL: how they are connected to, and the commands that are sent to them.
//!
//! Commands have no timeout here: the library waits for its own reconnects, so the caller limits their time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisConnectionInfo, RedisError, ServerErrorKind, Value, cmd};
use tokio::task::spawn_blocking;
use tokio::time::Duration;
use zeroize::Zeroizing;

use super::cluster::Cluster;
use super::entry::LENGTH;
use super::node::{self, ANSWERS, Dialer, Node};
use super::url::{Address, Kind};
use super::{ServerUrl, SharedCacheSettings};
use tolerarch_support::file;

/// Bytes of a user name, a password or a key.
const SECRET_BYTES: u64 = 4096;
/// Bytes of a key below which it can be guessed.
const KEY_BYTES: usize = 16;

/// Why a server is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerError {
    /// A file that the configuration names cannot be read, or cannot be what it should be.
    #[error("{key}: {}: {cause}", file.display())]
    File { key: &'static str, file: PathBuf, cause: io::Error },
    /// It answered with an error, or the connection broke.
    #[error("{0}")]
    Redis(#[from] RedisError),
    /// There is no TLS with these certificate authorities.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// No server is known that would take writes.
    #[error("no primary is known")]
    NoPrimary,
    /// It did not answer in time.
    #[error("no answer in time")]
    Timeout,
}

impl ServerError {
    /// Whether the key holds something else than text, which anyone with access to the server can have put there.
    pub(super) fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Redis(error) if error.code() == Some("WRONGTYPE"))
    }

    /// Whether the server answered, and would answer other commands.
    pub(super) fn is_refusal(&self) -> bool {
        let Self::Redis(error) = self else { return false };
        matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) && !error.is_cluster_error()
    }

    /// Whether another server takes writes by now.
    pub(super) fn is_replica(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly))
    }
}

/// What files of the configuration hold.
pub(super) struct Secrets {
    user: Option<Zeroizing<String>>,
    password: Option<Zeroizing<String>>,
    ca: Option<Vec<u8>>,
    pub(super) key: Option<Zeroizing<Vec<u8>>>,
}

impl Secrets {
    /// Reads them anew, as passwords are rotated.
    pub(super) async fn read(settings: &SharedCacheSettings) -> Result<Self, ServerError> {
        let settings = settings.clone();
        let read = spawn_blocking(move || {
            let key = secret("cache.shared.keyFile", settings.key_file.as_deref())?;
            if key.as_ref().is_some_and(|key| key.len() < KEY_BYTES) {
                tracing::warn!(
                    "cache.shared.keyFile: shorter than {KEY_BYTES} bytes, so that it can be guessed"
                );
            }
            let ca = |file: &PathBuf| {
                let failed =
                    |cause| ServerError::File { key: "cache.shared.caFile", file: file.clone(), cause };
                file::read(file).map_err(failed)
            };
            Ok(Self {
                user: text("cache.shared.usernameFile", settings.username_file.as_deref())?,
                password: text("cache.shared.passwordFile", settings.password_file.as_deref())?,
                ca: settings.ca_file.as_ref().map(ca).transpose()?,
                key,
            })
        });
        match read.await {
            Ok(secrets) => secrets,
            Err(_) => Err(ServerError::Timeout),
        }
    }

    fn of_connection(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &self.user {
            info = info.set_username(user.as_str());
        }
        if let Some(password) = &self.password {
            info = info.set_password(password.as_str());
        }
        info
    }
}

/// What a file holds, without the end of its last line.
fn secret(key: &'static str, file: Option<&Path>) -> Result<Option<Zeroizing<Vec<u8>>>, ServerError> {
    let Some(file) = file else { return Ok(None) };
    let failed = |cause| ServerError::File { key, file: file.to_owned(), cause };
    let mut bytes = Zeroizing::new(file::read_at_most(file, SECRET_BYTES).map_err(failed)?);
    while bytes.ends_with(b"\n") || bytes.ends_with(b"\r") {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "empty")));
    }
    Ok(Some(bytes))
}

/// The same of a text.
fn text(key: &'static str, file: Option<&Path>) -> Result<Option<Zeroizing<String>>, ServerError> {
    let (Some(path), Some(bytes)) = (file, secret(key, file)?) else { return Ok(None) };
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Some(Zeroizing::new(text.to_owned()))),
        Err(_) => {
            let cause = io::Error::new(io::ErrorKind::InvalidData, "no text");
            Err(ServerError::File { key, file: path.to_owned(), cause })
        }
    }
}

/// A connection to the servers. Clones share it.
#[derive(Clone)]
pub(super) enum Server {
    One(Node),
    Cluster(Arc<Cluster>),
}

impl Server {
    /// Connects. The caller limits the time of the whole; `timeout` is that of each step.
    pub(super) async fn connect(
        url: &ServerUrl,
        secrets: &Secrets,
        timeout: Duration,
    ) -> Result<Self, ServerError> {
        let tls = if url.tls { Some(node::tls(secrets.ca.as_deref())?) } else { None };
        let dialer = |redis: RedisConnectionInfo| Dialer { tls: tls.clone(), redis, timeout };
        let own = dialer(secrets.of_connection().set_db(url.database.into()));
        match &url.kind {
            Kind::One => first(url.addresses.iter().map(|at| own.dial(at, ANSWERS).boxed()).collect())
                .await
                .map(Self::One),
            Kind::Sentinel(name) => {
                // They get the password only if they ask for one.
                let sentinels = dialer(RedisConnectionInfo::default().set_skip_set_lib_name());
                let primary = match primary(&sentinels, url, name).await {
                    Err(ServerError::Redis(error))
                        if secrets.password.is_some() && error.code() == Some("NOAUTH") =>
                    {
                        let sentinels = dialer(secrets.of_connection());
                        primary(&sentinels, url, name).await?
                    }
                    primary => primary?,
                };
                let node = own.dial(&primary, ANSWERS).await?;
                // A Sentinel that was away still names the old one. The user may have no right to ask.
                match node.send(&cmd("ROLE")).await {
                    Ok(Value::Array(role)) if role.first().and_then(text_of) == Some("master") => {}
                    Err(error) if error.is_refusal() => {}
                    Err(error) => return Err(error),
                    Ok(_) => return Err(ServerError::NoPrimary),
                }
                Ok(Self::One(node))
            }
            Kind::Cluster => {
                let cluster =
                    first(url.addresses.iter().map(|at| Cluster::connect(own.clone(), at).boxed()).collect())
                        .await?;
                Ok(Self::Cluster(Arc::new(cluster)))
            }
        }
    }

    /// The text of this key, empty if there is none. Never more of it than an entry has and one byte: another value may
    /// have any size.
    pub(super) async fn get(&self, key: &str) -> Result<Vec<u8>, ServerError> {
        let mut command = cmd("GETRANGE");
        self.send(key, command.arg(key).arg(0).arg(LENGTH)).await
    }

    pub(super) async fn set(&self, key: &str, value: &[u8], life: Duration) -> Result<(), ServerError> {
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut command = cmd("SET");
        self.send(key, command.arg(key).arg(value).arg("PX").arg(life)).await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), ServerError> {
        let mut command = cmd("DEL");
        self.send(key, command.arg(key)).await
    }

    async fn send<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, ServerError> {
        match self {
            Self::One(node) => node.send(command).await,
            Self::Cluster(cluster) => cluster.send(key, command).await,
        }
    }
}

/// What the first of these gives that gives something; the first failure otherwise.
async fn first<T>(tries: Vec<BoxFuture<'_, Result<T, ServerError>>>) -> Result<T, ServerError> {
    let mut failed = None;
    for tried in tries {
        match tried.await {
            Ok(found) => return Ok(found),
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    Err(failed.unwrap_or(ServerError::NoPrimary))
}

/// The primary of this name, as the first Sentinel knows it that answers.
async fn primary(sentinels: &Dialer, url: &ServerUrl, name: &str) -> Result<Address, ServerError> {
    let ask = |at| async move {
        let sentinel = sentinels.dial(at, ANSWERS).await?;
        let known: Option<(String, u16)> =
            sentinel.send(cmd("SENTINEL").arg("get-master-addr-by-name").arg(name)).await?;
        known.map(|(host, port)| Address { host, port }).ok_or(ServerError::NoPrimary)
    };
    first(url.addresses.iter().map(|at| ask(at).boxed()).collect()).await
}

/// A text of an answer.
pub(super) fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
