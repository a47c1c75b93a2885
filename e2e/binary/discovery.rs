//! Memory of discovery in a large cluster.

use std::convert::Infallible;
use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::net::TcpListener;

use super::cli::cluster::kubeconfig;
use super::program::Program;
use crate::support::review::pod;
use crate::support::until;

const NODES: usize = 5000;
const NODE_POOLS: usize = 50;
/// Images that a node reports, each with two names. Kubelet reports 50 by default, and they are most of a node's size.
const IMAGES: usize = 50;
/// Nodes that change during the watch.
const REPORTING: usize = 500;
/// Memory that discovery may take, in MiB. The objects are larger than that as text.
const MEMORY: u64 = 64;

fn taint(number: usize) -> Value {
    json!({"key": format!("pool-{number}"), "value": "true", "effect": "NoSchedule"})
}

/// Returns a node of some 15 KiB as text. The last node has another architecture.
fn node(number: usize) -> String {
    static TEMPLATES: LazyLock<Vec<String>> = LazyLock::new(|| {
        (0..NODE_POOLS)
            .map(|pool| node_template(pool, "arm64"))
            .collect()
    });
    static LAST_TEMPLATE: LazyLock<String> =
        LazyLock::new(|| node_template(NODE_POOLS - 1, "s390x"));
    let text = if number == NODES - 1 {
        &*LAST_TEMPLATE
    } else {
        &TEMPLATES[number % NODE_POOLS]
    };
    text.replace("NUMBER", &number.to_string())
}

fn node_template(pool: usize, architecture: &str) -> String {
    let images = (0..IMAGES).map(|image| {
        let name = format!("registry.example.com/team-{image}/application");
        let digest = format!("{name}@sha256:{image:064x}");
        json!({"names": [digest, format!("{name}:v1.2.3")], "sizeBytes": 123_456_789})
    });
    let labels = (0..25).map(|label| (format!("example.com/{label}"), "x".into()));
    let mut labels: Value = labels
        .collect::<Vec<(String, Value)>>()
        .into_iter()
        .collect();
    labels["kubernetes.io/arch"] = architecture.into();
    labels["kubernetes.io/os"] = "linux".into();
    labels["karpenter.sh/nodepool"] = format!("pool-{pool}").into();
    let node = json!({
        "metadata": {
            "name": "ip-10-0-NUMBER.ec2.internal", "resourceVersion": "7", "labels": labels,
            "annotations": {"volumes": "x".repeat(500)},
        },
        "spec": {"taints": [taint(pool)]},
        "status": {"images": images.collect::<Vec<Value>>(), "nodeInfo": {"architecture": architecture}},
    });
    node.to_string()
}

fn node_pool(number: usize) -> String {
    let requirements =
        json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}]);
    let template = json!({"spec": {"requirements": requirements, "taints": [taint(number)]}});
    let labels = json!({"tolerarch.io/pool": format!("pool-{number}")});
    let metadata =
        json!({"name": format!("pool-{number}"), "labels": labels, "resourceVersion": "7"});
    json!({"metadata": metadata, "spec": {"template": template}}).to_string()
}

/// Answers lists page by page, and watches with changes of some objects.
fn answer(uri: &Uri) -> Response {
    let (count, object): (usize, fn(usize) -> String) = if uri.path().ends_with("/nodes") {
        (NODES, node)
    } else {
        (NODE_POOLS, node_pool)
    };
    let query = uri.query().unwrap_or_default();
    if query.contains("watch=true") {
        let line = move |number| {
            let object = object(number);
            let event = format!("{{\"type\": \"MODIFIED\", \"object\": {object}}}\n");
            Ok::<_, Infallible>(Bytes::from(event))
        };
        let events = stream::iter((count.saturating_sub(REPORTING)..count).map(line))
            .chain(stream::pending());
        return Body::from_stream(events).into_response();
    }
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(key, _)| *key == name)
            .find_map(|(_, value)| value.parse::<usize>().ok())
    };
    let begin = parameter("continue").unwrap_or(0);
    let end = count.min(begin + parameter("limit").unwrap());
    let more = if end < count {
        end.to_string()
    } else {
        String::new()
    };
    let items: Vec<String> = (begin..end).map(object).collect();
    let metadata = json!({"resourceVersion": "7", "continue": more});
    format!(
        "{{\"metadata\": {metadata}, \"items\": [{}]}}",
        items.join(",")
    )
    .into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_nodes_fit_in_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(async |uri: Uri| answer(&uri));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(&url, directory.path());

    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let without = Program::start(&registry, json!({})).await;
    let off = without.peak_memory();
    let settings = json!({"discover": {"nodePools": true, "nodes": true}});
    let program = Program::start_with(&registry, settings, &[("KUBECONFIG", &kubeconfig)]).await;
    until("all is read", async || {
        let ready = program.admin.get("/readyz?verbose").await;
        ready.status == 200 && ready.text().contains("[+]discovery ok")
    })
    .await;
    // The last node makes one pool larger than its NodePool says, so all nodes have been read.
    let mismatch = format!(
        "tolerarch_pool_platforms_mismatch{{pool=\"pool-{}\"}} 1",
        NODE_POOLS - 1
    );
    until("the last node counts", async || {
        program.metrics().await.contains(&mismatch)
    })
    .await;
    let verdict = program.review(&pod(&[&repo.reference("v1")])).await;
    assert_eq!(verdict.reason, "tolerated");
    let peak = program.peak_memory();
    println!(
        "{peak} MiB with {NODES} nodes and {NODE_POOLS} NodePools, {off} MiB without discovery"
    );
    assert!(
        peak - off < MEMORY,
        "{peak} MiB, and {off} MiB without discovery"
    );
}
