//! A Kubernetes API with objects of any kind, over plain HTTP. Objects can be read and changed.

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

/// An API that serves until it is dropped.
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
    /// Number of requests that are still answered, and whether the following request is carried out.
    stall: Mutex<Option<(usize, bool)>>,
    stalled: Notify,
}

impl Objects {
    pub async fn start() -> Self {
        let state = Arc::new(Store::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .fallback(handle)
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            state,
            address,
            server,
        }
    }

    pub fn cluster(&self) -> Cluster {
        let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
        config.default_namespace = "team".into();
        Cluster::new(config, Duration::from_secs(60)).unwrap()
    }

    pub fn put(&self, path: &str, mut object: Value) {
        let version = self
            .state
            .version
            .fetch_add(1, Ordering::SeqCst)
            .to_string();
        object["metadata"]["resourceVersion"] = version.into();
        self.state
            .objects
            .lock()
            .unwrap()
            .insert(path.into(), object);
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.objects.lock().unwrap().get(path).cloned()
    }

    /// Returns the objects below this path.
    pub fn all(&self, below: &str) -> Vec<Value> {
        let objects = self.state.objects.lock().unwrap();
        objects
            .iter()
            .filter(|(path, _)| path.starts_with(below))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Returns the number of requests to create objects, including those for existing objects.
    pub fn creations(&self) -> usize {
        self.state.creations.load(Ordering::SeqCst)
    }

    /// Returns the number of requests.
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

    /// Refuses requests with this method and this part of the path with a status; `None` refuses no requests.
    pub fn refuse(&self, what: Option<(Method, &'static str, u16)>) {
        *self.state.refused.lock().unwrap() = what;
    }

    /// Answers this number of requests, and then does not answer one request, which may be carried out.
    pub fn stall(&self, after: usize, carried_out: bool) {
        *self.state.stall.lock().unwrap() = Some((after, carried_out));
    }

    /// Waits for the request that is not answered.
    pub async fn stalled(&self) {
        self.state.stalled.notified().await;
    }

    /// Stops the API, so that connections are refused.
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

fn answer(
    store: &Store,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> (u16, String) {
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
        let Some(object) = old else {
            return (404, "canary".into());
        };
        // A log is text.
        let line = object["line"].as_str().filter(|_| path.ends_with("/log"));
        return (200, line.map_or_else(|| object.to_string(), str::to_owned));
    }
    if method == Method::DELETE {
        return delete(&mut objects, path, body);
    }
    let patch: Value = serde_json::from_slice(body).unwrap();
    if method == Method::POST {
        let path = format!("{path}/{}", patch["metadata"]["name"].as_str().unwrap());
        let is_new = objects.insert(path, patch).is_none();
        return if is_new {
            (201, "{}".into())
        } else {
            (409, "canary".into())
        };
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
    if let Some(old) = old {
        if version(&old) != version(&new) {
            return (409, "canary".into());
        }
        if !is_allowed(&old, &new) {
            return (422, "canary".into());
        }
    }
    if new["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&new) {
        objects.remove(path);
        return (200, "{}".into());
    }
    new["metadata"]["resourceVersion"] = store
        .version
        .fetch_add(1, Ordering::SeqCst)
        .to_string()
        .into();
    objects.insert(path.into(), new.clone());
    (200, new.to_string())
}

/// Deletes the object, or marks it if it has finalizers.
fn delete(objects: &mut BTreeMap<String, Value>, path: &str, options: &[u8]) -> (u16, String) {
    let Some(object) = objects.get_mut(path) else {
        return (404, "canary".into());
    };
    let options: Value = serde_json::from_slice(options).unwrap();
    let expected = &options["preconditions"]["resourceVersion"];
    if expected.is_string() && *expected != object["metadata"]["resourceVersion"] {
        return (409, "canary".into());
    }
    if has_finalizers(object) {
        object["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z".into();
    } else {
        objects.remove(path);
    }
    (200, "{}".into())
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

/// Returns whether the API server's validation of Secrets allows the change.
fn is_allowed(old: &Value, new: &Value) -> bool {
    let is_immutable = old["immutable"] == true;
    if is_immutable && (old["data"] != new["data"] || new["immutable"] != true) {
        return false;
    }
    if old["type"] == "kubernetes.io/dockerconfigjson"
        && !new["data"][".dockerconfigjson"].is_string()
    {
        return false;
    }
    let values = new["data"]
        .as_object()
        .into_iter()
        .flat_map(|data| data.values());
    let bytes: usize = values
        .filter_map(Value::as_str)
        .map(|value| value.len() / 4 * 3)
        .sum();
    bytes <= 1 << 20
}
