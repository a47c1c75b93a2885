use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

pub(crate) mod objects;

/// A Kubernetes API that has Secrets and nothing else, over plain HTTP.
pub(crate) struct ApiServer {
    state: Arc<Api>,
    address: std::net::SocketAddr,
    files: TempDir,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Api {
    answers: Mutex<HashMap<(String, String), (u16, String)>>,
    token: Mutex<String>,
    requests: AtomicUsize,
}

impl ApiServer {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Api { token: Mutex::new("first".into()), ..Api::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/secrets/{name}", get(answer))
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let files = TempDir::new().unwrap();
        std::fs::write(files.path().join("token"), "first").unwrap();
        Self { state, address, files, server }
    }

    /// What it says of a Secret from now on; status 0 is no answer at all.
    pub(crate) fn answer(&self, namespace: &str, name: &str, status: u16, body: &Value) {
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        self.state.answers.lock().unwrap().insert((namespace.into(), name.into()), (status, body));
    }

    /// Lets in this token only, and mounts it.
    pub(crate) fn rotate(&self, token: &str) {
        *self.state.token.lock().unwrap() = token.into();
        std::fs::write(self.files.path().join("token"), token).unwrap();
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn cluster(&self) -> Cluster {
        self.impatient(Duration::from_secs(60))
    }

    pub(crate) fn impatient(&self, time: Duration) -> Cluster {
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
    if headers.get("authorization").is_none_or(|given| *given != token) {
        return (StatusCode::UNAUTHORIZED, "canary").into_response();
    }
    let known = api.answers.lock().unwrap().get(&which).cloned();
    match known {
        Some((0, _)) => std::future::pending().await,
        Some((status, body)) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[derive(Debug, PartialEq, Deserialize)]
struct Thing {
    r#type: String,
}

async fn read(cluster: &Cluster, name: &str) -> Result<Thing, ClusterError> {
    cluster.secret("team", name).await
}

#[tokio::test]
async fn reads_a_secret_and_says_why_not() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &json!({"type": "x"}));
    api.answer("team", "forbidden", 403, &json!({"message": "canary"}));
    api.answer("team", "failing", 500, &json!("canary"));
    api.answer("team", "throttled", 429, &json!("canary"));
    api.answer("team", "garbage", 200, &json!("canary"));
    api.answer("team", "another", 200, &json!({"kind": "canary"}));
    api.answer("team", "huge", 200, &json!({"type": "x".repeat(BODY)}));
    let cluster = api.cluster();
    assert_eq!(read(&cluster, "there").await, Ok(Thing { r#type: "x".into() }));
    for (name, error) in [
        ("forbidden", ClusterError::Forbidden),
        ("missing", ClusterError::NotFound),
        ("failing", ClusterError::Status),
        ("throttled", ClusterError::Status),
        ("garbage", ClusterError::Malformed),
        ("another", ClusterError::Malformed),
        ("huge", ClusterError::TooLarge),
    ] {
        let before = api.requests();
        assert_eq!(read(&cluster, name).await, Err(error), "{name}");
        assert_eq!(api.requests(), before + 1, "{name}: nothing is tried twice");
    }
}

#[tokio::test]
async fn waits_no_longer_than_told() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    let cluster = api.impatient(Duration::from_millis(100));
    assert_eq!(read(&cluster, "hanging").await, Err(ClusterError::Timeout));
}

#[tokio::test]
async fn one_that_does_not_answer_is_left_alone_for_a_while() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    api.answer("team", "there", 200, &json!({"type": "x"}));
    let cluster = api.impatient(Duration::from_millis(500));
    assert_eq!(read(&cluster, "hanging").await, Err(ClusterError::Timeout));
    assert_eq!(read(&cluster, "there").await, Err(ClusterError::Resting));
    assert_eq!(api.requests(), 1);
    tokio::time::pause();
    tokio::time::advance(REST).await;
    tokio::time::resume();
    assert!(read(&cluster, "there").await.is_ok());
}

#[tokio::test]
async fn says_when_there_is_no_api_server() {
    let api = ApiServer::start().await;
    let cluster = api.cluster();
    api.server.abort();
    while !api.server.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&cluster, "there").await, Err(ClusterError::Unreachable));
}

#[tokio::test]
async fn takes_up_a_new_token() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &json!({"type": "x"}));
    let cluster = api.cluster();
    assert!(read(&cluster, "there").await.is_ok());
    api.rotate("second");
    assert!(read(&cluster, "there").await.is_ok());
    assert_eq!(api.requests(), 3, "one was refused");
    assert!(read(&cluster, "there").await.is_ok());
    assert_eq!(api.requests(), 4);
    *api.state.token.lock().unwrap() = "third".into();
    assert_eq!(read(&cluster, "there").await, Err(ClusterError::Unauthorized));
}

/// A Pod's pull secrets are named by the one who creates the Pod, and checked after admission.
#[tokio::test]
async fn a_name_leads_nowhere_else() {
    let api = ApiServer::start().await;
    let cluster = api.cluster();
    let long = "x".repeat(254);
    let odd =
        ["", ".", "..", "../../other/secrets/there", "a/b", "a?b", "a#b", "a%2fb", "A", "a b", "a\n", "a..b"];
    for name in odd.into_iter().chain(["-a", "a-", "é", &long]) {
        assert_eq!(read(&cluster, name).await, Err(ClusterError::Name), "{name:?}");
        let result: Result<Thing, _> = cluster.secret(name, "there").await;
        assert_eq!(result, Err(ClusterError::Name), "{name:?}");
    }
    assert_eq!(api.requests(), 0);
    for name in ["a", "regcred", "my.reg-cred.1", &long[1..]] {
        assert_eq!(read(&cluster, name).await, Err(ClusterError::NotFound), "{name}");
    }
}
