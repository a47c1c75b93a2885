//! A Kubernetes API over plain HTTP, with answers that a test chooses.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use kube::config::Config;
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::cluster::{Cluster, UserClient};

/// A request to the API.
pub struct ApiRequest {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub authorization: String,
    pub body: Value,
}

/// An answer of the API. An array is served as a list, page by page.
pub struct Reply {
    pub status: u16,
    pub warning: Option<String>,
    /// Value of `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    pub body: Value,
    /// Time until the answer, by the test's clock.
    pub takes: Duration,
}

impl Reply {
    pub fn of(status: u16, body: Value) -> Self {
        Self {
            status,
            warning: None,
            retry_after: None,
            body,
            takes: Duration::ZERO,
        }
    }

    /// Makes a refusal with a `Retry-After` of this number of seconds.
    pub fn later(status: u16, seconds: u64) -> Self {
        let body = json!({"kind": "Status", "message": "storage is (re)initializing"});
        Self {
            retry_after: Some(seconds),
            ..Self::of(status, body)
        }
    }

    pub fn refused(status: u16, message: &str) -> Self {
        Self::of(status, json!({"kind": "Status", "message": message}))
    }
}

/// Number of objects on a page: fewer than clients request.
const SMALL_PAGE: usize = 2;

/// An API that serves until it is dropped.
pub struct FakeApi {
    pub url: String,
    server: tokio::task::JoinHandle<()>,
}

impl FakeApi {
    pub async fn start(answer: impl Fn(ApiRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(answer);
        let router = Router::new().fallback(
            async move |method, uri: Uri, headers: HeaderMap, body: Bytes| {
                respond(&*answer, method, &uri, &headers, &body).await
            },
        );
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, server }
    }

    pub fn cluster(&self) -> Cluster {
        Cluster::new(
            Config::new(self.url.parse().unwrap()),
            Duration::from_secs(60),
        )
        .unwrap()
    }

    pub fn client(&self) -> UserClient {
        UserClient::new(Config::new(self.url.parse().unwrap())).unwrap()
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(
    answer: &impl Fn(ApiRequest) -> Reply,
    method: Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let header = headers
        .get("authorization")
        .map(|value| value.to_str().unwrap().to_owned());
    let query = uri.query().unwrap_or_default().to_owned();
    let reply = answer(ApiRequest {
        method,
        path: uri.path().to_owned(),
        query: query.clone(),
        authorization: header.unwrap_or_default(),
        body: serde_json::from_slice(body).unwrap_or_default(),
    });
    if reply.takes > Duration::ZERO {
        tokio::time::pause();
        tokio::time::advance(reply.takes).await;
        tokio::time::resume();
    }
    let body = match &reply.body {
        Value::Array(items) => page(items, &query).to_string(),
        Value::String(text) => text.clone(),
        object => object.to_string(),
    };
    let mut response = (StatusCode::from_u16(reply.status).unwrap(), body).into_response();
    if let Some(warning) = reply.warning {
        response
            .headers_mut()
            .append("warning", format!("299 - \"{warning}\"").parse().unwrap());
    }
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().append("retry-after", seconds.into());
    }
    response
}

fn page(items: &[Value], query: &str) -> Value {
    let pairs: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let value = |name: &str| {
        let mut pairs = pairs.iter();
        let (_, value) = pairs.find(|(key, _)| key == name)?;
        Some(value.as_str())
    };
    if value("limit").is_none() {
        return json!({"items": items});
    }
    let begin = value("continue").map_or(0, |token| {
        token.strip_prefix("a+/=").unwrap().parse().unwrap()
    });
    let end = items.len().min(begin + SMALL_PAGE);
    let more = if end < items.len() {
        format!("a+/={end}")
    } else {
        String::new()
    };
    json!({"metadata": {"continue": more}, "items": items[begin..end]})
}
