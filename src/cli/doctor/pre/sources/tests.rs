//! Clusters that can get a first arm64 node, and clusters with one fault each that prevents it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::arrival::{Arrival, present};
use super::check;
use crate::cli::autoscaler::AutoscalerSearch;
use crate::cli::doctor::findings::{Finding, Findings, Status};
use crate::cli::inventory::ClusterNodes;
use crate::config::{Config, Discover};
use tolerarch_core::image::PlatformSet;
use tolerarch_kubernetes::cluster::testing::{FakeApi, Reply};
use tolerarch_kubernetes::discovery::{Discovery, NewNode};

const NODES: &str = "/api/v1/nodes";
const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
const OVERLAYS: &str = "/apis/karpenter.sh/v1alpha1/nodeoverlays";
const CLASS: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/default";
const OTHER_CLASS: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/amd64";
const TAINT: &str = "tolerarch.io/multi-arch";
const FAMILY: &str = "karpenter.k8s.aws/instance-family";

/// Objects by path. Other paths are answered with 404, and paths with `null` with 403.
type Cluster = BTreeMap<&'static str, Value>;

fn taints() -> Value {
    json!([{"key": TAINT, "value": "true", "effect": "NoSchedule"}])
}

fn requirement(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

fn node(name: &str, architecture: &str, taints: &Value) -> Value {
    let labels = json!({"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"});
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}})
}

fn node_pool(name: &str, architectures: &[&str], taints: &Value) -> Value {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let requirements = [requirement("kubernetes.io/arch", architectures)];
    json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "taints": taints, "requirements": requirements, "nodeClassRef": class,
        }}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn class(architectures: &[&str]) -> Value {
    let mut images = Vec::new();
    for architecture in architectures {
        let requirements = [requirement("kubernetes.io/arch", &[architecture])];
        images.push(json!({"id": "ami-1", "requirements": requirements}));
    }
    let ready = json!({"type": "Ready", "status": "True"});
    json!({"metadata": {"name": "default"}, "status": {"amis": images, "conditions": [ready]}})
}

/// Returns a cluster with one amd64 node and with Karpenter, whose NodePool `multi` creates nodes of the pool.
fn with_karpenter() -> Cluster {
    let resource = json!({
        "resource": "ec2nodeclasses", "responseKind": {"kind": "EC2NodeClass"},
        "scope": "Cluster", "singularResource": "ec2nodeclass",
    });
    let version = json!({"version": "v1", "resources": [resource], "freshness": "Current"});
    let group = json!({"metadata": {"name": "karpenter.k8s.aws"}, "versions": [version]});
    let kind = "APIGroupDiscoveryList";
    let kinds = |items: Value| json!({"kind": kind, "apiVersion": "apidiscovery.k8s.io/v2", "items": items});
    BTreeMap::from([
        ("/apis", kinds(json!([group]))),
        ("/api", kinds(json!([]))),
        (NODES, json!([node("plain", "amd64", &json!([]))])),
        (
            NODE_POOLS,
            json!([
                node_pool("default", &["amd64"], &json!([])),
                node_pool("multi", &["amd64", "arm64"], &taints()),
            ]),
        ),
        (CLASS, class(&["amd64", "arm64"])),
        (OVERLAYS, json!([])),
    ])
}

