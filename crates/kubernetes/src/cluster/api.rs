//! Requests to an API server, and their responses, of which a bounded part is read.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::config::{AuthInfo, Config};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::error::{ConnectError, RequestError};

pub(super) const JSON: &str = "application/json";
/// Timeout of a connection, unless requests end earlier.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Bytes of an error response that are read, for its message.
const REFUSAL: usize = 64 << 10;

/// Connections to an API server with one identity. Clones share the connections.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) client: Client,
    /// Address of the API server, and the kubeconfig's context: `https://10.0.0.1:443 (context "prod")`.
    pub(super) server: Arc<str>,
    /// Timeout of a request.
    pub(super) time: Duration,
}

impl Api {
    /// Connects without retries.
    pub(super) fn new(mut config: Config, time: Duration) -> Result<Self, ConnectError> {
        config.default_retry = false;
        config.connect_timeout = Some(time.min(CONNECT_TIME));
        config.read_timeout = None;
        config.write_timeout = None;
        trim_token(&mut config.auth_info);
        let server = config.cluster_url.to_string().trim_end_matches('/').into();
        let client = Client::try_from(config).map_err(ConnectError::Client)?;
        Ok(Self { client, server, time })
    }

    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, RequestError> {
        let answer = self.client.send(request.map(Body::from)).await;
        answer.map_err(|error| RequestError::Unreachable(Arc::clone(&self.server), error.into()))
    }

    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Response<Body>, RequestError> {
        success(self.send(Request::get(path).header(ACCEPT, accept).body(Vec::new())?).await?).await
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
        let Ok(data) = frame.map_err(|_| RequestError::Body)?.into_data() else { continue };
        let room = most - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((read, false));
        }
    }
    Ok((read, true))
}

pub(super) fn with_query<'q>(path: &str, pairs: impl IntoIterator<Item = (&'q str, &'q str)>) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("{path}{separator}{query}")
}

/// Prefers a token file to a token, as client-go does, and drops the newline that an editor leaves at its end. kube,
/// which does not trim, reads the file itself if there is nothing to trim, and again after the token has been replaced.
fn trim_token(auth: &mut AuthInfo) {
    let read = |file: &String| std::fs::read_to_string(file).ok().map(Zeroizing::new);
    if let Some(text) = auth.token_file.as_ref().and_then(read) {
        let token = text.trim();
        auth.token = (token.len() < text.len()).then(|| token.into());
    }
}
