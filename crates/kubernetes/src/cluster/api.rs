//! Requests to an API server, and their responses, of which a bounded part is read.

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
/// Timeout of a connection, unless requests end earlier.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Bytes of an error response that are read, for its message.
const REFUSAL: usize = 64 << 10;

/// Connections to an API server with one identity. Clones share the connections.
#[derive(Clone)]
pub(super) struct Api {
    access: Arc<Access>,
    connected: Arc<Mutex<Connected>>,
    /// Address of the API server, and the kubeconfig's context: `https://10.0.0.1:443 (context "prod")`.
    pub(super) server: Arc<str>,
    /// Timeout of a request, each time that it is sent.
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

    /// Sends a request; again while the API server says that it answers later, within a bound.
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
            match pause {
                Some(pause) if begun.elapsed().saturating_add(pause) <= self.patience => {
                    sleep(pause).await;
                }
                _ => return answer,
            }
        }
        self.in_time(self.send_now(request)).await
    }

    /// Sends a request once; with new credentials if the old ones have expired, or are refused.
    pub(super) async fn send_now(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Body>, RequestError> {
        let expires = self.connected.lock().expires;
        if expires.is_some_and(|end| end <= SystemTime::now()) {
            self.renew().await;
        }
        let answer = self.send_once(request.clone()).await?;
        // kube reads a token file once a minute; a token that was replaced earlier is refused until then.
        if answer.status() != StatusCode::UNAUTHORIZED
            || !self.access.is_renewable()
            || !self.renew().await
        {
            return Ok(answer);
        }
        self.send_once(request).await
    }

    async fn send_once(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
        let client = self.connected.lock().client.clone();
        let answer = client.send(request.map(Body::from)).await;
        answer.map_err(|error| RequestError::Unreachable(Arc::clone(&self.server), error.into()))
    }

    /// Makes the client anew. Returns whether that was possible.
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

    /// Returns a successful answer, and any other as an error with the API server's message, read within the timeout.
    pub(super) async fn success(
        &self,
        answer: Response<Body>,
    ) -> Result<Response<Body>, RequestError> {
        self.in_time(success(answer)).await
    }

    /// Reads the body of an answer within the timeout; [`RequestError::TooLarge`] if it has more bytes than `most`.
    pub(super) async fn read_all(&self, body: Body, most: usize) -> Result<Vec<u8>, RequestError> {
        self.in_time(read_all(body, most)).await
    }

    pub(super) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        let late = |_| Err(RequestError::Timeout(Arc::clone(&self.server), self.time));
        timeout(self.time, answer).await.unwrap_or_else(late)
    }
}

/// Returns a successful response, and any other as an error with the API server's message.
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

/// Reads at most `most` bytes of a body, and returns whether that is all.
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
