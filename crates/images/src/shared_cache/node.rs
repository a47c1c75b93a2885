//! One connection to one server: how it is dialled, and how much is read of it.

use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo, RedisResult};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Duration;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::url::Address;
use super::within;
use crate::meter::{Meter, Metered};

/// How long dialling may take.
const DIAL: Duration = Duration::from_secs(1);
/// Bytes that are read of a new connection, and beyond what was asked for: the library that reads them has no bound, and
/// keeps an answer until it ends, in some twenty times the memory. All nodes of a cluster together take 80 MiB at the most.
pub(super) const ANSWERS: usize = 32 << 10;
/// The same where the nodes of a cluster are asked for: `CLUSTER SLOTS` of a thousand ranges has as many.
pub(super) const NODES_OF_A_CLUSTER: usize = 256 << 10;
/// Bytes that may be read for each that was written. No answer is as long as the command.
const FOR_EACH: usize = 4;

pub(super) struct Dialer {
    pub(super) tls: Option<TlsConnector>,
    pub(super) redis: RedisConnectionInfo,
}

pub(super) struct Node {
    connection: MultiplexedConnection,
    /// Reads and writes until the node is dropped, whatever the server owes.
    _driver: AbortOnDropHandle<()>,
}

impl Dialer {
    /// Of what comes no more than `most` bytes are read beyond what was asked for.
    pub(super) async fn dial(&self, (host, port): &Address, most: usize) -> RedisResult<Node> {
        within(DIAL, async {
            let stream = TcpStream::connect((&**host, *port)).await?;
            let Some(tls) = &self.tls else { return self.greet(stream, most).await };
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            self.greet(tls.connect(name, stream).await?, most).await
        })
        .await
    }

    async fn greet<S>(&self, stream: S, most: usize) -> RedisResult<Node>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Commands are limited by their callers.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let stream = Metered { io: stream, meter: Meter::new(most, FOR_EACH) };
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.redis, stream, config).await?;
        Ok(Node { connection, _driver: AbortOnDropHandle::new(tokio::spawn(driver)) })
    }
}

impl Node {
    pub(super) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection.clone()).await
    }

    /// The same at a node that is about to take over the key.
    pub(super) async fn send_asking<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().add_command(command.clone());
        let (answer,) = both.query_async(&mut self.connection.clone()).await?;
        Ok(answer)
    }
}

/// TLS that trusts these certificate authorities, in PEM, or the system's.
pub(super) fn tls(ca: Option<&[u8]>) -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca).flatten()),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}
