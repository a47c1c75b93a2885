use serde_json::{Value, json};

use super::*;
use crate::cli::output::tests::plain;
use crate::config::Config;
use tolerarch_kubernetes::autoscaler::{IgnoredTaints, KnownPriorities, Priorities, Status};
use tolerarch_kubernetes::cluster::testing::{FakeApi, Reply};
use tolerarch_kubernetes::cluster::{Node, NodePool, RequestError};

const WIDTH: Option<usize> = Some(80);

fn node_pool(name: &str, weight: Option<u32>, labels: Value, taints: Value) -> Value {
    let requirements =
        json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}]);
    let template = json!({"spec": {"requirements": requirements, "taints": taints}});
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"weight": weight, "template": template}})
}

fn taint(key: &str) -> Value {
    json!({"key": key, "value": "true", "effect": "NoSchedule"})
}

fn node(architecture: &str, key: &str) -> Value {
    json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/arch": architecture}},
        "spec": {"taints": [taint(key)]},
    })
}

/// Reads NodePools and nodes from an API server that gives these answers. Also returns notes on objects left out.
async fn read(
    node_pools: Reply,
    nodes: Reply,
) -> Result<(ClusterNodes, Vec<String>), RequestError> {
    let answers = std::sync::Mutex::new((node_pools, nodes));
    let api = FakeApi::start(move |request| {
        let answers = answers.lock().unwrap();
        let Reply { status, body, .. } = match request.path.as_str() {
            NodePool::PATH => &answers.0,
            Node::PATH => &answers.1,
            other => panic!("{other} is not needed"),
        };
        Reply::of(*status, body.clone())
    })
    .await;
    let client = api.client();
    let cluster_nodes = ClusterNodes::read(
        &client,
        Discover {
            node_pools: true,
            nodes: true,
        },
        &configured(),
    )
    .await?;
    Ok((cluster_nodes, client.take_left_out()))
}

async fn cluster(node_pools: Reply, nodes: Reply) -> ClusterNodes {
    read(node_pools, nodes).await.unwrap().0
}

fn configured() -> Vec<Pool> {
    let text = "pools: [{name: multi-arch, platforms: [linux/amd64], share: 50, prefer: {weight: 3, labels: {a: b}}, \
                tolerations: [{key: multi, operator: Exists, effect: NoSchedule}]}]";
    Config::parse(text).unwrap().policy.pools
}

async fn sample_cluster() -> ClusterNodes {
    let node_pools = json!([
        node_pool("spot", None, json!({}), json!([])),
        node_pool("multi-arch", None, json!({}), json!([taint("multi")])),
        node_pool(
            "found",
            Some(7),
            json!({"tolerarch.io/pool": "found"}),
            json!([taint("found")])
        ),
        node_pool("gpu", None, json!({}), json!([taint("nvidia.com/gpu")])),
        node_pool(
            "bad",
            None,
            json!({"tolerarch.io/pool": "Bad"}),
            json!([taint("gpu")])
        ),
    ]);
    let nodes = json!([
        node("arm64", "multi"),
        node("amd64", "multi"),
        node("amd64", "found")
    ]);
    cluster(Reply::of(200, node_pools), Reply::of(200, nodes)).await
}

