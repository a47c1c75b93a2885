//! A Kubernetes API with objects of any kind that are read and patched, over plain HTTP.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode};
use kube::config::Config;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Duration;

use crate::cluster::Cluster;

/// The API serves until it is dropped.
pub struct Objects {
    state: Arc<Store>,
    address: std::net::SocketAddr,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Store {
    objects: Mutex<BTreeMap<String, Value>>,
    version: AtomicUsize,
    creations: AtomicUsize,
    requests: AtomicUsize,
    /// Time of the answers, in seconds since 1970.
    time: Mutex<u64>,
    /// Method and part of the path of requests that are refused, and the status.
    refused: Mutex<Option<(Method, &'static str, u16)>>,
    /// Number of requests that are still answered, and whether the request after them is carried out.
    stall: Mutex<Option<(usize, bool)>>,
    stalled: Notify,
}

impl Objects {
    pub async fn start() -> Self {
        let state = Arc::new(Store::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(handle).with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { state, address, server }
    }

    pub fn cluster(&self) -> Cluster {
        let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
        config.default_namespace = "team".into();
        Cluster::new(config, Duration::from_secs(60)).unwrap()
    }

    pub fn put(&self, path: &str, mut object: Value) {
        let version = self.state.version.fetch_add(1, Ordering::SeqCst).to_string();
        object["metadata"]["resourceVersion"] = version.into();
        self.state.objects.lock().unwrap().insert(path.into(), object);
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.objects.lock().unwrap().get(path).cloned()
    }

    /// Returns the objects below this path.
    pub fn all(&self, below: &str) -> Vec<Value> {
        let objects = self.state.objects.lock().unwrap();
        objects.iter().filter(|(path, _)| path.starts_with(below)).map(|(_, object)| object.clone()).collect()
    }

    /// Returns the number of requests to create objects so far, those for existing objects included.
    pub fn creations(&self) -> usize {
        self.state.creations.load(Ordering::SeqCst)
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    pub fn delete(&self, path: &str) {
        self.state.objects.lock().unwrap().remove(path);
    }

    /// Sets the clock.
    pub fn set_time(&self, seconds: u64) {
        *self.state.time.lock().unwrap() = seconds;
    }

    /// Answers requests of this method and path with this status from now on, and no others.
    pub fn refuse(&self, what: Option<(Method, &'static str, u16)>) {
        *self.state.refused.lock().unwrap() = what;
    }

    /// Answers so many requests, and the next one never, though it may be carried out.
    pub fn stall(&self, after: usize, carried_out: bool) {
        *self.state.stall.lock().unwrap() = Some((after, carried_out));
    }

    /// Waits for the request that is never answered.
    pub async fn stalled(&self) {
        self.state.stalled.notified().await;
    }

    /// Ends the API, so that connections are refused.
    pub async fn stop(mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle(State(store): State<Arc<Store>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    store.requests.fetch_add(1, Ordering::SeqCst);
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let stall = {
        let mut stall = store.stall.lock().unwrap();
        match &mut *stall {
            Some((0, carried_out)) => {
                let carried_out = *carried_out;
                *stall = None;
                Some(carried_out)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    };
    if stall != Some(false) {
        let (status, body) = answer(&store, &head.method, head.uri.path(), &head.headers, &body);
        if stall.is_none() {
            let date = UNIX_EPOCH + Duration::from_secs(*store.time.lock().unwrap());
            let date = [("date", httpdate::fmt_http_date(date))];
            return (StatusCode::from_u16(status).unwrap(), date, body).into_response();
        }
    }
    store.stalled.notify_one();
    std::future::pending().await
}

fn answer(store: &Store, method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> (u16, String) {
    if method == Method::POST {
        store.creations.fetch_add(1, Ordering::SeqCst);
    }
    if let Some((refused, part, status)) = &*store.refused.lock().unwrap()
        && refused == method
        && path.contains(part)
    {
        return (*status, "canary".into());
    }
    let mut objects = store.objects.lock().unwrap();
    let old = objects.get(path).cloned();
    if method == Method::GET {
        return old.map_or((404, "canary".into()), |object| (200, object.to_string()));
    }
    let patch: Value = serde_json::from_slice(body).unwrap();
    if method == Method::POST {
        let path = format!("{path}/{}", patch["metadata"]["name"].as_str().unwrap());
        let is_new = objects.insert(path, patch).is_none();
        return if is_new { (201, "{}".into()) } else { (409, "canary".into()) };
    }
    let how = headers.get("content-type").unwrap().to_str().unwrap();
    let mut new = match (&old, how) {
        (None, "application/apply-patch+yaml") => patch,
        (None, _) => return (404, "canary".into()),
        (Some(old), "application/apply-patch+yaml") => return (200, old.to_string()),
        (Some(old), "application/merge-patch+json") => {
            let mut new = old.clone();
            json_patch::merge(&mut new, &patch);
            new
        }
        (Some(old), "application/json-patch+json") => {
            let mut new = old.clone();
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            if json_patch::patch(&mut new, &patch).is_err() {
                return (422, "canary".into());
            }
            new
        }
        (_, other) => panic!("{other}"),
    };
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    if old.is_some_and(|old| version(&old) != version(&new)) {
        return (409, "canary".into());
    }
    new["metadata"]["resourceVersion"] = store.version.fetch_add(1, Ordering::SeqCst).to_string().into();
    objects.insert(path.into(), new.clone());
    (200, new.to_string())
}
