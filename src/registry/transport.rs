//! One bounded request: send it, read the answer to its limit, count it. Knows nothing of manifests and tokens.

use std::error::Error as StdError;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, PROXY_AUTHORIZATION, RETRY_AFTER,
    USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Duration, Instant, timeout};
use url::Url;

use super::connect::{ConnectError, Connector};
use super::endpoint::Endpoint;
use super::manifest::ManifestError;
use super::{Error, RegistryMetrics, RequestKind, limits, trace};
use crate::body::{Bounds, Read, ReadError};

/// A client of any number of hosts; connections are kept for the next request.
pub(super) struct Transport {
    client: Client<Connector, Full<Bytes>>,
    connector: Connector,
    bounds: Bounds,
    metrics: RegistryMetrics,
}

/// One request.
pub(super) struct Get<'a> {
    pub(super) kind: RequestKind,
    pub(super) method: Method,
    pub(super) url: &'a Url,
    /// The place that it is for, whose headers are sent along; `None` elsewhere.
    pub(super) home: Option<&'a Endpoint>,
    pub(super) accept: &'static str,
    pub(super) authorization: Option<&'a HeaderValue>,
    /// Bytes of the body of a success that are read at most.
    pub(super) limit: usize,
    /// A form to send along.
    pub(super) form: Option<Bytes>,
}

/// What came back, of any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The whole body of a success; of anything else nothing.
    body: Read,
}

impl Answer {
    pub(super) fn body(&self) -> &[u8] {
        &self.body.bytes
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How many requests are left of a limit (Docker Hub: `ratelimit-remaining: 20;w=21600`).
    fn requests_left(&self) -> Option<i64> {
        let text = self.header("ratelimit-remaining")?;
        let left = text.split(';').next()?.trim().parse::<u32>().ok()?;
        Some(left.into())
    }

    /// How long a registry that is asked too much wants to be left alone (RFC 9110 section 10.2.3): seconds, or a
    /// date; `None` if it does not say.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        match text.parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(std::time::SystemTime::now()).ok(),
        }
    }
}

impl Transport {
    pub(super) fn new(connector: Connector, metrics: RegistryMetrics) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits::IDLE_TIME)
            .pool_max_idle_per_host(limits::IDLE)
            .http1_max_buf_size(limits::HEADERS)
            .build(connector.clone());
        Self { client, connector, bounds: Bounds::new(limits::SMALL, limits::LARGE), metrics }
    }

    /// Sends it. There is no timeout in here: whoever looks up has one for the whole lookup.
    pub(super) async fn get(&self, get: &Get<'_>) -> Result<Answer, Error> {
        let label = super::authority::label(get.url);
        let observed = self.metrics.request(&label, get.kind);
        let begun = Instant::now();
        let place = trace::asks(get.kind, get.method.as_str(), get.url, get.authorization);
        let answer = self.send(get).await;
        let outcome = answer.as_ref().map(|answer| answer.status.as_u16()).map_err(Error::kind);
        trace::answered(place, outcome, begun.elapsed());
        if let Some(left) = answer.as_ref().ok().and_then(Answer::requests_left) {
            self.metrics.requests_left(&label, left);
        }
        observed.end(match &answer {
            Ok(answer) => match answer.status.as_u16() {
                200..=299 => "2xx",
                300..=399 => "3xx",
                400..=499 => "4xx",
                500..=599 => "5xx",
                _ => "other",
            },
            Err(error) => error.kind(),
        });
        answer
    }

    async fn send(&self, get: &Get<'_>) -> Result<Answer, Error> {
        let uri: Uri =
            get.url.as_str().parse().map_err(|_| Error::Unreachable("a URL that cannot be asked".into()))?;
        let mut request = Request::builder()
            .method(get.method.clone())
            .uri(uri)
            .header(ACCEPT, get.accept)
            // Nothing is decompressed, so there is nothing that could swell.
            .header(ACCEPT_ENCODING, "identity")
            .header(USER_AGENT, concat!("tolerarch/", env!("CARGO_PKG_VERSION")));
        for (name, value) in get.home.into_iter().flat_map(|home| &home.headers) {
            // What is known of whoever asks counts more than what is sent for everybody.
            if *name != AUTHORIZATION || get.authorization.is_none() {
                request = request.header(name, value);
            }
        }
        if let Some(authorization) = get.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(authorization) = self.connector.proxy_authorization(get.url) {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        if get.form.is_some() {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request
            .body(get.form.clone().map_or_else(Full::default, Full::new))
            .map_err(|_| Error::Unreachable("a request that cannot be made".into()))?;
        let response = self.client.request(request).await.map_err(|error| {
            // Where it sends others to is not its own fault.
            if let Some(home) = get.home.filter(|_| error.is_connect()) {
                home.health.note_unreachable();
            }
            broken(&error)
        })?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            // Read only so that the connection can be used again; what it says is of no interest.
            let _ = timeout(limits::ERROR_TIME, Limited::new(body, limits::ERROR).collect()).await;
            return Ok(Answer { status: head.status, headers: head.headers, body: Read::nothing() });
        }
        if head
            .headers
            .get(CONTENT_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            return Err(ManifestError::Encoding.into());
        }
        let body = self.bounds.read(body, get.limit).await.map_err(|error| match error {
            ReadError::TooLarge => ManifestError::TooLarge.into(),
            ReadError::Broken(error) => broken(&error),
        })?;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// What kind of failure this is. The text is that of the causes, which quote nothing of an answer's body, but perhaps of a
/// certificate; hence it is cut.
fn broken(error: &(dyn StdError + 'static)) -> Error {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<ConnectError>() {
            Some(ConnectError::Forbidden) => return Error::AddressNotAllowed,
            Some(_) => text.clear(),
            None => {}
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    Error::Unreachable(text.chars().take(limits::CAUSE).collect())
}