#[tokio::test]
async fn table_fits_80_columns() {
    let text = plain(
        &sample_cluster()
            .await
            .written(&configured(), None, Output::Table, WIDTH)
            .unwrap(),
    );
    assert_eq!(
        text,
        "\
POOL        SOURCE      PLATFORMS     NODEPOOLS       NODES
multi-arch  configured  amd64, arm64  multi-arch (0)  2
found       discovered  amd64, arm64  found (7)       1
multi-arch: new nodes come from `spot` (untainted, weight 0, later name) before
  `multi-arch`; give it a weight of 1 or more
found: `found` is the first NodePool that Karpenter takes
pool multi-arch opens nodes with linux/arm64, which the configuration does not
  say: its images have to run there, too
NodePool bad has the label tolerarch.io/pool and is no pool: its label names no
  pool: at most 63 lower-case letters, digits, '-' and '.'

NodePools with taints that no pool opens:
NODEPOOL  PLATFORMS     TAINTS
gpu       amd64, arm64  nvidia.com/gpu
bad       amd64, arm64  gpu
"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80));
}

#[tokio::test]
async fn json_lists_pools_with_node_pools_and_verdicts() {
    let text = sample_cluster()
        .await
        .written(&configured(), None, Output::Json, WIDTH)
        .unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let verdict = "new nodes come from `spot` (untainted, weight 0, later name) before `multi-arch`; give it a weight of 1 or more";
    assert_eq!(
        json["pools"][0],
        json!({
            "name": "multi-arch", "source": "configured", "platforms": ["linux/amd64", "linux/arm64"],
            "nodePools": [{"name": "multi-arch", "weight": 0}], "nodes": 2, "mismatch": ["linux/arm64"],
            "verdict": verdict,
        })
    );
    assert_eq!(json["pools"][1]["source"], "discovered");
    assert_eq!(json["closed"], json!(["gpu", "bad"]));
}

#[tokio::test]
async fn yaml_output_parses_as_configuration() {
    let text = sample_cluster()
        .await
        .written(&configured(), None, Output::Yaml, WIDTH)
        .unwrap();
    let pools = Config::parse(&text)
        .unwrap_or_else(|faults| panic!("{faults:?}\n{text}"))
        .policy
        .pools;
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["multi-arch", "found"]);
    assert_eq!(
        pools[0].platforms,
        tolerarch_core::image::PlatformSet::AMD64_AND_ARM64,
        "the NodePool's platforms are included"
    );
    let pool = &configured()[0];
    assert_eq!(
        (&pools[0].tolerations, pools[0].share, &pools[0].prefer),
        (&pool.tolerations, 50, &pool.prefer)
    );
    assert_eq!(pools[1].tolerations[0].value.as_str(), "true");

    let mut selected = configured();
    selected[0].prefer = None;
    selected[0].select.insert("a".to_owned(), "b".to_owned());
    let text = sample_cluster()
        .await
        .written(&selected, None, Output::Yaml, WIDTH)
        .unwrap();
    let pools = Config::parse(&text).unwrap().policy.pools;
    assert_eq!(pools[0].select, selected[0].select);
}

#[tokio::test]
async fn forbidden_lists_are_left_out() {
    let nodes = || Reply::of(200, json!([node("arm64", "multi")]));
    let without_karpenter = cluster(Reply::refused(404, "no such kind"), nodes()).await;
    assert_eq!(without_karpenter.notes, [""; 0]);
    let forbidden = cluster(Reply::refused(403, "forbidden to you"), nodes()).await;
    assert_eq!(forbidden.notes.len(), 1);
    let text = plain(
        &forbidden
            .written(&configured(), None, Output::Table, WIDTH)
            .unwrap(),
    );
    assert!(
        text.contains("NodePools cannot be read") && !text.contains("it opens no NodePool"),
        "{text}"
    );
    assert!(
        text.lines().nth(1).unwrap().ends_with("  ?          1"),
        "{text}"
    );
    let text = forbidden
        .written(&configured(), None, Output::Json, WIDTH)
        .unwrap();
    let pool = &serde_json::from_str::<Value>(&text).unwrap()["pools"][0];
    assert_eq!(
        (&pool["nodePools"], &pool["verdict"]),
        (&Value::Null, &Value::Null)
    );
    let forbidden = cluster(nodes(), Reply::refused(403, "forbidden to you")).await;
    let text = plain(
        &forbidden
            .written(&configured(), None, Output::Table, WIDTH)
            .unwrap(),
    );
    assert!(text.lines().nth(1).unwrap().ends_with("  ?"), "{text}");
    let text = forbidden
        .written(&configured(), None, Output::Json, WIDTH)
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap()["pools"][0]["nodes"],
        Value::Null
    );
    assert!(read(nodes(), Reply::refused(500, "broken")).await.is_err());
}

