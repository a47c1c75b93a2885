//! Sends one bounded request, reads the response up to its limit, and counts it. Does not interpret manifests or
//! tokens.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, PROXY_AUTHORIZATION, USER_AGENT,
};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Duration, Instant, timeout};
use tower::service_fn;
use tower::util::BoxCloneSyncService;
use url::Url;

use super::allowance::Allowances;
use super::authority::label;
use super::connect::{ConnectError, Connector};
use super::named::NamedServers;
use super::no_connection::{self, causes, texts};
use super::spare;
use super::stream::{Reuse, Stream};
use crate::meter::TooManyBytes;
use crate::registry::error::Error;
use crate::registry::manifest::ManifestError;
use crate::registry::metrics::{RegistryMetrics, RequestKind};
use crate::registry::response::{HttpResponse, is_encoded};
use crate::registry::trace;
use tolerarch_support::body::{Budget, Read, ReadError};

/// Maximum bytes of the body of an error response, which is read so that the connection can be used again.
const ERROR: usize = 64 << 10;
/// Maximum time to read the body of an error response.
const ERROR_TIME: Duration = Duration::from_millis(500);
/// Maximum bytes of all answers that are being read: twelve of the largest manifests. When they exceed it, the largest
/// and slowest answers are dropped.
const BODIES: usize = 48 << 20;
/// Maximum bytes of the headers of an answer.
const HEADERS: usize = 64 << 10;
/// Maximum number of header lines of an answer. Go's client limits only the bytes.
const HEADER_LINES: usize = 2048;
/// Maximum number of idle connections to one registry: as many as there are concurrent lookups by default
/// (`lookup.perRegistry`). With fewer, connections of lookups that end together would be closed while others wait to
/// begin.
const IDLE: usize = 16;
/// Maximum time for which a connection stays idle.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Error of an answer that was so large or slow that others needed its memory.
const CROWDED: &str = "the answer was too large or slow while memory was needed for others";

/// Error of a reused or spare connection on which a 408 arrives. A server may send a 408 without a request to close a
/// connection that was idle, and it may cross with a request (RFC 9110 section 15.5.9).
const IDLE_TOO_LONG: &str = "the connection broke: the server has ended it with a 408";

type HttpClient = Client<BoxCloneSyncService<Uri, TokioIo<Stream>, ConnectError>, Full<Bytes>>;

/// A client for any number of hosts, which keeps idle connections for later requests.
pub(crate) struct Transport {
    client: HttpClient,
    /// Client that opens a connection for each request.
    fresh: HttpClient,
    connector: Arc<Connector>,
    bodies: Budget,
    metrics: RegistryMetrics,
    pub(crate) allowances: Allowances,
    pub(crate) named_servers: NamedServers,
}

pub(crate) struct HttpRequest<'a> {
    pub(crate) kind: RequestKind,
    pub(crate) url: &'a Url,
    pub(crate) authorization: Option<&'a HeaderValue>,
    pub(crate) server: Server<'a>,
    /// Body of a POST request.
    pub(crate) form: Option<Bytes>,
    /// True if sending the request twice has the same effect as sending it once.
    pub(crate) is_idempotent: bool,
}

/// Who named the server of a request.
#[derive(Clone, Copy)]
pub(crate) enum Server<'a> {
    /// An image or the operator, who configured these headers for it.
    Configured(&'a HeaderMap),
    /// A registry, as its token server or the target of a redirect. The server gets no configured headers, and only few
    /// concurrent requests.
    NamedByRegistry,
}

impl HttpRequest<'_> {
    /// Returns whether the request goes to a registry or mirror that the image or the operator has named.
    fn is_to_endpoint(&self) -> bool {
        self.kind != RequestKind::Token && matches!(self.server, Server::Configured(_))
    }

    fn method(&self) -> Method {
        match (self.kind, &self.form) {
            (RequestKind::Head, _) => Method::HEAD,
            (_, Some(_)) => Method::POST,
            _ => Method::GET,
        }
    }
}

