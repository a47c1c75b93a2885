//! The servers of one URL: how they are connected to, and the commands that are sent to them.
//!
//! Commands have no timeout here: the library waits for its own reconnects, so the caller limits their time.

use std::io;
use std::path::{Path, PathBuf};

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, ServerErrorKind, TlsCertificates, TlsMode, cmd,
};
use tokio::task::spawn_blocking;
use tokio::time::Duration;
use zeroize::Zeroizing;

use super::entry::LENGTH;
use super::url::{Address, Kind};
use super::{ServerUrl, SharedCacheSettings};
use crate::file;

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

    fn certificates(&self) -> TlsCertificates {
        TlsCertificates { client_tls: None, root_cert: self.ca.clone() }
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
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Connects. The caller limits the time of the whole; `timeout` is that of each step.
    pub(super) async fn connect(
        url: &ServerUrl,
        secrets: &Secrets,
        timeout: Duration,
    ) -> Result<Self, ServerError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            // Commands are limited by their callers.
            .set_response_timeout(None);
        let one = async |client: Client| {
            Ok(Self::One(client.get_multiplexed_async_connection_with_config(&config).await?))
        };
        match &url.kind {
            Kind::One => {
                let address = url.addresses.first().map(|address| at(address, url.tls));
                let info = address.into_iter().next().map(IntoConnectionInfo::into_connection_info);
                let info = info.transpose()?.ok_or(ServerError::Timeout)?;
                let redis = secrets.of_connection().set_db(url.database.into());
                let info = info.set_redis_settings(redis);
                one(match url.tls {
                    true => Client::build_with_tls(info, secrets.certificates())?,
                    false => Client::open(info)?,
                })
                .await
            }
            Kind::Sentinel(name) => match primary(url, name, secrets, false).await {
                Err(error) if secrets.password.is_some() && error.code() == Some("NOAUTH") => {
                    one(primary(url, name, secrets, true).await?).await
                }
                primary => one(primary?).await,
            },
            Kind::Cluster => {
                let nodes = url.addresses.iter().map(|address| at(address, url.tls));
                let mut builder = ClusterClientBuilder::new(nodes)
                    .connection_timeout(timeout)
                    .response_timeout(timeout)
                    .retries(1);
                if let Some(user) = &secrets.user {
                    builder = builder.username(user.as_str());
                }
                if let Some(password) = &secrets.password {
                    builder = builder.password(password.as_str());
                }
                if url.tls {
                    builder = builder.tls(TlsMode::Secure).certs(secrets.certificates());
                }
                Ok(Self::Cluster(builder.build()?.get_async_connection().await?))
            }
        }
    }

    /// The text of this key, empty if there is none. Never more of it than an entry has and one byte: another value may
    /// have any size.
    pub(super) async fn get(&self, key: &str) -> Result<Vec<u8>, ServerError> {
        let mut command = cmd("GETRANGE");
        self.send(command.arg(key).arg(0).arg(LENGTH)).await
    }

    pub(super) async fn set(&self, key: &str, value: &[u8], life: Duration) -> Result<(), ServerError> {
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut command = cmd("SET");
        self.send(command.arg(key).arg(value).arg("PX").arg(life)).await
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), ServerError> {
        let mut command = cmd("DEL");
        self.send(command.arg(key)).await
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, ServerError> {
        Ok(match self {
            Self::One(connection) => command.query_async(&mut connection.clone()).await?,
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await?,
        })
    }
}

/// The primary that Sentinels name, which get the password only if they ask for one.
async fn primary(
    url: &ServerUrl,
    name: &str,
    secrets: &Secrets,
    password_for_sentinels: bool,
) -> Result<Client, RedisError> {
    let sentinels = url.addresses.iter().map(|address| at(address, url.tls));
    let mut builder = SentinelClientBuilder::new(sentinels, name, SentinelServerType::Master)?
        .set_client_to_redis_db(url.database.into());
    if url.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(secrets.certificates())
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(secrets.certificates());
    }
    if let Some(user) = &secrets.user {
        builder = builder.set_client_to_redis_username(user.as_str());
        if password_for_sentinels {
            builder = builder.set_client_to_sentinel_username(user.as_str());
        }
    }
    if let Some(password) = &secrets.password {
        builder = builder.set_client_to_redis_password(password.as_str());
        if password_for_sentinels {
            builder = builder.set_client_to_sentinel_password(password.as_str());
        }
    }
    builder.build()?.async_get_client().await
}

fn at(Address { host, port }: &Address, tls: bool) -> ConnectionAddr {
    match tls {
        true => ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host.clone(), *port),
    }
}
