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
/// Maximum timeout of a connection; the timeout of requests may be shorter.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum bytes of an error response that are read for its message.
const REFUSAL: usize = 64 << 10;

/// Connections to an API server with one identity. Clones share the connections.
#[derive(Clone)]
pub(super) struct Api {
    access: Arc<Access>,
    connected: Arc<Mutex<Connected>>,
    /// Address of the API server, and the kubeconfig's context: `https://10.0.0.1:443 (context "prod")`.
    pub(super) server: Arc<str>,
    /// Timeout of each attempt of a request.
    pub(super) time: Duration,
    /// Time within which a request may be sent again.
    patience: Duration,
}

impl Api {
    /// Connects. Must be called inside a Tokio runtime.
    pub(super) fn new(
        access: Access,
        time: Duration,
        patience: Duration,
    ) -> Result<Self, ConnectError> {
        let url = access.config.cluster_url.to_string();
        let server = url.trim_end_matches('/').into();
        let connected = access.connect(time.min(CONNECT_TIME))?;
        let connected = Arc::new(Mutex::new(connected));
        Ok(Self {
            access: Arc::new(access),
            connected,
            server,
            time,
            patience,
        })
    }

    /// Makes connections with a client that leads to no server.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn of_client(client: Client, time: Duration) -> Self {
        let config = Config::new(http::Uri::from_static("http://localhost"));
        let connected = Arc::new(Mutex::new(Connected {
            client,
            expires: None,
        }));
        Self {
            access: Arc::new(config.into()),
            connected,
            server: Default::default(),
            time,
            patience: Duration::ZERO,
        }
    }

    /// Returns the namespace of the service account, or of the kubeconfig.
    pub(super) fn namespace(&self) -> &str {
        &self.access.config.default_namespace
    }

    /// Sends a request, and sends it again while the API server requests a pause, within a bound.
    pub(super) async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Body>, RequestError> {
        let begun = Instant::now();
        for _ in 0..TRIES {
            let answer = self.in_time(self.send_now(request.clone())).await;
            let pause = match &answer {
                Ok(answer) => pause_of(answer),
                Err(error) => pause_after(error, request.method()),
            };
            let Some(pause) = pause else {
                return answer;
            };
            if begun.elapsed().saturating_add(pause) > self.patience {
                return answer;
            }
            sleep(pause).await;
        }
        self.in_time(self.send_now(request)).await
    }

    /// Sends a request without pauses. Renews the credentials if they have expired or are refused.
    pub(super) async fn send_now(
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
        // kube reads a token file once a minute only. A token that was replaced in the meantime is refused.
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

    /// Replaces the client by a new one. Returns whether that was possible.
    async fn renew(&self) -> bool {
        let access = Arc::clone(&self.access);
        let time = self.time.min(CONNECT_TIME);
        // The program of a kubeconfig may take a while.
        let connecting = spawn_blocking(move || access.connect(time));
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
        self.success(answer).await
    }

    /// Returns a successful response. Any other becomes an error with the API server's message, read within the
    /// timeout.
    pub(super) async fn success(
        &self,
        answer: Response<Body>,
    ) -> Result<Response<Body>, RequestError> {
        self.in_time(success(answer)).await
    }

    /// Reads the body of a response within the timeout; [`RequestError::TooLarge`] if it has more bytes than `most`.
    pub(super) async fn read_all(&self, body: Body, most: usize) -> Result<Vec<u8>, RequestError> {
        self.in_time(read_all(body, most)).await
    }

    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        match timeout(self.time, answer).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(RequestError::Timeout(Arc::clone(&self.server), self.time)),
        }
    }
}

/// Returns a successful response. Any other becomes an error with the API server's message.
pub(super) async fn success(answer: Response<Body>) -> Result<Response<Body>, RequestError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let (body, _) = read(answer.into_body(), REFUSAL).await?;
    Err(RequestError::refused(status, &body))
}

pub(super) async fn read_all(body: Body, most: usize) -> Result<Vec<u8>, RequestError> {
    match read(body, most).await? {
        (body, true) => Ok(body),
        (_, false) => Err(RequestError::TooLarge),
    }
}

/// Reads at most `most` bytes of a body. Returns whether these are all.
pub(super) async fn read(mut body: Body, most: usize) -> Result<(Vec<u8>, bool), RequestError> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| RequestError::Body)?.into_data() else {
            continue;
        };
        let room = most - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((read, false));
        }
    }
    Ok((read, true))
}

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
