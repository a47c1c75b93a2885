//! A Kubernetes API with Secrets only, over plain HTTP.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use kube::config::Config;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Duration;

use crate::cluster::Cluster;

/// An API that serves until it is dropped.
pub struct ApiServer {
    state: Arc<Api>,
    address: std::net::SocketAddr,
    files: TempDir,
    server: tokio::task::JoinHandle<()>,
}

/// Status and body, by namespace and name.
type Answers = HashMap<(String, String), (u16, String)>;

#[derive(Default)]
struct Api {
    answers: Mutex<Answers>,
    token: Mutex<String>,
    requests: AtomicUsize,
}

impl ApiServer {
    pub async fn start() -> Self {
        let state = Arc::new(Api {
            token: Mutex::new("first".into()),
            ..Api::default()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/secrets/{name}", get(answer))
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let files = TempDir::new().unwrap();
        std::fs::write(files.path().join("token"), "first").unwrap();
        Self {
            state,
            address,
            files,
            server,
        }
    }

    /// Sets the answer for a Secret. Status 0 means no answer.
    pub fn answer(&self, namespace: &str, name: &str, status: u16, body: &Value) {
        let body = body
            .as_str()
            .map_or_else(|| body.to_string(), str::to_owned);
        self.state
            .answers
            .lock()
            .unwrap()
            .insert((namespace.into(), name.into()), (status, body));
    }

    /// Accepts only this token, and writes it to the token file.
    pub fn rotate(&self, token: &str) {
        *self.state.token.lock().unwrap() = token.into();
        std::fs::write(self.files.path().join("token"), token).unwrap();
    }

    /// Accepts only this token, and leaves the former one in the token file.
    pub fn revoke(&self, token: &str) {
        *self.state.token.lock().unwrap() = token.into();
    }

    /// Stops the API, and waits until it has stopped.
    pub async fn stop(&self) {
        self.server.abort();
        while !self.server.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    pub fn cluster(&self) -> Cluster {
        self.impatient(Duration::from_secs(60))
    }

    pub fn impatient(&self, time: Duration) -> Cluster {
        let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
        config.auth_info.token_file = Some(self.files.path().join("token").display().to_string());
        Cluster::new(config, time).unwrap()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    State(api): State<Arc<Api>>,
    Path(which): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    api.requests.fetch_add(1, Ordering::SeqCst);
    let token = format!("Bearer {}", api.token.lock().unwrap());
    if headers
        .get("authorization")
        .is_none_or(|authorization| *authorization != token)
    {
        return (StatusCode::UNAUTHORIZED, "canary").into_response();
    }
    let answer = api.answers.lock().unwrap().get(&which).cloned();
    match answer {
        Some((0, _)) => std::future::pending().await,
        Some((status, body)) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