#[tokio::test]
async fn unreadable_node_is_left_out() {
    let unreadable = json!({"metadata": {"name": "odd", "labels": 7}});
    let nodes = json!([unreadable, node("arm64", "multi")]);
    let (cluster, left_out) = read(Reply::of(200, json!([])), Reply::of(200, nodes))
        .await
        .unwrap();
    assert_eq!(
        left_out,
        ["1 of the nodes cannot be read, and are left out: odd"]
    );
    assert!(
        cluster.discovered(&configured()).0.is_complete,
        "the webhook leaves the node out as well"
    );
}

/// Returns a cluster-autoscaler with two groups: `multi` has the pool's nodes and is full, `plain` is empty.
fn autoscaler(expanders: &[&str], priorities: &str) -> Autoscaler {
    let group = |name: &str, nodes: u8, maximum: u8| json!({"name": name, "health": {"maxSize": maximum, "nodeCounts": {"registered": {"total": nodes}}}});
    let status = json!({"nodeGroups": [group("multi", 2, 2), group("plain", 0, 9)]});
    Autoscaler {
        namespace: "kube-system".to_owned(),
        expanders: Expanders::Named(expanders.iter().map(|name| (*name).to_owned()).collect()),
        priorities: KnownPriorities::Read(Priorities::parse(priorities).unwrap()),
        groups: Some(Status::parse(&status.to_string()).unwrap().groups),
        ignored_taints: IgnoredTaints::default(),
        balances: false,
    }
}

#[tokio::test]
async fn node_groups_are_listed_with_the_autoscalers_choice() {
    let mut nodes = json!([node("arm64", "multi"), node("amd64", "multi")]);
    for (index, name) in ["multi-x7k2p", "multi-b8c9d"].into_iter().enumerate() {
        nodes[index]["metadata"]["name"] = name.into();
    }
    let cluster_nodes = cluster(Reply::refused(404, "no such kind"), Reply::of(200, nodes)).await;
    let by_priority = autoscaler(&["priority"], "{100: [multi], 10: ['.*']}");
    let text = plain(
        &cluster_nodes
            .written(&configured(), Some(&by_priority), Output::Table, None)
            .unwrap(),
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "POOL        SOURCE      PLATFORMS     NODEPOOLS  NODES  NODE GROUPS"
    );
    assert_eq!(
        lines[1],
        "multi-arch  configured  amd64, arm64             2      multi (100)"
    );
    assert_eq!(
        lines[2],
        "multi-arch: the cluster-autoscaler takes `multi` first (priority 100)"
    );
    assert_eq!(
        lines[3],
        "multi-arch: the node group `multi` has reached its maximum of 2"
    );

    let text = cluster_nodes
        .written(&configured(), Some(&by_priority), Output::Json, None)
        .unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json["clusterAutoscaler"],
        json!({
            "namespace": "kube-system", "expanders": ["priority"],
            "nodeGroups": [
                {"name": "multi", "priority": 100, "nodes": 2, "most": 2},
                {"name": "plain", "priority": 10, "nodes": 0, "most": 9},
            ],
        })
    );
    assert_eq!(
        json["pools"][0]["clusterAutoscaler"],
        json!({
            "isFirst": true, "verdict": "the cluster-autoscaler takes `multi` first (priority 100)",
            "nodeGroups": [{"name": "multi", "priority": 100, "obstacle": "has reached its maximum of 2"}],
        })
    );

    let by_chance = autoscaler(&["random"], "{100: [multi]}");
    let text = cluster_nodes
        .written(&configured(), Some(&by_chance), Output::Json, None)
        .unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let choice = &json["pools"][0]["clusterAutoscaler"];
    assert_eq!(
        (&choice["isFirst"], &choice["nodeGroups"][0]["priority"]),
        (&json!(false), &Value::Null)
    );
}
