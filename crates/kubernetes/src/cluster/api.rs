//! Requests to an API server, and bounded reading of its responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::ACCEPT;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
#[cfg(any(test, feature = "testing"))]
use kube::Client;
use kube::client::Body;
#[cfg(any(test, feature = "testing"))]
use kube::config::Config;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::access::{Access, Connected};
use super::error::{ConnectError, RequestError};
use super::later::{TRIES, pause_after, pause_of};
use tolerarch_support::sync::Mutex;

pub(super) const JSON: &str = "application/json";
/// Maximum timeout for connecting. A shorter timeout of requests also applies to connecting.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an error response that are read for its message.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Connections to an API server with one identity. Clones share the connections.
#[derive(Clone)]
pub(super) struct Api {
    access: Arc<Access>,
    connected: Arc<Mutex<Connected>>,
    /// Address of the API server, and the kubeconfig's context: `https://10.0.0.1:443 (context "prod")`.
    pub(super) server: Arc<str>,
    /// Timeout of each attempt of a request.
    timeout: Duration,
    /// Time after the first attempt within which a request may be sent again.
    retry_time: Duration,
}

impl Api {
    /// Connects. Must be called inside a Tokio runtime.
    pub(super) fn new(
        access: Access,
        timeout: Duration,
        retry_time: Duration,
    ) -> Result<Self, ConnectError> {
        let url = access.config.cluster_url.to_string();
        let server = url.trim_end_matches('/').into();
        let connected = access.connect(timeout.min(MAX_CONNECT_TIMEOUT))?;
        let connected = Arc::new(Mutex::new(connected));
        Ok(Self {
            access: Arc::new(access),
            connected,
            server,
            timeout,
            retry_time,
        })
    }

    /// Makes connections for a test from this client, which connects to no server.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn of_client(client: Client, timeout: Duration) -> Self {
        let config = Config::new(http::Uri::from_static("http://localhost"));
        let connected = Arc::new(Mutex::new(Connected {
            client,
            expires: None,
        }));
        Self {
            access: Arc::new(config.into()),
            connected,
            server: Default::default(),
            timeout,
            retry_time: Duration::ZERO,
        }
    }

    /// Returns the namespace of the service account, or of the kubeconfig.
    pub(super) fn namespace(&self) -> &str {
        &self.access.config.default_namespace
    }

    /// Sends a request. Sends it again after the pause that the API server requests, and sends a GET again after its
    /// connection broke, at most [`TRIES`] times and within `retry_time`.
    pub(super) async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Body>, RequestError> {
        let start = Instant::now();
        for _ in 0..TRIES {
            let attempt = self.send_with_renewal(request.clone());
            let answer = self.in_time(attempt).await;
            let pause = match &answer {
                Ok(answer) => pause_of(answer),
                Err(error) => pause_after(error, request.method()),
            };
            let Some(pause) = pause else {
                return answer;
            };
            if start.elapsed().saturating_add(pause) > self.retry_time {
                return answer;
            }
            sleep(pause).await;
        }
        self.in_time(self.send_with_renewal(request)).await
    }

    /// Sends a request without pauses. Renews the credentials if they have expired or are refused.
    pub(super) async fn send_with_renewal(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Body>, RequestError> {
        let expires = self.connected.lock().expires;
        if expires.is_some_and(|end| end <= SystemTime::now()) {
            self.renew().await;
        }
        let answer = self.send_once(request.clone()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || !self.access.is_renewable() {
            return Ok(answer);
        }
        // kube reads a token file only once a minute. If the file was replaced since, the API server refuses the old
        // token.
        if self.renew().await {
            self.send_once(request).await
        } else {
            Ok(answer)
        }
    }

    async fn send_once(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
        let client = self.connected.lock().client.clone();
        let answer = client.send(request.map(Body::from)).await;
        answer.map_err(|error| RequestError::Unreachable(Arc::clone(&self.server), error.into()))
    }

    /// Replaces the client with a new one. Returns whether the new client could be made.
    async fn renew(&self) -> bool {
        let access = Arc::clone(&self.access);
        let timeout = self.timeout.min(MAX_CONNECT_TIMEOUT);
        // The program that a kubeconfig names may take a while.
        let connecting = spawn_blocking(move || access.connect(timeout));
        match connecting.await {
            Ok(Ok(connected)) => {
                *self.connected.lock() = connected;
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the credentials for the Kubernetes API cannot be read again");
                false
            }
            Err(_) => false,
        }
    }

    pub(super) async fn get(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<Response<Body>, RequestError> {
        let request = Request::get(path).header(ACCEPT, accept);
        let answer = self.send(request.body(Vec::new())?).await?;
        self.require_success(answer).await
    }

    /// Returns a successful response. Any other response becomes an error with the API server's message, which is read
    /// within the timeout.
    pub(super) async fn require_success(
        &self,
        answer: Response<Body>,
    ) -> Result<Response<Body>, RequestError> {
        self.in_time(require_success(answer)).await
    }

    /// Reads the body of a response within the timeout; [`RequestError::TooLarge`] if it has more than `max_bytes`.
    pub(super) async fn read_all(
        &self,
        body: Body,
        max_bytes: usize,
    ) -> Result<Vec<u8>, RequestError> {
        self.in_time(read_all(body, max_bytes)).await
    }

    /// Awaits an operation for at most the timeout of an attempt.
    pub(super) async fn in_time<T>(
        &self,
        operation: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        match timeout(self.timeout, operation).await {
            Ok(result) => result,
            Err(_elapsed) => Err(RequestError::Timeout(
                Arc::clone(&self.server),
                self.timeout,
            )),
        }
    }
}

/// Returns a successful response. Any other response becomes an error with the API server's message.
pub(super) async fn require_success(
    answer: Response<Body>,
) -> Result<Response<Body>, RequestError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let (body, _) = read_up_to(answer.into_body(), MAX_ERROR_BYTES).await?;
    Err(RequestError::refused(status, &body))
}

pub(super) async fn read_all(body: Body, max_bytes: usize) -> Result<Vec<u8>, RequestError> {
    match read_up_to(body, max_bytes).await? {
        (body, true) => Ok(body),
        (_, false) => Err(RequestError::TooLarge),
    }
}

/// Reads at most `max_bytes` of a body. Returns the bytes, and whether they are the whole body.
pub(super) async fn read_up_to(
    mut body: Body,
    max_bytes: usize,
) -> Result<(Vec<u8>, bool), RequestError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| RequestError::Body)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = max_bytes - bytes.len();
        let taken = data.len().min(room);
        bytes.extend_from_slice(&data[..taken]);
        if data.len() > room {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

/// Appends a query to a path. The path may have a query already.
pub(super) fn with_query<'q>(
    path: &str,
    pairs: impl IntoIterator<Item = (&'q str, &'q str)>,
) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish();
    format!("{path}{separator}{query}")
}
