//! Connection to one server or a cluster. Callers limit the time of commands. The library reads answers without a
//! limit. A single server is therefore read through a limited stream; the nodes of a cluster have no limit.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult, TlsCertificates, cmd,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Duration, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::entry::{Keys, LENGTH};
use super::fault::{SilentHandshake, UnusableFile};
use super::settings::{Address, ServerUrl, SharedCacheSettings};
use crate::meter::{Meter, Metered};
use tolerarch_support::file;

/// Bytes that may be received on a new connection, and beyond what commands allow for. The library buffers an answer
/// until the answer ends, in about twenty times the memory.
const ANSWERS: usize = 32 << 10;
/// Bytes that may be received for each byte sent. No answer is as long as its command.
const PER_SENT_BYTE: usize = 4;
/// Timeout of a TLS handshake: shorter than that of connecting, so that a silent handshake has its own error.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// Timeout of dialling one node of a cluster.
const DIAL: Duration = Duration::from_secs(1);
/// Retries of a command in a cluster: at the key's new node, at the node where the key moves, and after a broken node.
const RETRIES: u32 = 3;
/// Milliseconds before a busy node gets the command again.
const RETRY: u64 = 5;
/// Number of bytes below which a key can be guessed.
const KEY_BYTES: usize = 16;

/// Connection over which the server has answered once.
pub(super) struct Server {
    pub(super) keys: Keys,
    connection: Connection,
}

enum Connection {
    /// The driver reads and writes until the server is dropped, even with answers outstanding.
    One {
        commands: MultiplexedConnection,
        _driver: AbortOnDropHandle<()>,
    },
    Cluster(ClusterConnection),
}

impl Server {
    /// Connects, and checks that a lookup gets an answer. Reads the files for each connection, as passwords are
    /// rotated.
    pub(super) async fn connect(
        settings: &SharedCacheSettings,
        url: &ServerUrl,
    ) -> RedisResult<Self> {
        let files = Files::of(settings).await?;
        let connection = match &*url.addresses {
            [address] if !url.is_cluster => Connection::to_server(address, url, &files).await?,
            _ => Connection::to_cluster(settings, url, &files).await?,
        };
        let server = Self {
            keys: files.keys,
            connection,
        };
        let probe = get(&format!("{}probe", settings.prefix));
        server.send::<Vec<u8>>(&probe).await?;
        Ok(server)
    }

    pub(super) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.connection.send(command).await
    }
}

impl Connection {
    async fn to_server(address: &Address, url: &ServerUrl, files: &Files) -> RedisResult<Self> {
        let stream = TcpStream::connect(address).await?;
        let io = if url.tls {
            Either::Left(handshake(address, stream, files.ca.clone()).await?)
        } else {
            Either::Right(stream)
        };
        let stream = Metered {
            io,
            meter: Meter::new(ANSWERS, PER_SENT_BYTE),
        };
        let redis = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (commands, driver) =
            MultiplexedConnection::new_with_config(&redis, stream, config).await?;
        let connection = Self::One {
            commands,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        };
        // AUTH and SELECT are not left to the library, which would report any error as a wrong password or database.
        if let Some(password) = &files.password {
            let mut auth = cmd("AUTH");
            if let Some(user) = &files.user {
                auth.arg(user.as_slice());
            }
            auth.arg(password.as_slice());
            connection.send::<()>(&auth).await?;
        }
        if url.database > 0 {
            let mut select = cmd("SELECT");
            select.arg(url.database);
            connection.send::<()>(&select).await?;
        }
        Ok(connection)
    }

    async fn to_cluster(
        settings: &SharedCacheSettings,
        url: &ServerUrl,
        files: &Files,
    ) -> RedisResult<Self> {
        let mut redis = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &files.user {
            redis = redis.set_username(String::from_utf8_lossy(user));
        }
        if let Some(password) = &files.password {
            redis = redis.set_password(String::from_utf8_lossy(password));
        }
        let mut nodes = Vec::with_capacity(url.addresses.len());
        for address in &url.addresses {
            let node = address.clone().into_connection_info()?;
            nodes.push(node.set_redis_settings(redis.clone()));
        }
        let mut cluster = ClusterClientBuilder::new(nodes)
            .connection_timeout(DIAL)
            .response_timeout(settings.timeout.max(DIAL))
            .retries(RETRIES)
            .min_retry_wait(RETRY)
            .max_retry_wait(2 * RETRY);
        if url.tls {
            // The system's authorities are passed as well. Otherwise the library reads them, even beside a `caFile`,
            // and cannot connect if one is broken.
            let ca = files.ca.clone();
            let authorities = spawn_blocking(move || pem(&authorities(ca))).await;
            cluster = cluster.certs(TlsCertificates {
                client_tls: None,
                root_cert: Some(authorities.map_err(io::Error::other)?),
            });
        }
        let connection = cluster.build()?.get_async_connection().await?;
        Ok(Self::Cluster(connection))
    }

