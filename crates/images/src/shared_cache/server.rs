//! One server or a cluster, and commands to it, whose time their callers limit.
//!
//! The library reads answers without a bound: a single server is read through a stream that has one. The nodes of a cluster
//! are dialled, read and followed by the library alone.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    TlsCertificates, cmd,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::Duration;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::SharedCacheSettings;
use super::entry::LENGTH;
use super::key::Keys;
use super::url::{Address, ServerUrl};
use crate::meter::{Meter, Metered};
use tolerarch_support::file;

/// Bytes that are read of a new connection, and beyond what was asked for: the library keeps an answer until it ends, in some
/// twenty times the memory.
const ANSWERS: usize = 32 << 10;
/// Bytes that may be read for each that was written. No answer is as long as the command.
const FOR_EACH: usize = 4;
/// How long each node of a cluster may take to be dialled.
const DIAL: Duration = Duration::from_secs(1);
/// Times that a cluster is asked for one key: where it was, where it is, where it goes, and once more where a node broke.
const RETRIES: u32 = 3;
/// Milliseconds before a node that is busy is asked again.
const RETRY: u64 = 5;
/// Bytes of a user name, a password or a key.
const SECRET_BYTES: u64 = 4096;
/// Bytes of a key below which it can be guessed.
const KEY_BYTES: usize = 16;
/// Bytes of a bundle of certificate authorities.
const CA_BYTES: u64 = 4 << 20;

/// A connection that works, as far as is known.
pub(super) struct Server {
    pub(super) keys: Keys,
    connection: Connection,
}

enum Connection {
    /// The driver reads and writes until the server is dropped, whatever it owes.
    One {
        commands: MultiplexedConnection,
        _driver: AbortOnDropHandle<()>,
    },
    Cluster(ClusterConnection),
}

impl Server {
    /// Connects. Files are read anew for each connection, as passwords are rotated. The caller limits the time.
    pub(super) async fn connect(settings: &SharedCacheSettings, url: &ServerUrl) -> RedisResult<Self> {
        let own = settings.clone();
        let read = spawn_blocking(move || read(&own));
        let (redis, ca, keys) = read.await.map_err(io::Error::other)??;
        let redis = redis.set_db(url.database.into());
        let connection = match &*url.addresses {
            [(host, port)] if !url.is_cluster => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                let io = if url.tls {
                    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                    let tls = spawn_blocking(move || tls(ca.as_deref())).await.map_err(io::Error::other)?;
                    Either::Left(tls.map_err(io::Error::other)?.connect(name, stream).await?)
                } else {
                    Either::Right(stream)
                };
                let stream = Metered { io, meter: Meter::new(ANSWERS, FOR_EACH) };
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                let (commands, driver) =
                    MultiplexedConnection::new_with_config(&redis, stream, config).await?;
                Connection::One { commands, _driver: AbortOnDropHandle::new(tokio::spawn(driver)) }
            }
            nodes => {
                let node = |node: &Address| {
                    Ok(node.clone().into_connection_info()?.set_redis_settings(redis.clone()))
                };
                let nodes: RedisResult<Vec<_>> = nodes.iter().map(node).collect();
                let mut cluster = ClusterClientBuilder::new(nodes?)
                    .connection_timeout(DIAL)
                    .response_timeout(settings.timeout.max(DIAL))
                    .retries(RETRIES)
                    .min_retry_wait(RETRY)
                    .max_retry_wait(2 * RETRY);
                if url.tls {
                    cluster = cluster.certs(TlsCertificates { client_tls: None, root_cert: ca });
                }
                Connection::Cluster(cluster.build()?.get_async_connection().await?)
            }
        };
        Ok(Self { keys, connection })
    }

    pub(super) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match &self.connection {
            Connection::One { commands, .. } => command.query_async(&mut commands.clone()).await,
            Connection::Cluster(commands) => command.query_async(&mut commands.clone()).await,
        }
    }
}

/// The answer is empty if there is none. Never more than an entry has and one byte: another value may have any size.
pub(super) fn get(key: &str) -> Cmd {
    let mut get = cmd("GETRANGE");
    get.arg(key).arg(0).arg(LENGTH);
    get
}

/// Reads who connects, which certificate authorities are trusted, and what makes keys.
fn read(settings: &SharedCacheSettings) -> io::Result<(RedisConnectionInfo, Option<Vec<u8>>, Keys)> {
    let mut redis = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = secret("usernameFile", settings.username_file.as_deref())? {
        redis = redis.set_username(text("usernameFile", &user)?);
    }
    if let Some(password) = secret("passwordFile", settings.password_file.as_deref())? {
        redis = redis.set_password(text("passwordFile", &password)?);
    }
    let key = secret("keyFile", settings.key_file.as_deref())?;
    if key.as_ref().is_some_and(|key| key.len() < KEY_BYTES) {
        tracing::warn!("cache.shared.keyFile: shorter than {KEY_BYTES} bytes, so that it can be guessed");
    }
    let ca = settings.ca_file.as_deref().map(|path| bytes("caFile", path, CA_BYTES)).transpose()?;
    Ok((redis, ca, Keys::new(&settings.prefix, key.as_ref().map(|key| key.as_slice()))))
}

/// TLS that trusts these certificate authorities, in PEM, or the system's.
fn tls(ca: Option<&[u8]>) -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca).flatten()),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}

/// What a file holds, without the end of its last line.
fn secret(key: &str, path: Option<&Path>) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let Some(path) = path else { return Ok(None) };
    let mut secret = Zeroizing::new(bytes(key, path, SECRET_BYTES)?);
    while secret.ends_with(b"\n") || secret.ends_with(b"\r") {
        secret.pop();
    }
    if secret.is_empty() { Err(unusable(key, path, "empty")) } else { Ok(Some(secret)) }
}

fn bytes(key: &str, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    file::read_at_most(path, limit).map_err(|cause| unusable(key, path, cause))
}

fn unusable(key: &str, path: &Path, cause: impl Display) -> io::Error {
    io::Error::other(format!("cache.shared.{key}: {}: {cause}", path.display()))
}

fn text<'a>(key: &str, bytes: &'a [u8]) -> io::Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| io::Error::other(format!("cache.shared.{key}: no text")))
}