/// Returns a cluster with a cluster-autoscaler that has these priorities, and with the node groups `plain` and `arm`.
/// `arm_node` is the only node of the group `arm`.
fn with_autoscaler(priorities: &str, arm_node: Value) -> Cluster {
    let health = json!({"maxSize": 9, "nodeCounts": {"registered": {"total": 1}}});
    let groups = ["plain", "arm"].map(|name| json!({"name": name, "health": health}));
    let status = json!({"autoscalerStatus": "Running", "nodeGroups": groups}).to_string();
    let status = json!({
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": status},
    });
    let command = ["cluster-autoscaler", "--expander=priority"];
    let container = json!({"name": "a", "image": "example.com/a:1", "command": command});
    let deployment =
        json!({"spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}});
    BTreeMap::from([
        (
            NODES,
            json!([node("plain-1", "amd64", &json!([])), arm_node]),
        ),
        ("/api/v1/configmaps", json!([status])),
        (
            "/apis/apps/v1/namespaces/kube-system/deployments",
            json!([deployment]),
        ),
        (
            "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-priority-expander",
            json!({"data": {"priorities": priorities}}),
        ),
    ])
}

async fn examine(cluster: Cluster, config: &str) -> Vec<Finding> {
    let api = FakeApi::start(move |request| {
        if request.path.ends_with("/subjectaccessreviews") {
            return Reply::of(201, json!({"status": {"allowed": true}}));
        }
        match cluster.get(request.path.as_str()) {
            Some(Value::Null) => Reply::refused(403, "forbidden to you"),
            Some(object) => Reply::of(200, object.clone()),
            None => Reply::refused(404, "not found"),
        }
    })
    .await;
    let client = api.client();
    let config = Config::parse(config).unwrap();
    let platform = PlatformSet::of_architecture("arm64");
    let cluster = ClusterNodes::read(&client, Discover::ALL, &[])
        .await
        .unwrap();
    let search = AutoscalerSearch::read(&client, cluster.nodes.as_deref()).await;
    let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
    let mut pools = Vec::new();
    for discovered in &discovery.pools {
        if discovered.pool.platforms.contains(platform) {
            pools.push(&discovered.pool);
        }
    }
    let nodes = cluster.nodes.as_deref().unwrap_or_default();
    let new_nodes = NewNode::all("arm64", platform, &cluster.inventory, nodes, pools.clone());
    let arrival = Arrival {
        client: &client,
        only: None,
        architecture: "arm64",
        platform,
        present: present(nodes),
        namespaces: Vec::new(),
        cluster: &cluster,
        search: &search,
        discovery: &discovery,
        nodes: new_nodes,
        pools,
        verify: config.verify,
    };
    let mut findings = Findings::default();
    check(&arrival, &mut findings).await;
    findings.0
}

/// Returns the findings with a status, as `check: message → fix`.
fn with_status(findings: &[Finding], status: Status) -> Vec<String> {
    let mut texts = Vec::new();
    for finding in findings.iter().filter(|finding| finding.status == status) {
        let Finding {
            check,
            message,
            fix,
            ..
        } = finding;
        texts.push(format!("{check}: {message} → {fix}"));
    }
    texts
}

#[tokio::test]
async fn cluster_with_a_source_passes_every_check() {
    let mut with_overlay = with_karpenter();
    with_overlay.insert(OVERLAYS, overlay("arm64", "-10%", Some("True")));
    let arm_first = "{100: [arm], 10: ['.*']}";
    let arm = node("arm-1", "arm64", &taints());
    let plain = node("plain", "amd64", &json!([]));
    let without_autoscaler = |nodes: Value| BTreeMap::from([(NODES, nodes)]);
    for (cluster, expected) in [
        (
            with_karpenter(),
            vec![
                "node-pools: pool multi-arch: NodePool multi creates linux/arm64",
                "node-classes: EC2NodeClass default has machine images for arm64",
            ],
        ),
        (
            with_overlay,
            vec![
                "node-pools: pool multi-arch: NodePool multi creates linux/arm64",
                "node-classes: EC2NodeClass default has machine images for arm64",
                "overlays: 1 NodeOverlay, and none makes arm64 more expensive",
            ],
        ),
        (
            with_autoscaler(arm_first, arm.clone()),
            vec![
                "autoscaler: pool multi-arch: the cluster-autoscaler takes `arm` first (priority 100)",
            ],
        ),
        (
            without_autoscaler(json!([plain, arm])),
            vec!["nodes: pool multi-arch opens 1 node with linux/arm64 already"],
        ),
        (
            without_autoscaler(json!([plain])),
            vec![
                "nodes: no autoscaler creates nodes here: the first linux/arm64 node comes when you add it, with the taint tolerarch.io/multi-arch:NoSchedule of pool multi-arch",
            ],
        ),
        // If all nodes have the architecture, none needs a taint.
        (
            without_autoscaler(json!([node("arm", "arm64", &json!([]))])),
            vec!["nodes: 1 node with linux/arm64 already, none of them with a taint of multi-arch"],
        ),
    ] {
        let findings = examine(cluster, "").await;
        let mut messages = Vec::new();
        for finding in &findings {
            assert_eq!(finding.status, Status::Ok, "{findings:#?}");
            messages.push(format!("{}: {}", finding.check, finding.message));
        }
        assert_eq!(messages, expected);
    }
}

fn overlay(architecture: &str, adjustment: &str, ready: Option<&str>) -> Value {
    let requirements = [requirement("kubernetes.io/arch", &[architecture])];
    let mut overlay = json!({
        "metadata": {"name": "price"},
        "spec": {"requirements": requirements, "priceAdjustment": adjustment},
    });
    if let Some(status) = ready {
        overlay["status"] = json!({"conditions": [{"type": "Ready", "status": status}]});
    }
    json!([overlay])
}

/// Returns the NodePool that has the pool's taint.
fn multi(cluster: &mut Cluster) -> &mut Value {
    &mut cluster.get_mut(NODE_POOLS).unwrap()[1]
}

fn add_requirement(node_pool: &mut Value, requirement: Value) {
    let requirements = &mut node_pool["spec"]["template"]["spec"]["requirements"];
    requirements.as_array_mut().unwrap().push(requirement);
}

#[tokio::test]
async fn faults_of_karpenter_are_reported_with_fixes() {
    type Break = fn(&mut Cluster);
    let cases: &[(Break, &str)] = &[
        (
            |cluster| *multi(cluster) = node_pool("multi", &["amd64"], &taints()),
            "node-pools: no NodePool of pool multi-arch creates linux/arm64 (multi) → add arm64 to kubernetes.io/arch in the requirements of NodePool multi",
        ),
        (
            |cluster| {
                multi(cluster)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            },
            "node-pools: NodePool multi is being deleted: it creates no linux/arm64 node → create another NodePool with its taints, or create it again",
        ),
        (
            |cluster| multi(cluster)["spec"]["replicas"] = 2.into(),
            "node-pools: NodePool multi has a fixed number of nodes: it creates no linux/arm64 node → create another NodePool with its taints: one with spec.replicas creates no node for Pods that wait",
        ),
        (
            |cluster| multi(cluster)["status"]["conditions"][0]["status"] = "False".into(),
            "node-pools: NodePool multi is not ready: it creates no linux/arm64 node → see its conditions: kubectl describe nodepool multi",
        ),
        (
            |cluster| multi(cluster)["spec"]["limits"] = json!({"cpu": "0"}),
            "node-pools: NodePool multi has reached its limits: it creates no linux/arm64 node → raise spec.limits of NodePool multi",
        ),
        (
            |cluster| {
                add_requirement(
                    multi(cluster),
                    json!({"key": "kubernetes.io/os", "operator": "DoesNotExist"}),
                );
            },
            "node-pools: NodePool multi requires what contradicts itself: it creates no linux/arm64 node → correct the requirements and labels of NodePool multi, which leave a label no value",
        ),
        (
            |cluster| add_requirement(multi(cluster), requirement(FAMILY, &["m5", "c5"])),
            "node-pools: NodePool multi has no instance type of arm64, as karpenter.k8s.aws/instance-family allows only c5, m5: it creates no linux/arm64 node → allow instance types of arm64 there, such as m7g, or remove the requirement",
        ),
        (
            |cluster| {
                let unhealthy = json!({"type": "NodeRegistrationHealthy", "status": "False"});
                let conditions = &mut multi(cluster)["status"]["conditions"];
                conditions.as_array_mut().unwrap().push(unhealthy);
            },
            "node-pools: pool multi-arch: Karpenter gets no nodes of NodePool multi, and Pods that fit there wait for them → see its condition NodeRegistrationHealthy: kubectl describe nodepool multi; with a limit of cpu 0 Karpenter takes others",
        ),
        (
            |cluster| multi(cluster)["metadata"]["name"] = "arm".into(),
            "node-pools: pool multi-arch: new nodes come from `default` (untainted, weight 0, later name) before `arm`; give it a weight of 1 or more → change the weights: Karpenter takes NodePools by weight, then by name, and compares prices only within one",
        ),
        (
            |cluster| {
                let x86 = node_pool("x86", &["amd64"], &taints());
                let node_pools = cluster.get_mut(NODE_POOLS).unwrap();
                node_pools.as_array_mut().unwrap().push(x86);
            },
            "node-pools: pool multi-arch: new nodes come from `x86`, which creates no linux/arm64, before `multi` → change the weights: Karpenter takes NodePools by weight, then by name, and compares prices only within one",
        ),
        (
            |cluster| {
                let node_pools = cluster.get_mut(NODE_POOLS).unwrap();
                node_pools[0] = node_pool("default", &["amd64", "arm64"], &json!([]));
            },
            "node-pools: NodePool default may create linux/arm64 nodes and has no taint: any Pod may go there, whatever its images → restrict it in its requirements (kubernetes.io/arch In [amd64]), or taint it (tolerarch.io/multi-arch:NoSchedule)",
        ),
        (
            |cluster| {
                multi(cluster)["spec"]["template"]["spec"]["taints"][0]["key"] = "team".into();
            },
            "node-pools: no NodePool has a taint of multi-arch: Karpenter creates no linux/arm64 node for it → create a NodePool for linux/arm64 with the taint tolerarch.io/multi-arch:NoSchedule of pool multi-arch: docs/autoscalers.md",
        ),
        (
            |cluster| {
                let team = json!({"key": "team", "value": "a", "effect": "NoSchedule"});
                let taints = &mut multi(cluster)["spec"]["template"]["spec"]["taints"];
                taints.as_array_mut().unwrap().push(team);
            },
            "nodes: multi has a taint that pool multi-arch tolerates, but also team, which it does not tolerate → add a toleration for team to pool multi-arch, or remove the taint",
        ),
        (
            |cluster| {
                cluster.insert(CLASS, class(&["amd64"]));
            },
            "node-classes: EC2NodeClass default has machine images only for amd64: NodePool multi creates no linux/arm64 node → in amiSelectorTerms of EC2NodeClass default, select an alias that has both architectures, such as al2023@v20260801, or add an AMI for arm64",
        ),
        (
            |cluster| {
                cluster.remove(CLASS);
                multi(cluster)["status"]["conditions"][0]["status"] = "False".into();
            },
            "node-classes: NodePool multi names EC2NodeClass default, which does not exist → create EC2NodeClass default, or correct nodeClassRef in NodePool multi",
        ),
        (
            |cluster| {
                let group =
                    &mut multi(cluster)["spec"]["template"]["spec"]["nodeClassRef"]["group"];
                *group = "karpenter.azure.com".into();
            },
            "node-classes: NodePool multi names EC2NodeClass default, which does not exist → create EC2NodeClass default, or correct nodeClassRef in NodePool multi",
        ),
        (
            |cluster| {
                let failed = json!([
                    {"type": "AMIsReady", "status": "False", "message": "AMISelector did not match any AMIs"},
                    {"type": "Ready", "status": "False", "message": "AMIsReady=False"},
                ]);
                cluster.get_mut(CLASS).unwrap()["status"] = json!({"conditions": failed});
                multi(cluster)["status"]["conditions"][0]["status"] = "False".into();
            },
            "node-classes: EC2NodeClass default of NodePool multi is not ready: AMIsReady: AMISelector did not match any AMIs → see its conditions: kubectl describe ec2nodeclass default",
        ),
        (
            |cluster| {
                cluster.insert(OVERLAYS, overlay("arm64", "+25%", Some("True")));
            },
            "overlays: NodeOverlay price (priceAdjustment: +25%) makes arm64 more expensive in NodePool multi: by usual prices Karpenter takes other architectures first → delete NodeOverlay price, or change it into one for arm64 that lowers the price",
        ),
    ];
    for (break_cluster, expected) in cases {
        let mut cluster = with_karpenter();
        break_cluster(&mut cluster);
        let findings = examine(cluster, "").await;
        assert_eq!(
            with_status(&findings, Status::Failed),
            [*expected],
            "{findings:#?}"
        );
        assert!(
            with_status(&findings, Status::Unknown).is_empty(),
            "{findings:#?}"
        );
    }
}

/// If another NodePool creates the node, reached limits are no fault, because they may be intended. A missing machine
/// image is a fault in any case.
#[tokio::test]
async fn limits_beside_a_usable_node_pool_are_no_fault() {
    let mut cluster = with_karpenter();
    let mut full = node_pool("aaa", &["arm64"], &taints());
    full["spec"]["limits"] = json!({"cpu": "0"});
    let mut without_image = node_pool("bbb", &["arm64"], &taints());
    without_image["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "amd64".into();
    cluster.insert(OTHER_CLASS, class(&["amd64"]));
    let node_pools = cluster.get_mut(NODE_POOLS).unwrap();
    node_pools
        .as_array_mut()
        .unwrap()
        .extend([full, without_image]);
    let findings = examine(cluster, "").await;
    let unknown = with_status(&findings, Status::Unknown);
    assert_eq!(unknown.len(), 1, "{findings:#?}");
    assert!(unknown[0].contains("NodePool aaa has reached its limits"));
    let failed = with_status(&findings, Status::Failed);
    assert_eq!(failed.len(), 1, "{findings:#?}");
    assert!(
        failed[0].contains("EC2NodeClass amd64 has machine images only for amd64: NodePool bbb")
    );
}

/// Without an instance type or a machine image for arm64, an untainted NodePool creates no arm64 node.
#[tokio::test]
async fn untainted_node_pool_without_the_platform_is_no_fault() {
    let mut by_family = with_karpenter();
    let mut by_image = with_karpenter();
    for cluster in [&mut by_family, &mut by_image] {
        let node_pools = cluster.get_mut(NODE_POOLS).unwrap();
        node_pools[0]["spec"]["template"]["spec"]["requirements"] = json!([]);
    }
    let node_pools = by_family.get_mut(NODE_POOLS).unwrap();
    add_requirement(&mut node_pools[0], requirement(FAMILY, &["m5"]));
    let node_pools = by_image.get_mut(NODE_POOLS).unwrap();
    node_pools[0]["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "amd64".into();
    by_image.insert(OTHER_CLASS, class(&["amd64"]));
    for cluster in [by_family, by_image] {
        let findings = examine(cluster, "").await;
        assert!(
            with_status(&findings, Status::Failed).is_empty(),
            "{findings:#?}"
        );
    }
}

#[tokio::test]
async fn overlays_with_an_uncertain_effect_are_no_fault() {
    for (adjustment, ready, part) in [
        ("+5%", Some("True"), "depends on the prices"),
        ("+50%", Some("False"), "as soon as Karpenter applies it"),
        ("+50%", None, "as soon as Karpenter applies it"),
    ] {
        let mut cluster = with_karpenter();
        cluster.insert(OVERLAYS, overlay("arm64", adjustment, ready));
        let findings = examine(cluster, "").await;
        assert!(
            with_status(&findings, Status::Failed).is_empty(),
            "{findings:#?}"
        );
        let unknown = with_status(&findings, Status::Unknown);
        assert!(unknown[0].contains(part), "{unknown:?}");
    }
    // Nothing is reported if the cluster does not have the kind.
    let mut cluster = with_karpenter();
    cluster.remove(OVERLAYS);
    let findings = examine(cluster, "").await;
    assert!(findings.iter().all(|finding| finding.check != "overlays"));
}

#[tokio::test]
async fn faults_of_the_cluster_autoscaler_are_reported() {
    let arm = || node("arm-1", "arm64", &taints());
    let arm_first = "{100: [arm], 10: ['.*']}";
    let priorities_path =
        "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-priority-expander";
    let mut without_priorities = with_autoscaler(arm_first, arm());
    without_priorities.remove(priorities_path);
    let mut full = with_autoscaler(arm_first, arm());
    let status = &mut full.get_mut("/api/v1/configmaps").unwrap()[0]["data"]["status"];
    *status = status
        .as_str()
        .unwrap()
        .replace("\"maxSize\":9", "\"maxSize\":1")
        .into();
    for (cluster, part) in [
        (
            with_autoscaler("{100: [plain], 10: ['.*']}", arm()),
            "takes `plain` (priority 100) before `arm`",
        ),
        (without_priorities, "has no priorities of node groups"),
        (
            with_autoscaler(arm_first, node("arm-1", "amd64", &taints())),
            "the node group `arm`, which the cluster-autoscaler takes first, creates amd64 and no linux/arm64",
        ),
        (
            full,
            "no node group of it may grow: `arm` has reached its maximum of 1",
        ),
        (
            with_autoscaler(arm_first, node("arm-1", "amd64", &json!([]))),
            "no node group of the cluster-autoscaler has a taint of multi-arch",
        ),
    ] {
        let findings = examine(cluster, "").await;
        let failed = with_status(&findings, Status::Failed);
        assert_eq!(failed.len(), 1, "{part}: {findings:#?}");
        assert!(
            failed[0].starts_with("autoscaler: ") && failed[0].contains(part),
            "{part}: {failed:?}"
        );
    }
    // A group that is scaled to zero has no node that shows its taints.
    let mut empty = with_autoscaler(arm_first, arm());
    empty.insert(NODES, json!([node("plain-1", "amd64", &json!([]))]));
    let findings = examine(empty, "").await;
    let unknown = with_status(&findings, Status::Unknown);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(
        unknown[0].starts_with("autoscaler: not tried: "),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn untainted_nodes_of_the_platform_are_reported() {
    let nodes = json!([
        node("plain", "amd64", &json!([])),
        node("arm", "arm64", &json!([]))
    ]);
    let findings = examine(BTreeMap::from([(NODES, nodes)]), "").await;
    let expected = "nodes: linux/arm64 nodes like arm have no taint: any Pod may go there, whatever its images → taint them: kubectl taint node arm tolerarch.io/multi-arch:NoSchedule";
    assert_eq!(with_status(&findings, Status::Unknown), [expected]);
    assert_eq!(findings.len(), 2, "{findings:#?}");
}

#[tokio::test]
async fn pool_selected_by_labels_is_described_by_its_labels() {
    const POOLS: &str = "pools:\n- {name: arm, platforms: [linux/arm64], tolerations: [{key: a}], select: {labels: {group: arm}}}\n";
    const BOTH: &str = "pools:\n- {name: arm, platforms: [linux/arm64], tolerations: [{key: a}], select: {labels: {group: arm}}}\n- {name: b, platforms: [linux/arm64], tolerations: [{key: b}]}\n";
    let mut karpenter = with_karpenter();
    let node_pools = karpenter.get_mut(NODE_POOLS).unwrap();
    node_pools.as_array_mut().unwrap().pop();
    let nodes = |architecture: &str| {
        let node = node("plain", architecture, &json!([]));
        BTreeMap::from([(NODES, json!([node]))])
    };
    for (cluster, config, expected) in [
        (
            karpenter.clone(),
            POOLS,
            "node-pools: no NodePool has the label group=arm of arm: Karpenter creates no linux/arm64 node for it → create a NodePool for linux/arm64 with group=arm of pool arm: docs/autoscalers.md",
        ),
        (
            karpenter,
            BOTH,
            "node-pools: no NodePool has a taint of b or the label group=arm of arm: Karpenter creates no linux/arm64 node for it → create a NodePool for linux/arm64 with group=arm of pool arm, or with the taint b:NoSchedule of pool b: docs/autoscalers.md",
        ),
        (
            nodes("arm64"),
            POOLS,
            "nodes: 1 node with linux/arm64 already, none of them with the label group=arm of arm → ",
        ),
        (
            nodes("amd64"),
            POOLS,
            "nodes: no autoscaler creates nodes here: the first linux/arm64 node comes when you add it, with group=arm of pool arm → ",
        ),
    ] {
        let findings = examine(cluster, config).await;
        let mut texts = with_status(&findings, Status::Failed);
        texts.extend(with_status(&findings, Status::Ok));
        assert!(
            texts.iter().any(|text| text == expected),
            "{expected}: {texts:#?}"
        );
    }
}

#[tokio::test]
async fn one_pool_with_a_source_is_enough() {
    const POOLS: &str = "pools:\n- {name: a, platforms: [linux/arm64], tolerations: [{key: a}]}\n- {name: multi-arch, platforms: [linux/amd64, linux/arm64], tolerations: [{key: tolerarch.io/multi-arch, operator: Exists}]}\n";
    let findings = examine(with_karpenter(), POOLS).await;
    assert!(
        with_status(&findings, Status::Failed).is_empty(),
        "{findings:#?}"
    );
    let mut cluster = with_karpenter();
    cluster
        .get_mut(NODE_POOLS)
        .unwrap()
        .as_array_mut()
        .unwrap()
        .pop();
    let findings = examine(cluster, POOLS).await;
    let failed = with_status(&findings, Status::Failed);
    assert_eq!(failed.len(), 1, "{findings:#?}");
    assert!(
        failed[0].contains("no NodePool has a taint of a, multi-arch"),
        "{failed:?}"
    );
    let findings = examine(
        with_karpenter(),
        "pools: [{name: a, platforms: [linux/amd64], tolerations: [{key: a}]}]\n",
    )
    .await;
    let failed = with_status(&findings, Status::Failed);
    assert!(failed[0].contains("no pool has linux/arm64"), "{failed:?}");
}

#[tokio::test]
async fn checks_of_forbidden_objects_are_unknown() {
    let mut checks = BTreeSet::new();
    for path in [
        NODES,
        NODE_POOLS,
        CLASS,
        OVERLAYS,
        "/apis",
        "/api/v1/configmaps",
    ] {
        let mut cluster = with_karpenter();
        cluster.insert(path, Value::Null);
        let findings = examine(cluster, "").await;
        assert!(
            with_status(&findings, Status::Failed).is_empty(),
            "{path}: {findings:#?}"
        );
        let mut unknown = with_status(&findings, Status::Unknown);
        assert!(!unknown.is_empty(), "{path}");
        unknown
            .retain(|text| !text.contains(": not tried: ") || !text.contains("forbidden to you"));
        assert!(unknown.is_empty(), "{path}: {findings:#?}");
        checks.extend(findings.iter().map(|finding| finding.check));
    }
    assert_eq!(checks.len(), 5, "{checks:?}");
    // No fault is reported, because an object that may not be read may create the node.
    for path in [NODES, NODE_POOLS, "/api/v1/configmaps"] {
        let plain = json!([node("plain", "amd64", &json!([]))]);
        let cluster = BTreeMap::from([(NODES, plain), (path, Value::Null)]);
        let findings = examine(cluster, "").await;
        assert!(
            findings
                .iter()
                .all(|finding| finding.status == Status::Unknown),
            "{path}: {findings:#?}"
        );
    }
}
