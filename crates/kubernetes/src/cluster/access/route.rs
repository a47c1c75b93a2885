//! Connections to the API server: direct ones, tunnels through an HTTP or SOCKS proxy, and requests that a proxy reads.

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

/// The way to a server failed at its proxy.
#[derive(Debug, thiserror::Error)]
#[error("its proxy {proxy} does not lead there: {cause}")]
struct ProxyFailure {
    /// URL without a user.
    proxy: String,
    cause: String,
}

/// Connects to servers.
pub(super) type Connector = BoxCloneSyncService<Uri, Wire, io::Error>;

/// Returns the connector of a client, TLS included. A proxy that speaks TLS is judged as the API server is, as in Go.
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

/// Connects within a time.
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
            connected
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

/// Connects through a proxy.
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
            route
                .connect(server)
                .await
                .map_err(|error| io::Error::other(ProxyFailure::of(proxy, &error)))
        })
    }
}

impl Route {
    async fn connect(self, server: Uri) -> io::Result<Wire> {
        let Self {
            proxy,
            tcp,
            to_proxy,
        } = self;
        if proxy.is_socks() {
            let address = proxy.url.as_str().parse().map_err(io::Error::other)?;
            let mut socks = SocksV5::new(address, tcp);
            if let Some(Login { user, password }) = &proxy.login {
                socks = socks.with_auth(user.clone(), password.to_string());
            }
            let server = with_port(&server).map_err(io::Error::other)?;
            return Ok(Wire::new(
                socks.oneshot(server).await.map_err(io::Error::other)?,
            ));
        }
        let address: Uri = proxy.url.as_str().parse().map_err(io::Error::other)?;
        if server.scheme() == Some(&Scheme::HTTP) {
            let reached = to_proxy.oneshot(address).await?;
            return Ok(Wire {
                is_read_by_proxy: true,
                ..reached
            });
        }
        let reached = to_proxy.oneshot(address.clone()).await?;
        let answer = Answer::default();
        let mut observed = Some(TokioIo::new(answer.observe(TokioIo::new(reached))));
        // The proxy is reached already, wherever the tunnel would look for it.
        let reach = service_fn(move |_: Uri| {
            ready(observed.take().ok_or_else(|| refused("no connection")))
        });
        let mut tunnel = Tunnel::new(address, reach);
        if let Some(authorization) = &proxy.authorization {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        match tunnel.call(server).await {
            Ok(opened) => Ok(opened.into_inner().io.into_inner()),
            Err(_) => Err(refused(&refusal(answer.form()))),
        }
    }
}

/// Returns an address with its port: without one, the library takes that of HTTPS for a server.
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

/// Returns what a proxy says that opens no tunnel.
fn refusal(form: Form) -> String {
    match form {
        Form::Status(407) => {
            "it answers 407: it wants a user and a password, or others; they are before an @ in its URL"
                .to_owned()
        }
        Form::Status(status @ (403 | 502..=504)) => {
            format!("it answers {status}: its rules, or its own way to the server")
        }
        Form::Status(status) => format!("it answers {status}, so it may be no proxy"),
        Form::Tls => "it speaks TLS; write https:// in its URL".to_owned(),
        Form::Nothing => "it closes the connection without an answer".to_owned(),
        Form::Other => "it answers with something else than HTTP".to_owned(),
    }
}

/// Returns the error of the operating system as it is, for those who name it.
fn flat(error: BoxError) -> io::Error {
    match error.downcast::<io::Error>() {
        Ok(error) => *error,
        Err(error) => io::Error::other(error),
    }
}

impl ProxyFailure {
    /// Names the last cause, which says what happened.
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
    /// True if a proxy reads the requests, which then name the server in full.
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
