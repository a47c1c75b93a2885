//! A fake API server for commands. It serves lists page by page, over plain HTTP on loopback.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The objects of a cluster by their paths. An array is served as a list.
#[derive(Default)]
pub(crate) struct FakeCluster {
    pub(crate) objects: BTreeMap<String, Value>,
    /// Paths that the user may not read.
    pub(crate) forbidden: Vec<&'static str>,
    /// Paths that are answered with status 400. The error is not about rights, and it is not retried.
    pub(crate) failing: Vec<&'static str>,
}

/// A [`FakeCluster`] that is served until the test ends.
pub(crate) struct FakeApiServer {
    pub(crate) url: String,
    /// Paths and queries of the requests, in order.
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeCluster {
    pub(crate) fn with(mut self, path: &str, object: Value) -> Self {
        self.objects.insert(path.to_owned(), object);
        self
    }

    /// Adds an installation of tolerarch with this configuration.
    pub(crate) fn with_tolerarch(self, config: &Value) -> Self {
        let service = json!({"name": "tolerarch", "namespace": "tolerarch", "path": "/mutate"});
        let webhook = json!({
            "name": "pods.tolerarch.io",
            "clientConfig": {"service": service},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        });
        let metadata = json!({"name": "zz-tolerarch", "creationTimestamp": "2026-03-01T12:00:00Z"});
        let volumes = json!([{"name": "config", "configMap": {"name": "tolerarch"}}]);
        self.with(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            json!([{"metadata": metadata, "webhooks": [webhook]}]),
        )
        .with(
            "/api/v1/namespaces/tolerarch/services/tolerarch",
            json!({"spec": {"selector": {"app": "tolerarch"}, "ports": [{"port": 443}]}}),
        )
        .with(
            "/api/v1/namespaces/tolerarch/pods",
            json!([{"metadata": {"name": "tolerarch-1"}, "spec": {"containers": [], "volumes": volumes}}]),
        )
        .with(
            "/api/v1/namespaces/tolerarch/configmaps/tolerarch",
            json!({"data": {"config.yaml": config.to_string()}}),
        )
    }

    pub(crate) async fn serve(self) -> FakeApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let cluster = Arc::new(self);
        let router = Router::new().fallback(async move |method: Method, uri: Uri, body: String| {
            recorded.lock().unwrap().push(uri.to_string());
            cluster.answer(&method, &uri, body)
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        FakeApiServer { url, requests }
    }

    fn answer(&self, method: &Method, uri: &Uri, body: String) -> Response {
        if self.forbidden.contains(&uri.path()) {
            let status =
                json!({"kind": "Status", "message": format!("{} is forbidden", uri.path())});
            return (StatusCode::FORBIDDEN, status.to_string()).into_response();
        }
        if self.failing.contains(&uri.path()) {
            let status = json!({"kind": "Status", "message": "no such field"});
            return (StatusCode::BAD_REQUEST, status.to_string()).into_response();
        }
        // A dry run returns the object as it would be stored.
        if *method == Method::POST {
            return (StatusCode::CREATED, body).into_response();
        }
        match self
            .objects
            .get(uri.path())
            .cloned()
            .or_else(|| built_in_kinds(uri.path()))
        {
            Some(Value::Array(items)) => page(&items, uri.query().unwrap_or_default())
                .to_string()
                .into_response(),
            Some(object) => object.to_string().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }
}

/// Returns the discovery documents that every API server has for its built-in kinds.
fn built_in_kinds(path: &str) -> Option<Value> {
    let resource = |name: &str, kind: &str, short: &str| json!({"name": name, "kind": kind, "singularName": "", "namespaced": true, "shortNames": [short]});
    let group = |name: &str| group(name, &["v1"]);
    Some(match path {
        "/api/v1" => json!({"resources": [
            {"name": "nodes", "kind": "Node", "singularName": "", "namespaced": false},
            resource("pods", "Pod", "po"),
        ]}),
        "/apis" => json!({"groups": [group("apps"), group("batch")]}),
        "/apis/apps" => group("apps"),
        "/apis/apps/v1" => json!({"resources": [
            resource("deployments", "Deployment", "deploy"),
            resource("deployments/scale", "Scale", ""),
        ]}),
        "/apis/batch/v1" => json!({"resources": [resource("cronjobs", "CronJob", "cj")]}),
        _ => return None,
    })
}

/// Returns an API group with these versions. The first one is the preferred version.
pub(crate) fn group(name: &str, versions: &[&str]) -> Value {
    let version =
        |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
}

fn page(items: &[Value], query: &str) -> Value {
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(key, _)| *key == name)
            .find_map(|(_, value)| value.parse::<usize>().ok())
    };
    let limit = parameter("limit").unwrap_or(items.len());
    let begin = parameter("continue").unwrap_or(0);
    let end = items.len().min(begin + limit);
    let next = if end < items.len() {
        end.to_string()
    } else {
        String::new()
    };
    json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items[begin..end]})
}

impl FakeApiServer {
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn kubeconfig(&self, directory: &Path) -> String {
        kubeconfig(&self.url, directory)
    }
}

/// Writes a kubeconfig for the API server at this URL, and returns the path of the file.
pub(crate) fn kubeconfig(server: &str, directory: &Path) -> String {
    let kubeconfig = json!({
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let file = directory.join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file.display().to_string()
}
