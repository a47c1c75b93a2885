//! The only way to the network: resolves a name, dials exactly the addresses that the guard admits, and does TLS. All
//! requests pass through here, whatever their URL looks like: for manifests, tokens and blobs, and redirected ones. So
//! nothing bypasses the guard, neither an IP literal nor a name that resolves differently a moment later.

use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::{self, FuturesUnordered, StreamExt};
use http::{HeaderValue, StatusCode, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, Error as TlsError};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Duration, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, Service, service_fn};
use url::Url;

use super::authority::{authority, label, name, shown};
use super::guard::AddressGuard;
use super::resolve::NameResolver;
use super::spare::{self, Spare, SpareHosts};
use super::stream::{Reuse, Stream, Wire};
use super::trust::{TlsFault, TlsSettings};
use super::tunnel::{explain, explain_status};
use super::verifier::Objection;
use crate::meter::{Meter, Metered};
use crate::registry::metrics::RequestKind;
use tolerarch_support::proxy::{Login, Proxies, Proxy};
use tolerarch_support::tunnel::Answer;

/// Maximum bytes of one response on the wire, including the handshake: the largest body, a list of tags, and 1 MiB for
/// everything else.
const RESPONSE: usize = RequestKind::Tags.limit() + (1 << 20);
/// Maximum number of addresses of one host that are tried.
const MAX_ADDRESSES: usize = 8;
/// Head start of one address before the next one is tried in parallel (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);
/// Maximum time to connect, including the handshake. It is needed because the pool lets an attempt continue after the
/// attempt's lookup has ended.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Maximum number of idle connections to all registries together. Connections beyond that are used once.
const MAX_IDLE: usize = 256;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("a URL without a host")]
    NoHost,
    #[error("the name cannot be resolved")]
    Resolve(#[source] io::Error),
    #[error("every address of the host is forbidden (see network.allow)")]
    Forbidden,
    #[error("cannot connect")]
    Dial(#[source] io::Error),
    #[error("TLS cannot be set up")]
    Setup(#[source] Arc<TlsFault>),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the proxy does not let it through")]
    Proxy(#[source] Box<ProxyFault>),
}

/// Failure to connect through a proxy.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {url}")]
pub(crate) struct ProxyFault {
    /// URL of the proxy, without a user.
    pub(super) url: Url,
    /// Environment variable that names the proxy.
    pub(super) variable: &'static str,
    #[source]
    pub(super) cause: ProxyCause,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyCause {
    #[error("it cannot be reached")]
    Unreached(#[source] Box<ConnectError>),
    /// Explanation of the proxy's answer.
    #[error("it {0}")]
    Refused(String),
    #[error("it gives no answer in time")]
    Silent,
}

impl ConnectError {
    /// Returns the TLS error of a failed handshake; `None` if the connection broke.
    pub(super) fn tls_error(&self) -> Option<&TlsError> {
        let Self::Tls(error) = self else { return None };
        error.get_ref()?.downcast_ref()
    }

    fn through(proxy: &Proxy, variable: &'static str, cause: ProxyCause) -> Self {
        Self::Proxy(
            ProxyFault {
                url: proxy.url.clone(),
                variable,
                cause,
            }
            .into(),
        )
    }

    /// Returns whether the server's short RSA key is the only objection.
    fn is_short_key(&self) -> bool {
        let objection = self.tls_error().and_then(Objection::in_error);
        matches!(objection, Some(Objection::ShortKey(_)))
    }
}

pub(crate) struct Connector {
    guard: AddressGuard,
    tls: TlsSettings,
    proxies: Proxies,
    names: NameResolver,
    /// Permits to keep a connection for another request.
    idle_permits: Arc<Semaphore>,
    spares: SpareHosts,
}

/// Attempt to open a connection to the host of a URL.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    uri: &'a Uri,
    meter: &'a Meter,
    /// True for the second handshake with a server that has a short RSA key.
    short_key: bool,
    /// Spare connection to open in parallel.
    spare: Option<&'a Spare>,
}

/// An open connection.
struct Connection {
    wire: Wire,
    /// True if a proxy reads the requests.
    to_proxy: bool,
}

impl Connector {
    pub(crate) fn new(
        guard: AddressGuard,
        tls: TlsSettings,
        proxies: Proxies,
        names: NameResolver,
    ) -> Self {
        Self {
            guard,
            tls,
            proxies,
            names,
            idle_permits: Arc::new(Semaphore::new(MAX_IDLE)),
            spares: SpareHosts::default(),
        }
    }

    /// Opens a connection for a request. If the lookup has a spare connection, that one gets a head start over a new
    /// one. After that, the first of the two that is open is used.
    pub(super) async fn open(self: &Arc<Self>, uri: &Uri) -> Result<TokioIo<Stream>, ConnectError> {
        let spare = spare::to_take().and_then(|spare| spare.take(uri));
        let Some(mut spare) = spare else {
            let spare_to_open = spare::to_open();
            let stream = self.open_new(uri, spare_to_open.as_ref()).await?;
            return Ok(TokioIo::new(stream));
        };
        let mut new = pin!(self.open_new(uri, None));
        let stream = match timeout(HEAD_START, spare.stream()).await {
            Ok(Some(stream)) => stream,
            Ok(None) => new.await?,
            Err(_) => tokio::select! {
                stream = spare.stream() => match stream {
                    Some(stream) => stream,
                    None => new.await?,
                },
                result = &mut new => match result {
                    Ok(stream) => stream,
                    Err(error) => spare.stream().await.ok_or(error)?,
                },
            },
        };
        Ok(TokioIo::new(stream))
    }

    /// Opens a new connection. Once the host has accepted it, opens the spare connection too.
    pub(super) async fn open_new(
        self: &Arc<Self>,
        uri: &Uri,
        spare: Option<&Spare>,
    ) -> Result<Stream, ConnectError> {
        let idle_permit = Arc::clone(&self.idle_permits).try_acquire_owned().ok();
        let meter = Meter::new(RESPONSE, 0);
        let attempt = Attempt {
            uri,
            meter: &meter,
            short_key: false,
            spare,
        };
        let connected = async {
            match self.connect(attempt).await {
                Err(error) if error.is_short_key() => {
                    let attempt = Attempt {
                        short_key: true,
                        ..attempt
                    };
                    self.connect(attempt).await.map_err(|_| error)
                }
                connected => connected,
            }
        };
        let Ok(connected) = timeout(CONNECT_TIME, connected).await else {
            return Err(self.timeout_error(uri));
        };
        let Connection { wire, to_proxy } = connected?;
        Ok(Stream {
            io: wire,
            to_proxy,
            idle_permit,
            meter,
            has_answered: false,
            reuse: Reuse::default(),
        })
    }

    /// Opens a connection in a task.
    fn spawn_open(self: &Arc<Self>, uri: &Uri) -> AbortOnDropHandle<Option<Stream>> {
        let connector = Arc::clone(self);
        let uri = uri.clone();
        let opened = async move { connector.open_new(&uri, None).await.ok() };
        AbortOnDropHandle::new(tokio::spawn(opened))
    }

    /// Returns the error of an attempt that took longer than `CONNECT_TIME`.
    fn timeout_error(&self, uri: &Uri) -> ConnectError {
        if let Ok(url) = Url::parse(&uri.to_string())
            && let Some((proxy, variable)) = self.proxy_of(&url)
        {
            return ConnectError::through(proxy, variable, ProxyCause::Silent);
        }
        ConnectError::Dial(io::ErrorKind::TimedOut.into())
    }

    /// Returns the `Proxy-Authorization` of a request without TLS. For a request with TLS, the tunnel is authorised
    /// instead.
    pub(super) fn proxy_authorization(&self, url: &Url) -> Option<&HeaderValue> {
        if url.scheme() != "http" {
            return None;
        }
        self.proxies.find(url)?.authorization.as_ref()
    }

    /// Returns the error of a request without TLS that the proxy itself has refused. Only a proxy answers 407.
    pub(super) fn refused_by_proxy(&self, url: &Url, status: StatusCode) -> Option<ConnectError> {
        if url.scheme() != "http" || status != StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            return None;
        }
        let (proxy, variable) = self.proxy_of(url)?;
        if proxy.is_socks() {
            return None;
        }
        let host = shown(label(url));
        let is_authorised = proxy.authorization.is_some();
        let answer = explain_status(status.as_u16(), &host, variable, is_authorised);
        let cause = ProxyCause::Refused(answer);
        Some(ConnectError::through(proxy, variable, cause))
    }

    /// Returns the proxy for a URL, and the environment variable that names the proxy.
    fn proxy_of(&self, url: &Url) -> Option<(&Proxy, &'static str)> {
        let variable = if url.scheme() == "https" {
            "HTTPS_PROXY"
        } else {
            "HTTP_PROXY"
        };
        Some((self.proxies.find(url)?, variable))
    }

    /// Connects to the host of a URL, through a proxy if one is configured.
    async fn connect(self: &Arc<Self>, attempt: Attempt<'_>) -> Result<Connection, ConnectError> {
        let Attempt { uri, short_key, .. } = attempt;
        let url = &Url::parse(&uri.to_string()).map_err(|_| ConnectError::NoHost)?;
        let Some((proxy, variable)) = self.proxy_of(url) else {
            let wire = self.reach(url, Some(&self.guard), attempt).await?;
            let to_proxy = false;
            return Ok(Connection { wire, to_proxy });
        };
        let tls = self.tls(url, short_key)?;
        // The proxy resolves names, so the guard can judge only an address here.
        if let Ok(address) = name(url).parse()
            && !self.guard.admits(address)
        {
            return Err(ConnectError::Forbidden);
        }
        let failed = |cause| ConnectError::through(proxy, variable, cause);
        let attempt = Attempt {
            short_key: false,
            ..attempt
        };
        // Without the guard, because the operator chose the proxy.
        let to_proxy = self
            .reach(&proxy.url, None, attempt)
            .await
            .map_err(|error| failed(ProxyCause::Unreached(error.into())))?;
        if !proxy.is_socks() && tls.is_none() {
            return Ok(Connection {
                wire: to_proxy,
                to_proxy: true,
            });
        }
        let tunnel = if proxy.is_socks() {
            let tunnel = through_socks(proxy, url, to_proxy).await;
            tunnel.map_err(|error| {
                format!("does not connect: {error}; check its host, port and user in {variable}")
            })
        } else {
            through_tunnel(proxy, variable, uri, url, to_proxy).await
        };
        let tunnel = tunnel.map_err(|answer| failed(ProxyCause::Refused(answer)))?;
        let wire = encrypt(url, tunnel, tls).await?;
        let to_proxy = false;
        Ok(Connection { wire, to_proxy })
    }

    /// Connects to the host of a URL, with TLS for HTTPS. With a guard, dials only addresses that the guard admits.
    async fn reach(
        self: &Arc<Self>,
        url: &Url,
        guard: Option<&AddressGuard>,
        attempt: Attempt<'_>,
    ) -> Result<Wire, ConnectError> {
        let tls = self.tls(url, attempt.short_key)?;
        let addresses = self
            .names
            .resolve(name(url))
            .await
            .map_err(ConnectError::Resolve)?;
        let admits = |address: &IpAddr| ready(guard.is_none_or(|guard| guard.admits(*address)));
        let port = url.port_or_known_default().ok_or(ConnectError::NoHost)?;
        let admitted = addresses.filter(admits).take(MAX_ADDRESSES);
        let tcp = dial(admitted.map(|address| SocketAddr::new(address, port))).await?;
        tcp.set_nodelay(true).map_err(ConnectError::Dial)?;
        if let Some(spare) = attempt.spare {
            spare.begin(attempt.uri, &self.spares, || self.spawn_open(attempt.uri));
        }
        let wire = Metered {
            io: tcp,
            meter: attempt.meter.clone(),
        };
        encrypt(url, Box::new(wire), tls).await
    }

    /// Returns the TLS settings for the host of an HTTPS URL; `None` for an HTTP URL.
    fn tls(&self, url: &Url, short_key: bool) -> Result<Option<&Arc<ClientConfig>>, ConnectError> {
        if url.scheme() != "https" {
            return Ok(None);
        }
        let config = self.tls.of(authority(url), short_key);
        config.map(Some).map_err(ConnectError::Setup)
    }
}

/// Has an HTTP proxy open a tunnel to the host of a URL. An error explains the proxy's answer.
async fn through_tunnel(
    proxy: &Proxy,
    variable: &'static str,
    uri: &Uri,
    url: &Url,
    to_proxy: Wire,
) -> Result<Wire, String> {
    let answer = Answer::default();
    let mut to_proxy = Some(TokioIo::new(answer.observe(to_proxy)));
    // The connection to the proxy is already open, so the tunnel's URI of the proxy is ignored.
    let reach = service_fn(move |_: Uri| ready(to_proxy.take().ok_or(ConnectError::NoHost)));
    let mut tunnel = Tunnel::new(uri.clone(), reach);
    if let Some(authorization) = &proxy.authorization {
        tunnel = tunnel.with_auth(authorization.clone());
    }
    match tunnel.call(uri.clone()).await {
        Ok(through) => Ok(through.into_inner().io),
        Err(_) => {
            let host = shown(label(url));
            let is_authorised = proxy.authorization.is_some();
            Err(explain(&answer, &host, variable, is_authorised))
        }
    }
}

/// Has a SOCKS proxy connect to the host of a URL. The proxy resolves the host's name.
async fn through_socks(proxy: &Proxy, url: &Url, to_proxy: Wire) -> Result<Wire, BoxError> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().ok_or(ConnectError::NoHost)?;
    // With the port, because the library otherwise assumes that of HTTPS.
    let server: Uri = format!("{}://{host}:{port}", url.scheme()).parse()?;
    let mut to_proxy = Some(TokioIo::new(to_proxy));
    let reach = service_fn(move |_: Uri| ready(to_proxy.take().ok_or(ConnectError::NoHost)));
    let mut socks = SocksV5::new(server.clone(), reach);
    if let Some(Login { user, password }) = &proxy.login {
        socks = socks.with_auth(user.clone(), password.to_string());
    }
    Ok(socks.call(server).await?.into_inner())
}

async fn encrypt(
    url: &Url,
    wire: Wire,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Wire, ConnectError> {
    let Some(config) = tls else { return Ok(wire) };
    let server = ServerName::try_from(name(url).to_owned()).map_err(|_| ConnectError::NoHost)?;
    let handshake = TlsConnector::from(Arc::clone(config)).connect(server, wire);
    Ok(Box::new(handshake.await.map_err(ConnectError::Tls)?))
}

/// Returns the first connection that succeeds. Each address gets a head start over the next (RFC 8305, section 5).
async fn dial(
    addresses: impl stream::Stream<Item = SocketAddr>,
) -> Result<TcpStream, ConnectError> {
    let mut addresses = pin!(addresses.fuse());
    let mut attempts = FuturesUnordered::new();
    let mut failure = ConnectError::Forbidden;
    let mut head_start = Duration::ZERO;
    loop {
        let next = async {
            if !head_start.is_zero() {
                sleep(head_start).await;
            }
            addresses.next().await
        };
        tokio::select! {
            Some(attempt) = attempts.next() => match attempt {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    failure = ConnectError::Dial(error);
                    head_start = Duration::ZERO;
                }
            },
            Some(address) = next => {
                attempts.push(TcpStream::connect(address));
                head_start = HEAD_START;
            }
            else => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn next_address_is_dialled_when_one_refuses() {
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap();
        let open = open.local_addr().unwrap();
        let dial = async |resolved: &[SocketAddr], later: Option<SocketAddr>| {
            let later = stream::once(ready(later)).filter_map(ready);
            super::dial(stream::iter(resolved.to_vec()).chain(later)).await
        };
        for (resolved, later) in [
            (&[closed, open][..], None),
            (&[closed], Some(open)),
            (&[], Some(open)),
        ] {
            let stream = dial(resolved, later).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), open);
        }
        let refused = dial(&[closed], None).await;
        assert!(
            matches!(refused, Err(ConnectError::Dial(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
        );
        assert!(matches!(
            dial(&[], None).await,
            Err(ConnectError::Forbidden)
        ));
    }
}