impl Transport {
    pub(crate) fn new(
        connector: Connector,
        metrics: RegistryMetrics,
        named_servers: NamedServers,
    ) -> Self {
        let connector = Arc::new(connector);
        let opening = Arc::clone(&connector);
        let open = BoxCloneSyncService::new(service_fn(move |uri| {
            let connector = Arc::clone(&opening);
            async move { connector.open(&uri).await }
        }));
        let opening = Arc::clone(&connector);
        let open_new = BoxCloneSyncService::new(service_fn(move |uri| {
            let connector = Arc::clone(&opening);
            async move { connector.open_new(&uri, None).await.map(TokioIo::new) }
        }));
        let mut client = Client::builder(TokioExecutor::new());
        client
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE)
            .http1_max_buf_size(HEADERS)
            // Go's client accepts these from servers and from proxies in front of them.
            .http1_max_headers(HEADER_LINES)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            // Go accepts even blanks in names of headers. No header with such a name is used here, so they are ignored.
            .http1_ignore_invalid_headers_in_responses(true);
        Self {
            client: client.build(open),
            fresh: client.pool_max_idle_per_host(0).build(open_new),
            connector,
            bodies: Budget::new(BODIES),
            metrics,
            allowances: Allowances::new(),
            named_servers,
        }
    }

    /// Sends a request. Sends an idempotent one once more, on a new connection, if a reused connection closes without
    /// an answer, as Go's `Transport` does: servers and load balancers close idle connections at any time. Has no
    /// timeout, because the caller limits the time of the whole lookup.
    pub(crate) async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, Error> {
        let permit = match request.server {
            Server::Configured(_) => None,
            Server::NamedByRegistry => Some(self.named_servers.permit(request.url).await?),
        };
        let mut result = self.observe(&self.client, request).await;
        if let Err(Error::Closed(_)) = result
            && request.is_idempotent
        {
            result = self.observe(&self.fresh, request).await;
        }
        drop(permit);
        result
    }

    async fn observe(
        &self,
        client: &HttpClient,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, Error> {
        let HttpRequest { kind, url, .. } = *request;
        let label = label(url);
        let mut observed = self.metrics.request(label, kind);
        let begun = Instant::now();
        let method = request.method();
        let index = trace::record_request(kind, method.as_str(), url, request.authorization);
        let response = self.exchange(client, request).await;
        let outcome = match &response {
            Ok(response) => Ok(response.status.as_u16()),
            Err(error) => Err(failure(error)),
        };
        trace::record_outcome(index, outcome, begun.elapsed());
        if let Ok(response) = &response
            && let Some((left, limit)) = response.allowance()
        {
            self.metrics.requests_left(label, left.into());
            self.allowances.record(label, left, limit);
        }
        *observed = match outcome {
            Ok(200..=299) => "2xx",
            Ok(300..=399) => "3xx",
            Ok(400..=499) => "4xx",
            Ok(500..=599) => "5xx",
            Ok(_) => "other",
            Err(kind) => kind,
        };
        response
    }

    async fn exchange(
        &self,
        client: &HttpClient,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, Error> {
        let answer = client.request(self.build(request)?);
        let answer = if request.is_to_endpoint() {
            answer.await
        } else {
            spare::without(answer).await
        };
        let response = answer.map_err(|error| broken(request.url, &error))?;
        let (head, body) = response.into_parts();
        if let Some(refusal) = self.connector.refused_by_proxy(request.url, head.status) {
            let why = no_connection::explain(request.url, &refusal);
            return Err(Error::NoConnection(why));
        }
        if head.status == StatusCode::REQUEST_TIMEOUT && is_reused(&head.extensions) {
            return Err(Error::Closed(IDLE_TOO_LONG.into()));
        }
        let body = if head.status.is_success() {
            if is_encoded(&head.headers) {
                return Err(ManifestError::Encoding.into());
            }
            let limit = request.kind.limit();
            match self.bodies.read(body, limit, Instant::now(), None).await {
                Ok(body) => body,
                Err(ReadError::TooLarge) => return Err(ManifestError::TooLarge.into()),
                Err(ReadError::BudgetExhausted | ReadError::TooSlow) => {
                    return Err(Error::Unexpected(CROWDED.into()));
                }
                Err(ReadError::Broken(error)) => return Err(broken(request.url, &error)),
            }
        } else {
            // The body is read so that the connection can be used again, and because it may say more than the status.
            let read = self.bodies.read(body, ERROR, Instant::now(), None);
            match timeout(ERROR_TIME, read).await {
                Ok(Ok(body)) => body,
                _ => Read {
                    bytes: Bytes::new(),
                    reservation: self.bodies.reserve(Instant::now()),
                },
            }
        };
        Ok(HttpResponse {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    fn build(&self, request: &HttpRequest<'_>) -> Result<Request<Full<Bytes>>, Error> {
        let invalid =
            |_| Error::Unreachable("the connection broke: the URL is not valid in HTTP".into());
        let mut built = Request::new(Full::new(request.form.clone().unwrap_or_default()));
        *built.method_mut() = request.method();
        *built.uri_mut() = request.url.as_str().parse().map_err(invalid)?;
        let mut headers = match request.server {
            Server::Configured(headers) => headers.clone(),
            Server::NamedByRegistry => HeaderMap::new(),
        };
        let mut set = |name, value| drop(headers.insert(name, HeaderValue::from_static(value)));
        set(ACCEPT, request.kind.accept());
        // Nothing is decompressed, so no answer can grow beyond its limit.
        set(ACCEPT_ENCODING, "identity");
        set(USER_AGENT, concat!("tolerarch/", env!("CARGO_PKG_VERSION")));
        if request.form.is_some() {
            set(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        // A credential for this image takes precedence over a header for all images.
        if let Some(authorization) = request.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(authorization) = self.connector.proxy_authorization(request.url) {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        *built.headers_mut() = headers;
        Ok(built)
    }
}

/// Classifies a failed request to this URL. The text comes from the error's causes, which quote nothing of a body.
fn broken(url: &Url, error: &(dyn StdError + 'static)) -> Error {
    if causes(error).any(TooManyBytes::is_cause_of) {
        return ManifestError::TooLarge.into();
    }
    // The outermost error, because it distinguishes the proxy from the server behind the proxy.
    let connect_error = causes(error).find_map(|cause| cause.downcast_ref::<ConnectError>());
    match connect_error {
        Some(ConnectError::Forbidden) => Error::AddressNotAllowed,
        Some(error @ ConnectError::Setup(_)) => Error::TlsSetup(no_connection::explain(url, error)),
        Some(error) => Error::NoConnection(no_connection::explain(url, error)),
        None => {
            let kind = if is_stale(error) {
                Error::Closed
            } else {
                Error::Unreachable
            };
            let alert = no_connection::explain_alert(url, error);
            kind(alert.unwrap_or_else(|| format!("the connection broke: {}", texts(error))))
        }
    }
}

/// Returns whether the connection of an answer had been used or opened before the request.
fn is_reused(extras: &Extensions) -> bool {
    extras.get::<Reuse>().is_some_and(Reuse::is_reused)
}

/// Returns whether a reused connection ended before any byte of the answer.
fn is_stale(error: &(dyn StdError + 'static)) -> bool {
    let mut extras = Extensions::new();
    if let Some(connected) = error.downcast_ref().and_then(legacy::Error::connect_info) {
        connected.get_extras(&mut extras);
    }
    let reuse = extras.get::<Reuse>();
    reuse.is_some_and(Reuse::is_unanswered)
}

/// Returns the kind of a failure for metrics and traces.
fn failure(error: &Error) -> &'static str {
    match error {
        Error::Closed(_) => "closed",
        Error::AddressNotAllowed => "address-not-allowed",
        Error::BadManifest(_) => "bad-manifest",
        Error::Unexpected(_) => "overloaded",
        _ => "unreachable",
    }
}
