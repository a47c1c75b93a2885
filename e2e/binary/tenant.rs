//! What a tenant who may create Pods can do to the controller. A fake API server has Pods that are large or deep.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::{Duration, interval, timeout};

use super::cli::cluster::kubeconfig;
use super::program::Program;

/// Number of Pods of the maximum size: 1.4 MiB in etcd, and 2.7 MB of JSON.
const LARGE: usize = 4;
/// Entries of `env` that make a Pod so large.
const ENTRIES: usize = 210_000;
/// Nesting depth of the managed fields of one more Pod.
const LEVELS: usize = 10_000;
/// Memory that the controller may take, in MiB.
const MEMORY: u64 = 128;

/// A fake API server with these Pods.
struct FakeApi {
    registry: String,
    entries: String,
    fields: String,
    lease: Mutex<Value>,
    /// Number of victims that the controller has repaired.
    repaired: AtomicUsize,
}

impl FakeApi {
    fn pod(&self, name: &str, fields: &str, env: &str) -> String {
        let image = format!("{}/app:v1", self.registry);
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"team","uid":"{name}","resourceVersion":"7","managedFields":[{{"fieldsV1":{fields}}}]}},"spec":{{"containers":[{{"name":"app","image":"{image}","env":[{env}]}}]}},"status":{{"phase":"Pending","conditions":[{{"type":"PodScheduled","status":"False"}}]}}}}"#
        )
    }

    /// Returns some of the Pods, whose names begin with `prefix`. The watch sends as many other Pods.
    fn pods(&self, prefix: &str, begin: usize, end: usize) -> Vec<String> {
        let pod_at = |at: usize| match at {
            0 => self.pod(&format!("{prefix}-deep"), &self.fields, ""),
            at if at <= LARGE => self.pod(&format!("{prefix}-{at}"), "{}", &self.entries),
            _ => self.pod(&format!("{prefix}-victim"), "{}", ""),
        };
        (begin..end.min(LARGE + 2)).map(pod_at).collect()
    }

    async fn answer(self: Arc<Self>, method: Method, uri: Uri, body: Bytes) -> Response {
        let path = uri.path();
        let query = uri.query().unwrap_or_default();
        if path.contains("/leases/") {
            let mut lease = self.lease.lock().await;
            if method == Method::PATCH {
                lease["spec"] = serde_json::from_slice::<Value>(&body).unwrap()["spec"].take();
            }
            return lease.to_string().into_response();
        }
        if path.contains("/mutatingwebhookconfigurations/") {
            let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods"]});
            let webhook =
                json!({"clientConfig": {"service": {"path": "/mutate"}}, "rules": [rule]});
            return json!({"webhooks": [webhook]}).to_string().into_response();
        }
        if method == Method::PATCH {
            self.repaired
                .fetch_add(usize::from(path.ends_with("-victim")), Ordering::SeqCst);
            return "{}".into_response();
        }
        if query.contains("watch=true") {
            let events =
                if path.ends_with("/pods") && query.contains("fieldSelector=spec.nodeName%3D&") {
                    LARGE + 2
                } else {
                    0
                };
            let event = move |at: usize| {
                let pod = self.pods("watched", at, at + 1).remove(0);
                Ok::<_, Infallible>(Bytes::from(format!(
                    "{{\"type\":\"ADDED\",\"object\":{pod}}}\n"
                )))
            };
            return Body::from_stream(stream::iter(0..events).map(event).chain(stream::pending()))
                .into_response();
        }
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .filter(|(key, _)| *key == name)
                .find_map(|(_, value)| value.parse::<usize>().ok())
        };
        let namespace = r#"{"metadata":{"name":"team","resourceVersion":"7"}}"#.to_owned();
        let Some(limit) = parameter("limit") else {
            return namespace.into_response();
        };
        let begin = parameter("continue").unwrap_or(0);
        let (items, next) = match path.ends_with("/pods") {
            true => (self.pods("listed", begin, begin + limit), begin + limit),
            false => (vec![namespace], usize::MAX),
        };
        let next = if next < LARGE + 2 {
            next.to_string()
        } else {
            String::new()
        };
        let metadata = json!({"resourceVersion": "7", "continue": next});
        format!(
            "{{\"metadata\":{metadata},\"items\":[{}]}}",
            items.join(",")
        )
        .into_response()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_deep_pods_take_little_memory() {
    let registry = Registry::start().await;
    registry
        .repo("app")
        .index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let lease =
        json!({"metadata": {"name": "tolerarch-controller", "resourceVersion": "7"}, "spec": {}});
    let api = Arc::new(FakeApi {
        registry: registry.address(),
        entries: vec![r#"{"name":"a"}"#; ENTRIES].join(","),
        fields: format!("{}{{}}{}", r#"{"f:a":"#.repeat(LEVELS), "}".repeat(LEVELS)),
        lease: Mutex::new(lease),
        repaired: AtomicUsize::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = async |State(api): State<Arc<FakeApi>>, method: Method, uri: Uri, body: Bytes| {
        api.answer(method, uri, body).await
    };
    let router = Router::new().fallback(answer).with_state(Arc::clone(&api));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(&url, directory.path());
    let program = Program::controller(&registry, json!({}), &[("KUBECONFIG", &kubeconfig)]).await;
    let counted = "tolerarch_cluster_workloads{support=\"all\"} ";
    // A debug build takes longer than other tests wait.
    let done = async {
        let mut ticks = interval(Duration::from_millis(200));
        while api.repaired.load(Ordering::SeqCst) < 2 || !program.metrics().await.contains(counted)
        {
            ticks.tick().await;
        }
    };
    timeout(Duration::from_secs(240), done)
        .await
        .expect("Pods after the large ones are repaired and counted");
    let pod_count = format!("{}", LARGE + 2);
    assert_eq!(
        program
            .metric("tolerarch_cluster_workloads{support=\"all\"}")
            .await,
        pod_count
    );
    assert_eq!(
        program
            .metric("tolerarch_cluster_unread_objects_total{resource=\"pods\"}")
            .await,
        "0"
    );
    let peak = program.peak_memory();
    println!("{peak} MiB with {LARGE} Pods of 1.4 MiB, and as many by a watch");
    assert!(peak < MEMORY, "{peak} MiB");
}
