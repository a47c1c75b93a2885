//! What tolerarch discovers from NodePools and nodes, and whether Karpenter behaves as `tolerarch pools` predicts.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use scenarios::{Cluster, Karpenter, Namespace, POOL, PodExt, Tolerarch, node_pool, pod, until};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::certificates::give_rights;

const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
/// The keys of taints.
const WIDE: &str = "e2e.tolerarch.io/wide";
const DISCOVERED: &str = "e2e.tolerarch.io/discovered";
const OTHER: &str = "e2e.tolerarch.io/other";

fn taint(key: &str, effect: &str) -> Value {
    json!([{"key": key, "value": "true", "effect": effect}])
}

/// tolerarch has only the rights that the chart gives for discovery.
pub(crate) async fn discovered_pools_follow_the_node_pools(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let wide = |architectures| node_pool("wide", architectures, taint(WIDE, "NoSchedule"), 0);
    karpenter.apply(&wide(&["arm64"])).await;
    let settings = json!({
        "discover": {"nodePools": true, "nodes": true},
        "pools": [{
            "name": "wide", "platforms": ["linux/arm64"],
            "tolerations": [{"key": WIDE, "operator": "Exists", "effect": "NoSchedule"}],
        }],
    });
    let (tolerarch, namespace) = start(cluster, settings).await;
    let create = async |tag: &str| {
        namespace
            .dry_run(&pod(&[&cluster.images.tag(tag)]))
            .await
            .unwrap()
    };
    let pools_of = async |tag: &str| create(tag).await.pools().unwrap_or_default().to_owned();
    until("the webhook is called", async || {
        (pools_of("multi").await == "wide").then_some(())
    })
    .await;
    let until_pools = async |what: &str, tag: &str, pools: &str| {
        let begun = Instant::now();
        until(
            &format!("{what}: Pods of {tag} get {pools:?}"),
            async || (pools_of(tag).await == pools).then_some(()),
        )
        .await;
        print!("{what}: after {:.1?}; ", begun.elapsed());
    };
    until_pools("as configured", "arm64", "wide").await;

    karpenter.apply(&wide(&ARCHITECTURES)).await;
    until_pools("widened", "arm64", "").await;
    assert_eq!(pools_of("multi").await, "wide");
    let logged_reasons = || {
        let log = tolerarch.process.log();
        log.matches("pool wide opens nodes with linux/amd64")
            .count()
    };
    until("the reason is logged", async || {
        (logged_reasons() > 0).then_some(())
    })
    .await;
    assert_eq!(logged_reasons(), 1);
    karpenter.apply(&wide(&["arm64"])).await;
    until_pools("narrowed", "arm64", "wide").await;

    let mut node_pool = node_pool("found", &["amd64"], taint(DISCOVERED, "NoSchedule"), 0);
    karpenter.apply(&node_pool).await;
    assert_eq!(pools_of("amd64").await, "");
    node_pool["metadata"]["labels"] = json!({"tolerarch.io/pool": "found"});
    karpenter.apply(&node_pool).await;
    until_pools("labelled", "amd64", "found").await;
    let tolerations =
        serde_json::to_value(create("amd64").await.spec.unwrap().tolerations).unwrap();
    let exact =
        json!({"key": DISCOVERED, "operator": "Equal", "value": "true", "effect": "NoSchedule"});
    assert!(
        tolerations.as_array().unwrap().contains(&exact),
        "{tolerations}"
    );
    node_pool["metadata"]["labels"] = json!({});
    karpenter.apply(&node_pool).await;
    until_pools("no longer labelled", "amd64", "").await;
    karpenter.remove_node_pools().await;
}

async fn start(cluster: &Cluster, settings: Value) -> (Tolerarch, Namespace) {
    let namespace = cluster.namespace_opted_out("discovering").await;
    // The accounts of the webhook and of the issuer.
    let rights: [(&str, &[&str]); 2] = [
        ("default", &["ServiceAccount", "ServiceAccount"]),
        ("discovery", &["ClusterRole", "ClusterRoleBinding"]),
    ];
    let kubeconfig = give_rights(cluster, &namespace, &rights).await;
    let tolerarch = cluster.local().tolerarch_as(&kubeconfig, settings).await;
    let namespace = cluster.namespace_with("discovered", &tolerarch.url).await;
    (tolerarch, namespace)
}

/// NodePools, and the one from which the next node comes.
struct Case {
    what: &'static str,
    node_pools: Vec<Value>,
    expected: &'static str,
}

