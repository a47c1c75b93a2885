//! A Kubernetes API with lists, over plain HTTP. Lists are served page by page and can be watched; objects can be
//! patched.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::StatusCode;
use kube::config::Config;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::{Cluster, UserClient, Watcher, unread_objects};
use tolerarch_support::metrics::Metrics;

/// Number of objects on a page: fewer than clients request.
const SMALL_PAGE: usize = 2;

/// Form of lists.
#[derive(Clone, Copy, Default)]
struct Writing {
    whole_pages: bool,
    metadata_last: bool,
}

/// An API that serves until it is dropped.
pub struct Lists {
    address: SocketAddr,
    store: Arc<Mutex<Store>>,
    /// Signals a change.
    changed: watch::Sender<()>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Store {
    version: usize,
    /// Objects by the path of the list and the name.
    objects: BTreeMap<(String, String), Value>,
    /// Events by version, with the path of the list.
    events: Vec<(usize, String, String)>,
    /// Version before which there are no events.
    oldest: usize,
    /// Status with which requests for a path are refused.
    refused: BTreeMap<String, u16>,
    /// Number of times that all watches were ended.
    cuts: usize,
    queries: Vec<String>,
    writing: Writing,
}

#[derive(Clone)]
struct Api {
    store: Arc<Mutex<Store>>,
    changed: watch::Sender<()>,
}

impl Lists {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store = Arc::new(Mutex::new(Store {
            version: 1,
            ..Store::default()
        }));
        let changed = watch::Sender::new(());
        let api = Api {
            store: Arc::clone(&store),
            changed: changed.clone(),
        };
        let router = Router::new().fallback(answer).with_state(api);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            store,
            changed,
            server,
        }
    }

    /// Returns a watcher with pauses of a millisecond.
    pub fn watcher(&self) -> Watcher {
        let unread = unread_objects(&Metrics::new([]).unwrap()).unwrap();
        Watcher::new(self.config(), std::time::Duration::from_millis(1), unread).unwrap()
    }

    pub fn client(&self) -> UserClient {
        UserClient::new(self.config()).unwrap()
    }

    /// Returns a client that changes the objects, by merge patches.
    pub fn cluster(&self) -> Cluster {
        Cluster::new(self.config(), std::time::Duration::from_secs(60)).unwrap()
    }

    fn config(&self) -> Config {
        Config::new(format!("http://{}", self.address).parse().unwrap())
    }

    fn change(&self, change: impl FnOnce(&mut Store)) {
        change(&mut self.store.lock().unwrap());
        self.changed.send_replace(());
    }

    /// Creates or changes an object of a list.
    pub fn put(&self, list: &str, object: Value) {
        self.change(|store| store.put(list, object));
    }

    /// Returns the current state of an object of a list.
    pub fn get(&self, list: &str, name: &str) -> Value {
        self.store.lock().unwrap().objects[&(list.to_owned(), name.to_owned())].clone()
    }

    pub fn delete(&self, list: &str, name: &str) {
        self.change(|store| {
            store.version += 1;
            let mut object = store
                .objects
                .remove(&(list.to_owned(), name.to_owned()))
                .unwrap();
            object["metadata"]["resourceVersion"] = store.version.to_string().into();
            store
                .events
                .push((store.version, list.to_owned(), event("DELETED", &object)));
        });
    }

    /// Removes all events, so that no watch can be resumed.
    pub fn compact(&self) {
        self.change(|store| {
            store.version += 1;
            store.oldest = store.version;
            store.events.clear();
        });
    }

    /// Ends all watches, as a restart does.
    pub fn cut(&self) {
        self.change(|store| store.cuts += 1);
    }

    /// Refuses requests for this path with a status, and ends all watches. Status 0 means no answer; `None` allows
    /// requests again.
    pub fn refuse(&self, list: &str, status: Option<u16>) {
        self.change(|store| {
            store.cuts += 1;
            match status {
                Some(status) => store.refused.insert(list.to_owned(), status),
                None => store.refused.remove(list),
            };
        });
    }

    /// Serves pages with as many objects as clients request.
    pub fn give_whole_pages(&self) {
        self.change(|store| store.writing.whole_pages = true);
    }

    /// Writes the metadata of lists after the objects, as in lists of custom resources.
    pub fn write_metadata_last(&self) {
        self.change(|store| store.writing.metadata_last = true);
    }

    /// Returns paths and queries of all requests.
    pub fn queries(&self) -> Vec<String> {
        self.store.lock().unwrap().queries.clone()
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Store {
    fn put(&mut self, list: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let key = (
            list.to_owned(),
            object["metadata"]["name"].as_str().unwrap().to_owned(),
        );
        let is_new = self.objects.insert(key, object.clone()).is_none();
        let r#type = if is_new { "ADDED" } else { "MODIFIED" };
        self.events
            .push((self.version, list.to_owned(), event(r#type, &object)));
    }

    /// Merges this patch into an object, if the patch is for the object's version.
    fn patch(&mut self, path: &str, patch: &[u8]) -> StatusCode {
        let (list, name) = path.rsplit_once('/').unwrap();
        if let Some(&status) = self.refused.get(path) {
            return StatusCode::from_u16(status).unwrap();
        }
        let Some(old) = self.objects.get(&(list.to_owned(), name.to_owned())) else {
            return StatusCode::NOT_FOUND;
        };
        let mut new = old.clone();
        json_patch::merge(&mut new, &serde_json::from_slice(patch).unwrap());
        if old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"] {
            return StatusCode::CONFLICT;
        }
        self.put(list, new);
        StatusCode::OK
    }
}

impl Api {
    fn is_silent(&self, path: &str) -> bool {
        self.store.lock().unwrap().refused.get(path) == Some(&0)
    }
}

async fn answer(State(api): State<Api>, method: Method, uri: Uri, body: Bytes) -> Response {
    api.store.lock().unwrap().queries.push(uri.to_string());
    if api.is_silent(uri.path()) {
        return std::future::pending().await;
    }
    let mut store = api.store.lock().unwrap();
    if method == Method::PATCH {
        let status = store.patch(uri.path(), &body);
        drop(store);
        api.changed.send_replace(());
        return (status, "{}").into_response();
    }
    let path = uri.path().to_owned();
    let query = uri.query().unwrap_or_default();
    let pairs: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    if let Some(&status) = store.refused.get(&path) {
        return (StatusCode::from_u16(status).unwrap(), "canary").into_response();
    }
    if pairs.get("watch").is_some_and(|watch| watch == "true") {
        let since = pairs["resourceVersion"].parse().unwrap();
        if since < store.oldest {
            let gone = json!({
                "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old",
            });
            return event("ERROR", &gone).into_response();
        }
        let cuts = store.cuts;
        drop(store);
        return events(api, path, since, cuts);
    }
    let items: Vec<&Value> = store
        .objects
        .iter()
        .filter(|((list, _), _)| *list == path)
        .map(|(_, object)| object)
        .collect();
    let begin = pairs
        .get("continue")
        .map_or(0, |token| token.parse().unwrap());
    let limit = pairs.get("limit").filter(|_| store.writing.whole_pages);
    let size = limit.map_or(SMALL_PAGE, |limit| limit.parse().unwrap());
    let page: Vec<&Value> = items.iter().skip(begin).take(size).copied().collect();
    let next = begin + page.len();
    let more = if next < items.len() {
        next.to_string()
    } else {
        String::new()
    };
    let metadata = json!({"resourceVersion": store.version.to_string(), "continue": more});
    let items = Value::from(page.into_iter().cloned().collect::<Vec<Value>>());
    let body = if store.writing.metadata_last {
        format!(r#"{{"apiVersion":"v1","items":{items},"kind":"List","metadata":{metadata}}}"#)
    } else {
        format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{metadata},"items":{items}}}"#)
    };
    body.into_response()
}

/// Returns the line of an event, with the type first, as Go writes it.
fn event(r#type: &str, object: &Value) -> String {
    format!("{{\"type\":\"{type}\",\"object\":{object}}}\n")
}

/// Streams the events of a list, until all watches are ended.
fn events(api: Api, path: String, since: usize, cuts: usize) -> Response {
    let changes = api.changed.subscribe();
    let lines = stream::unfold((since, changes), move |(since, mut changes)| {
        let api = api.clone();
        let path = path.clone();
        async move {
            loop {
                changes.borrow_and_update();
                {
                    let store = api.store.lock().unwrap();
                    if store.cuts != cuts {
                        return None;
                    }
                    let next = store
                        .events
                        .iter()
                        .find(|(version, list, _)| *version > since && *list == path);
                    if let Some((version, _, event)) = next {
                        let line = Bytes::from(event.clone());
                        return Some((Ok::<_, Infallible>(line), (*version, changes)));
                    }
                }
                changes.changed().await.ok()?;
            }
        }
    });
    Body::from_stream(lines).into_response()
}