    async fn send<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::One { commands, .. } => command.query_async(&mut commands.clone()).await,
            Self::Cluster(commands) => command.query_async(&mut commands.clone()).await,
        }
    }
}

/// Does the TLS handshake with a server. Trusts these certificate authorities, in PEM, or the system's.
async fn handshake(
    address: &Address,
    stream: TcpStream,
    ca: Option<Vec<u8>>,
) -> io::Result<TlsStream<TcpStream>> {
    let (host, _) = address.clone();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let connector = spawn_blocking(move || tls(ca)).await;
    let connector = connector
        .map_err(io::Error::other)?
        .map_err(io::Error::other)?;
    match timeout(HANDSHAKE, connector.connect(name, stream)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::other(SilentHandshake)),
    }
}

/// Returns the command that reads a value; the answer is empty if there is none. Reads at most a byte more than an
/// entry has, as values of other writers may be large.
pub(super) fn get(key: &str) -> Cmd {
    let mut get = cmd("GETRANGE");
    get.arg(key).arg(0).arg(LENGTH);
    get
}

/// Contents of the files that the settings name.
struct Files {
    user: Option<Zeroizing<Vec<u8>>>,
    password: Option<Zeroizing<Vec<u8>>>,
    /// Trusted certificate authorities, in PEM.
    ca: Option<Vec<u8>>,
    keys: Keys,
}

impl Files {
    async fn of(settings: &SharedCacheSettings) -> io::Result<Self> {
        let settings = settings.clone();
        spawn_blocking(move || Self::read(&settings))
            .await
            .map_err(io::Error::other)?
    }

    fn read(settings: &SharedCacheSettings) -> io::Result<Self> {
        let user = content("usernameFile", &settings.username_file)?;
        let password = content("passwordFile", &settings.password_file)?;
        let key = content("keyFile", &settings.key_file)?;
        if key.as_ref().is_some_and(|key| key.len() < KEY_BYTES) {
            tracing::warn!(
                "cache.shared.keyFile: shorter than {KEY_BYTES} bytes, so that it can be guessed"
            );
        }
        let ca = content("caFile", &settings.ca_file)?.map(|ca| ca.to_vec());
        let keys = Keys::new(&settings.prefix, key.as_ref().map(|key| key.as_slice()));
        Ok(Self {
            user,
            password,
            ca,
            keys,
        })
    }
}

/// Makes a TLS connector that trusts these certificate authorities, in PEM, or the system's.
fn tls(ca: Option<Vec<u8>>) -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities(ca));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// Returns these certificate authorities, in PEM, or the system's. Leaves out those that rustls cannot use.
fn authorities(ca: Option<Vec<u8>>) -> Vec<CertificateDer<'static>> {
    let mut all: Vec<CertificateDer<'static>> = match ca {
        Some(ca) => CertificateDer::pem_slice_iter(&ca).flatten().collect(),
        None => rustls_native_certs::load_native_certs().certs,
    };
    all.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
    all
}

fn pem(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut pem = String::new();
    for certificate in certificates {
        let text = BASE64.encode(certificate);
        pem += &format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    }
    pem.into_bytes()
}

/// Reads the file of this setting, without trailing line ends.
fn content(
    setting: &'static str,
    path: &Option<PathBuf>,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let Some(path) = path else { return Ok(None) };
    let unusable = |cause: &dyn Display| {
        io::Error::other(UnusableFile {
            setting,
            file: path.display().to_string(),
            cause: cause.to_string(),
        })
    };
    let mut content = Zeroizing::new(file::read(path).map_err(|cause| unusable(&cause))?);
    while content.ends_with(b"\n") || content.ends_with(b"\r") {
        content.pop();
    }
    if content.is_empty() {
        return Err(unusable(&"empty"));
    }
    Ok(Some(content))
}
