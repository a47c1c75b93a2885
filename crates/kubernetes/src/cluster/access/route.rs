//! Connections to the API server: direct, in a tunnel through an HTTP or SOCKS proxy, or to a proxy that reads
//! requests.

use std::error::Error;
use std::future::ready;
use std::io;
use std::iter::successors;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::Config;
use tokio::time::{Duration, timeout};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt, service_fn};

use tolerarch_support::proxy::{Login, Proxy};
use tolerarch_support::tunnel::{Answer, Form};

/// A connection to a server that failed at its proxy.
#[derive(Debug, thiserror::Error)]
#[error("its proxy {proxy} does not lead there: {cause}")]
struct ProxyFailure {
    /// URL without a user.
    proxy: String,
    cause: String,
}

/// Connects to servers.
pub(super) type Connector = BoxCloneSyncService<Uri, Wire, io::Error>;

/// Returns the connector of a client, including TLS. The certificate of a proxy with TLS is verified with the API
/// server's settings, as in Go.
pub(super) fn connector(
    config: &Config,
    proxy: Option<&Proxy>,
    time: Duration,
) -> Result<Connector, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let wire = match proxy {
        Some(proxy) => {
            let to_proxy = config.rustls_https_connector_with_connector(tcp.clone())?;
            let to_proxy = Connector::new(to_proxy.map_response(Wire::new).map_err(flat));
            Connector::new(Route {
                proxy: proxy.clone(),
                tcp,
                to_proxy,
            })
        }
        None => Connector::new(tcp.map_response(Wire::new).map_err(io::Error::other)),
    };
    let encrypted = config.rustls_https_connector_with_connector(wire)?;
    let encrypted = Connector::new(encrypted.map_response(Wire::new).map_err(flat));
    Ok(Connector::new(Limited {
        connector: encrypted,
        time,
    }))
}

/// A connector with a timeout.
#[derive(Clone)]
struct Limited {
    connector: Connector,
    time: Duration,
}

impl Service<Uri> for Limited {
    type Response = Wire;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connected = timeout(self.time, self.connector.clone().oneshot(server));
        Box::pin(async {
            match connected.await {
                Ok(connected) => connected,
                Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }
}

/// A connector through a proxy.
#[derive(Clone)]
struct Route {
    proxy: Proxy,
    tcp: HttpConnector,
    /// Connects to the proxy itself.
    to_proxy: Connector,
}

impl Service<Uri> for Route {
    type Response = Wire;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let route = self.clone();
        Box::pin(async move {
            let proxy = route.proxy.url.as_str().trim_end_matches('/').to_owned();
            let connected = route.connect(server).await;
            connected.map_err(|error| io::Error::other(ProxyFailure::of(proxy, &error)))
        })
    }
}

impl Route {
    async fn connect(self, server: Uri) -> io::Result<Wire> {
        let address: Uri = self.proxy.url.as_str().parse().map_err(io::Error::other)?;
        if self.proxy.is_socks() {
            return self.connect_by_socks(address, server).await;
        }
        let to_proxy = self.to_proxy.oneshot(address.clone()).await?;
        if server.scheme() == Some(&Scheme::HTTP) {
            return Ok(Wire {
                is_read_by_proxy: true,
                ..to_proxy
            });
        }
        let answer = Answer::default();
        let mut observed = Some(TokioIo::new(answer.observe(TokioIo::new(to_proxy))));
        // The connection to the proxy exists already; the tunnel's address for it is ignored.
        let existing = service_fn(move |_: Uri| {
            ready(observed.take().ok_or_else(|| refused("no connection")))
        });
        let mut tunnel = Tunnel::new(address, existing);
        if let Some(authorization) = &self.proxy.authorization {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        match tunnel.call(server).await {
            Ok(opened) => Ok(opened.into_inner().io.into_inner()),
            Err(_) => Err(refused(&refusal(answer.form()))),
        }
    }

    async fn connect_by_socks(self, address: Uri, server: Uri) -> io::Result<Wire> {
        let mut socks = SocksV5::new(address, self.tcp);
        if let Some(Login { user, password }) = &self.proxy.login {
            socks = socks.with_auth(user.clone(), password.to_string());
        }
        let server = with_port(&server).map_err(io::Error::other)?;
        let connected = socks.oneshot(server).await.map_err(io::Error::other)?;
        Ok(Wire::new(connected))
    }
}

/// Returns an address with its port: without a port, the library would use that of HTTPS.
fn with_port(server: &Uri) -> Result<Uri, http::Error> {
    let default = if server.scheme() == Some(&Scheme::HTTP) {
        80
    } else {
        443
    };
    let port = server.port_u16().unwrap_or(default);
    let host = server.host().unwrap_or_default();
    Uri::builder()
        .scheme("https")
        .authority(format!("{host}:{port}"))
        .path_and_query("/")
        .build()
}

fn refused(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

/// Returns the reason why a proxy opened no tunnel, by the form of its answer.
fn refusal(form: Form) -> String {
    match form {
        Form::Status(407) => {
            "it answers 407: it requires a user and a password, or other ones; they are before an @ in its URL"
                .to_owned()
        }
        Form::Status(status @ (403 | 502..=504)) => {
            format!("it answers {status}: its rules forbid the server, or it cannot reach the server")
        }
        Form::Status(status) => format!("it answers {status}, so it may be no proxy"),
        Form::Tls => "it speaks TLS; write https:// in its URL".to_owned(),
        Form::Nothing => "it closes the connection without an answer".to_owned(),
        Form::Other => "its answer is not HTTP".to_owned(),
    }
}

/// Unwraps an error of the operating system, so that a caller can name its kind.
fn flat(error: BoxError) -> io::Error {
    match error.downcast::<io::Error>() {
        Ok(error) => *error,
        Err(error) => io::Error::other(error),
    }
}

impl ProxyFailure {
    /// Takes the last cause, which is the most specific.
    fn of(proxy: String, error: &(dyn Error + 'static)) -> Self {
        let causes = successors(Some(error), |&error| error.source());
        let last = causes.last().unwrap_or(error);
        let cause = match last.downcast_ref::<io::Error>() {
            Some(system) if system.raw_os_error().is_some() => system.kind().to_string(),
            _ => last.to_string(),
        };
        Self { proxy, cause }
    }
}

/// TCP, or TLS over TCP, or both through a proxy.
pub(super) struct Wire {
    io: Box<dyn ReadWrite>,
    /// Set if a proxy reads the requests; each request then has the server's full URL.
    is_read_by_proxy: bool,
}

trait ReadWrite: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> ReadWrite for T {}

impl Wire {
    fn new(io: impl ReadWrite + Connection + 'static) -> Self {
        let is_read_by_proxy = io.connected().is_proxied();
        Self {
            io: Box::new(io),
            is_read_by_proxy,
        }
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_read_by_proxy)
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
