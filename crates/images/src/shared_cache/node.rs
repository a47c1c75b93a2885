//! One connection to one server: how it is dialled, and how much is read of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo, RedisError};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::server::ServerError;
use super::url::Address;

/// Bytes that are read of a new connection, and beyond what was asked for: the library that reads them has no bound, and
/// keeps an answer until it ends, in some twenty times the memory. All nodes of a cluster together take 80 MiB at the most.
pub(super) const ANSWERS: usize = 32 << 10;
/// The same where the nodes of a cluster are asked for: `CLUSTER SLOTS` of a thousand ranges has as many.
pub(super) const NODES_OF_A_CLUSTER: usize = 256 << 10;
/// Bytes that may be read for each that was written. No answer is as long as the command.
const FOR_EACH: usize = 4;

/// How nodes are dialled.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) tls: Option<TlsConnector>,
    pub(super) redis: RedisConnectionInfo,
    /// How long dialling may take.
    pub(super) timeout: Duration,
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) struct Node {
    connection: MultiplexedConnection,
    /// Reads and writes until the last clone is dropped, whatever the server owes.
    _driver: Arc<AbortOnDropHandle<()>>,
}

impl Dialer {
    /// Of what comes no more than `most` bytes are read beyond what was asked for.
    pub(super) async fn dial(&self, address: &Address, most: usize) -> Result<Node, ServerError> {
        let dial = async {
            let dialled = TcpStream::connect((&*address.host, address.port)).await;
            let stream = dialled.map_err(RedisError::from)?;
            let Some(tls) = &self.tls else { return self.greet(stream, most).await };
            let name = ServerName::try_from(address.host.clone());
            let name = name.map_err(|error| RedisError::from(io::Error::other(error)))?;
            self.greet(tls.connect(name, stream).await.map_err(RedisError::from)?, most).await
        };
        timeout(self.timeout, dial).await.unwrap_or(Err(ServerError::Timeout))
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        most: usize,
    ) -> Result<Node, ServerError> {
        // Commands are limited by their callers.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let stream = Bounded { stream, left: most, most };
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.redis, stream, config).await?;
        Ok(Node { connection, _driver: Arc::new(AbortOnDropHandle::new(tokio::spawn(driver))) })
    }
}

impl Node {
    pub(super) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, ServerError> {
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }

    /// The same at a node that is about to take over the key.
    pub(super) async fn send_asking<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, ServerError> {
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().add_command(command.clone());
        let (answer,) = both.query_async(&mut self.connection.clone()).await?;
        Ok(answer)
    }
}

/// TLS that trusts these certificate authorities, in PEM, or the system's.
pub(super) fn tls(ca: Option<&[u8]>) -> Result<TlsConnector, ServerError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca).flatten()),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into())
}

/// A stream that breaks where more is read of it than anybody asked for.
struct Bounded<S> {
    stream: S,
    /// Bytes that may still be read.
    left: usize,
    /// How many these are at the most.
    most: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        match self.left.checked_sub(buffer.filled().len() - before) {
            Some(left) => self.left = left,
            None => {
                buffer.set_filled(before);
                let why = "it sends more than it was asked for";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.left = self.most.min(self.left + FOR_EACH * written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
