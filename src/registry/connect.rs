//! The one door to the network: resolve, ask the guard, dial exactly what was admitted, TLS.
//!
//! Manifests, tokens, blobs and redirects all come through here, whatever their URL looked like, so there is no
//! second way around the guard: not by an IP literal, not by a name that resolves differently a moment later.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::guard::Guard;
use super::limits;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("a URL without a host")]
    NoHost,
    #[error("the name cannot be resolved")]
    Resolve(#[source] io::Error),
    #[error("every address of the host is forbidden (see network.allow)")]
    Forbidden,
    #[error("cannot connect")]
    Dial(#[source] io::Error),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
}

/// Makes connections for the pooling client.
#[derive(Clone)]
pub(super) struct Connector {
    guard: Arc<Guard>,
    tls: Arc<TlsSettings>,
    kept: Arc<Semaphore>,
}

/// Whom to trust, for most hosts and for those with a `caFile` of their own.
pub(super) struct TlsSettings {
    pub(super) default: Arc<ClientConfig>,
    /// By `host` or `host:port`.
    pub(super) hosts: HashMap<String, Arc<ClientConfig>>,
}

impl Connector {
    pub(super) fn new(guard: Guard, tls: TlsSettings) -> Self {
        Self { guard: Arc::new(guard), tls: Arc::new(tls), kept: Arc::new(Semaphore::new(limits::IDLE_ALL)) }
    }

    async fn connect(self, uri: Uri) -> Result<Io, ConnectError> {
        let host = uri.host().ok_or(ConnectError::NoHost)?;
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let addresses: Vec<SocketAddr> =
            lookup_host((name, port)).await.map_err(ConnectError::Resolve)?.collect();
        let mut admitted: Vec<SocketAddr> =
            addresses.into_iter().filter(|address| self.guard.admits(address.ip())).collect();
        admitted.truncate(limits::ADDRESSES);
        if admitted.is_empty() {
            return Err(ConnectError::Forbidden);
        }
        let tcp = dial(&admitted).await.map_err(ConnectError::Dial)?;
        tcp.set_nodelay(true).map_err(ConnectError::Dial)?;
        if !secure {
            return Ok(Io::Plain(tcp));
        }
        let server = match name.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::NoHost)?,
        };
        let key = uri
            .port_u16()
            .filter(|port| *port != 443)
            .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let config = self.tls.hosts.get(&key).unwrap_or(&self.tls.default);
        let tls =
            TlsConnector::from(Arc::clone(config)).connect(server, tcp).await.map_err(ConnectError::Tls)?;
        Ok(Io::Tls(Box::new(tls)))
    }
}

/// The first address that takes the connection; each gets a head start over the next (RFC 8305).
async fn dial(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        match waiting.next() {
            Some(address) => attempts.push(TcpStream::connect(*address)),
            None if attempts.is_empty() => return Err(last),
            None => {}
        }
        let head_start = tokio::time::sleep(limits::NEXT_ADDRESS);
        tokio::select! {
            Some(attempt) = attempts.next() => match attempt {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            },
            () = head_start, if waiting.len() > 0 => {}
        }
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let kept = Arc::clone(&connector.kept).try_acquire_owned().ok();
            let late = |_| ConnectError::Dial(io::ErrorKind::TimedOut.into());
            let connected = timeout(limits::CONNECT_TIME, connector.connect(uri)).await.map_err(late)??;
            Ok(TokioIo::new(Stream { io: connected, kept }))
        })
    }
}

/// A connection to a registry.
pub(super) struct Stream {
    io: Io,
    /// Without this it is not kept for another request.
    kept: Option<OwnedSemaphorePermit>,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.kept.is_none() {
            connected.poison();
        }
        connected
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buffer),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, data),
            Io::Tls(io) => Pin::new(io).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn dials_on_when_an_address_refuses() {
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let stream = dial(&[closed, open.local_addr().unwrap()]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open.local_addr().unwrap());
        assert_eq!(dial(&[closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(dial(&[]).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
}