/// Limits are zero, because only Karpenter knows how much of a limit the next machine would use.
fn cases() -> Vec<Case> {
    let tainted =
        |name: &str, weight| node_pool(name, &ARCHITECTURES, taint(POOL, "NoSchedule"), weight);
    let open = |name: &str, weight| node_pool(name, &ARCHITECTURES, json!([]), weight);
    let other = |effect: &str| node_pool("zoo", &ARCHITECTURES, taint(OTHER, effect), 50);
    let with = |mut pool: Value, key: &str, value: Value| {
        pool["spec"][key] = value;
        pool
    };
    let not_ready = |mut pool: Value| {
        pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "missing".into();
        pool
    };
    // Two requirements of a label that contradict each other.
    let requiring = |mut pool: Value, key: &str| {
        let requirements = pool["spec"]["template"]["spec"]["requirements"]
            .as_array_mut()
            .unwrap();
        let one = |value: &str| json!({"key": key, "operator": "In", "values": [value]});
        requirements.extend(["amd64", "arm64"].map(one));
        pool
    };
    let of = |what, node_pools: &[Value], expected| Case {
        what,
        node_pools: node_pools.to_vec(),
        expected,
    };
    let none = json!({"cpu": "0"});
    vec![
        of(
            "the pool has the later name",
            &[open("default", 0), tainted("multi", 0)],
            "multi",
        ),
        of(
            "a rival has the later name",
            &[open("spot", 0), tainted("multi", 0)],
            "spot",
        ),
        of(
            "the pool has less weight",
            &[open("default", 10), tainted("multi", 1)],
            "default",
        ),
        of(
            "the pool has more weight",
            &[open("spot", 10), tainted("multi", 11)],
            "multi",
        ),
        of(
            "a rival's taint",
            &[other("NoSchedule"), tainted("multi", 0)],
            "multi",
        ),
        of(
            "a rival's soft taint",
            &[other("PreferNoSchedule"), tainted("multi", 0)],
            "multi",
        ),
        of(
            "only a soft taint",
            &[other("PreferNoSchedule"), not_ready(tainted("multi", 60))],
            "zoo",
        ),
        of(
            "a rival that is not ready",
            &[not_ready(open("zoo", 50)), tainted("multi", 0)],
            "multi",
        ),
        of(
            "the pool is not ready",
            &[open("default", 0), not_ready(tainted("multi", 50))],
            "default",
        ),
        of(
            "a rival at its limit",
            &[with(open("zoo", 50), "limits", none), tainted("multi", 0)],
            "multi",
        ),
        of(
            "two NodePools of the pool",
            &[
                open("spot", 2),
                tainted("multi-a", 0),
                tainted("multi-b", 3),
            ],
            "multi-b",
        ),
        of(
            "a rival of fixed size",
            &[
                with(open("zoo", 0), "replicas", json!(0)),
                tainted("multi", 0),
            ],
            "multi",
        ),
        of(
            "a rival of no architecture",
            &[
                requiring(open("zoo", 50), "kubernetes.io/arch"),
                tainted("multi", 0),
            ],
            "multi",
        ),
        of(
            "a rival of no team",
            &[requiring(open("zoo", 50), "team"), tainted("multi", 0)],
            "zoo",
        ),
    ]
}

pub(crate) async fn next_node_comes_from_the_predicted_node_pool(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let namespace = cluster.namespace("predictions").await;
    cluster.until_called(&namespace).await;
    for Case {
        what,
        node_pools,
        expected,
    } in cases()
    {
        karpenter.remove_node_pools().await;
        for node_pool in &node_pools {
            karpenter.apply(node_pool).await;
        }
        until_ready(cluster, &node_pools).await;
        let (status, printed) = cluster
            .local()
            .run_tolerarch(&["pools", "-o", "json"])
            .await;
        assert_eq!(status, 0, "{what}");
        let printed: Value = serde_json::from_str(&printed).unwrap();
        let verdict = printed["pools"][0]["verdict"].as_str().unwrap();
        let pod = pod_on_its_machine(cluster, &namespace).await;
        let (actual, _) = karpenter.node(pod.node().unwrap()).await;
        assert_eq!(
            (predicted(verdict), actual.as_str()),
            (expected, expected),
            "{what}: {verdict}"
        );
        let all = ListParams::default();
        namespace
            .pods()
            .delete_collection(&DeleteParams::default(), &all)
            .await
            .unwrap();
        namespace.until_gone("web").await;
    }
    karpenter.remove_node_pools().await;
    print!("{} cases predicted; ", cases().len());
}

/// Waits until the NodePools whose node class exists are ready.
async fn until_ready(cluster: &Cluster, node_pools: &[Value]) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool"));
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &kind);
    for node_pool in node_pools {
        if node_pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "missing" {
            continue;
        }
        let name = node_pool["metadata"]["name"].as_str().unwrap();
        until(&format!("the NodePool {name} is ready"), async || {
            let conditions = api.get(name).await.ok()?.data["status"]["conditions"].take();
            let is_ready =
                |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            conditions.as_array()?.iter().any(is_ready).then_some(())
        })
        .await;
    }
}

/// Returns the NodePool that a verdict names.
fn predicted(verdict: &str) -> &str {
    let named = verdict
        .split_once("come from `")
        .or_else(|| verdict.split_once('`'));
    named
        .and_then(|(_, rest)| rest.split_once('`'))
        .map_or("", |(name, _)| name)
}

/// Creates a Pod that needs a whole machine of Karpenter, and waits until it has a node.
async fn pod_on_its_machine(cluster: &Cluster, namespace: &Namespace) -> Pod {
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    pod["spec"]["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    let name = namespace.pod(&pod).await.metadata.name.unwrap();
    until(&format!("{name} has a node"), async || {
        let pod = namespace.pods().get(&name).await.ok()?;
        pod.node().is_some().then_some(pod)
    })
    .await
}
