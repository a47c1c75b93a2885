//! Memory of the controller in a large cluster.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::interval;

use super::cli::cluster::kubeconfig;
use super::program::Program;

/// All Pods wait for a node and for the lookup of their images, which takes the most memory.
const PODS: usize = 20_000;
const PODS_OF_WORKLOAD: usize = 5;
const NODES: usize = 5000;
/// Nodes that get a taint. The controller changes 20 a second.
const TAINTED: usize = 100;
/// Time between checks whether the controller is done.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Memory that the controller may take, in MiB.
const MEMORY: u64 = 128;

/// A fake API server with all of these objects.
struct FakeApi {
    registry: String,
    lease: Mutex<Value>,
    tainted: AtomicUsize,
}

impl FakeApi {
    /// Returns a Pod of some 8 KiB.
    fn pod(&self, number: usize) -> Value {
        let workload = number / PODS_OF_WORKLOAD;
        let image = format!("{}/team-{workload}/application:v1", self.registry);
        let fields: Value = (0..60)
            .map(|at| (format!("k:{{\"name\":\"field-{at}\"}}"), json!({".": {}})))
            .collect();
        let env: Vec<Value> = (0..40)
            .map(|at| json!({"name": format!("VARIABLE_{at}"), "value": "x".repeat(40)}))
            .collect();
        let set = format!("web-{workload}-5d5c8f9b7c");
        json!({
            "metadata": {
                "name": format!("{set}-{number:05}"), "namespace": format!("team-{}", workload % 100),
                "uid": format!("uid-{number:032}"), "resourceVersion": "7",
                "labels": {"app": format!("web-{workload}"), "pod-template-hash": "5d5c8f9b7c"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": "u", "controller": true}],
                "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": fields}],
            },
            "spec": {
                "containers": [
                    {"name": "app", "image": image, "env": env, "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}},
                    {"name": "sidecar", "image": format!("{}/sidecar:v1", self.registry), "env": env},
                ],
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                ],
            },
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
        })
    }

    /// Returns a node of some 15 KiB.
    fn node(&self, number: usize) -> Value {
        let images = (0..50).map(|image| {
            let name = format!("registry.example.com/team-{image}/application");
            json!({"names": [format!("{name}@sha256:{image:064x}"), format!("{name}:v1.2.3")], "sizeBytes": 1})
        });
        let mut labels: Value = (0..25)
            .map(|label| (format!("example.com/{label}"), "x".into()))
            .collect::<Vec<(String, Value)>>()
            .into_iter()
            .collect();
        labels["kubernetes.io/arch"] = if number < TAINTED { "arm64" } else { "amd64" }.into();
        json!({
            "metadata": {"name": format!("ip-10-0-{number}.internal"), "resourceVersion": "7", "labels": labels},
            "spec": {"taints": [{"key": "pool", "value": "true", "effect": "NoSchedule"}]},
            "status": {"images": images.collect::<Vec<Value>>()},
        })
    }

    fn object(&self, kind: &str, number: usize) -> Value {
        match kind {
            "pods" => self.pod(number),
            "nodes" => self.node(number),
            _ => json!({"metadata": {"name": format!("team-{number}"), "resourceVersion": "7"}}),
        }
    }

    async fn answer(&self, method: Method, uri: &Uri, body: &[u8]) -> Response {
        let path = uri.path();
        let query = uri.query().unwrap_or_default();
        if path.contains("/leases/") {
            let mut lease = self.lease.lock().await;
            if method == Method::PATCH {
                let patch: Value = serde_json::from_slice(body).unwrap();
                if !patch["spec"].is_null() {
                    lease["spec"] = patch["spec"].clone();
                }
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
            assert!(path.starts_with("/api/v1/nodes/"), "{path}");
            self.tainted.fetch_add(1, Ordering::SeqCst);
            return "{}".into_response();
        }
        let kind = path.rsplit('/').next().unwrap();
        let count = match kind {
            "pods" => PODS,
            "nodes" => NODES,
            _ => 100,
        };
        if query.contains("watch=true") {
            return Body::from_stream(stream::pending::<Result<Bytes, Infallible>>())
                .into_response();
        }
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .filter(|(key, _)| *key == name)
                .find_map(|(_, value)| value.parse::<usize>().ok())
        };
        let begin = parameter("continue").unwrap_or(0);
        let end = count.min(begin + parameter("limit").unwrap_or(count));
        let more = if end < count {
            end.to_string()
        } else {
            String::new()
        };
        let items: Vec<String> = (begin..end)
            .map(|number| self.object(kind, number).to_string())
            .collect();
        let metadata = json!({"resourceVersion": "7", "continue": more});
        format!(
            "{{\"metadata\": {metadata}, \"items\": [{}]}}",
            items.join(",")
        )
        .into_response()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute; the figure counts for a release build, with `--release`"]
async fn twenty_thousand_pods_and_five_thousand_nodes_fit_in_memory() {
    let registry = Registry::start().await;
    let lease =
        json!({"metadata": {"name": "tolerarch-controller", "resourceVersion": "7"}, "spec": {}});
    let api = Arc::new(FakeApi {
        registry: registry.address(),
        lease: Mutex::new(lease),
        tainted: AtomicUsize::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = async |State(api): State<Arc<FakeApi>>, method: Method, uri: Uri, body: Bytes| {
        api.answer(method, &uri, &body).await
    };
    let router = Router::new().fallback(answer).with_state(Arc::clone(&api));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(&url, directory.path());

    let taint = json!({"key": "arch", "value": "arm64", "effect": "NoSchedule"});
    let taints = json!([{"selector": {"kubernetes.io/arch": "arm64"}, "taint": taint}]);
    let settings = json!({"controller": {"nodeTaints": taints, "census": "1h"}});
    let program = Program::controller(&registry, settings, &[("KUBECONFIG", &kubeconfig)]).await;
    let counted = format!(
        "tolerarch_cluster_workloads{{support=\"unknown\"}} {}",
        PODS / PODS_OF_WORKLOAD
    );
    // This takes longer than `until` waits.
    let mut ticks = interval(CHECK_INTERVAL);
    while api.tainted.load(Ordering::SeqCst) < TAINTED
        || !program.metrics().await.contains(&counted)
    {
        ticks.tick().await;
    }
    let peak = program.peak_memory();
    println!(
        "{peak} MiB with {PODS} waiting Pods, {NODES} nodes, repair, census and taints of nodes"
    );
    assert!(peak < MEMORY, "{peak} MiB");
}
