use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::cluster::Node;
use tolerarch_core::testing::{platforms, toleration};

mod laws;
mod verdicts;

/// Makes a NodePool with these requirements and taints, and `more` members of `spec` and `metadata`.
fn node_pool(name: &str, requirements: Value, taints: Value) -> Value {
    let template = json!({"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws"},
        "requirements": requirements,
        "taints": taints,
    }});
    json!({"metadata": {"name": name}, "spec": {"template": template}})
}

fn arch(operator: &str, values: &[&str]) -> Value {
    json!([{"key": "kubernetes.io/arch", "operator": operator, "values": values}])
}

fn taint(key: &str) -> Value {
    json!({"key": key, "value": "true", "effect": "NoSchedule"})
}

fn labelled(mut object: Value, labels: Value) -> Value {
    object["metadata"]["labels"] = labels;
    object
}

fn node(architecture: &str, node_pool: &str, taints: Value) -> Value {
    let labels = json!({
        "kubernetes.io/arch": architecture, "kubernetes.io/os": "linux", "karpenter.sh/nodepool": node_pool,
    });
    json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}})
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn inventory(node_pools: &[Value], nodes: &[Value]) -> Inventory {
    let kinds: Vec<NodeKind> = nodes
        .iter()
        .map(|node| NodeKind::of(&read::<Node>(node), &BTreeSet::from(["group".to_owned()])))
        .collect();
    Inventory::of(node_pools.iter().map(read), &kinds)
}

/// Makes a pool of the configuration, for amd64 and arm64 unless others are named.
fn pool(name: &str, key: &str, names: &[&str]) -> Pool {
    let toleration = toleration(&json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
    Pool {
        name: name.into(),
        platforms: if names.is_empty() {
            PlatformSet::AMD64_AND_ARM64
        } else {
            platforms(names)
        },
        tolerations: vec![toleration],
        ..Pool::default()
    }
}

#[test]
fn only_certain_requirements_narrow_the_platforms() {
    let both = &["linux/amd64", "linux/arm64"][..];
    let amd64 = &["linux/amd64"][..];
    let arm64 = &["linux/arm64"][..];
    let one = |key: &str, operator: &str, values: &[&str]| json!([{"key": key, "operator": operator, "values": values}]);
    for (requirements, expected) in [
        (json!([]), both),
        (json!(null), both),
        (arch("In", &["arm64"]), arm64),
        (arch("In", &["amd64", "arm64"]), both),
        (
            arch("In", &["s390x", "amd64"]),
            &["linux/amd64", "linux/s390x"],
        ),
        (arch("In", &[]), both),
        (arch("NotIn", &["arm64"]), amd64),
        (arch("NotIn", &["ppc64le"]), both),
        (arch("Exists", &[]), both),
        (arch("DoesNotExist", &[]), both),
        (arch("Gt", &["1"]), both),
        (arch("Gte", &["1"]), both),
        (arch("Matches", &["arm64"]), both),
        (one("beta.kubernetes.io/arch", "In", &["arm64"]), arm64),
        (
            json!([
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
                {"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["amd64"]},
            ]),
            arm64,
        ),
        // Karpenter makes no nodes from this NodePool, and every image would cover the empty set.
        (
            json!([
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
            ]),
            both,
        ),
        (one("kubernetes.io/os", "In", &["linux"]), both),
        (one("kubernetes.io/os", "NotIn", &["windows"]), both),
        (one("kubernetes.io/os", "In", &["windows"]), &[]),
        (one("kubernetes.io/os", "NotIn", &["linux"]), &[]),
        (one("topology.kubernetes.io/zone", "In", &["a"]), both),
        (
            one("node.kubernetes.io/instance-type", "In", &["m7g.large"]),
            both,
        ),
        (
            one("karpenter.k8s.aws/instance-family", "In", &["m7g"]),
            both,
        ),
    ] {
        let pool = read(&node_pool("p", requirements.clone(), json!([])));
        assert_eq!(of_node_pool(&pool), platforms(expected), "{requirements}");
    }
    let mut template = node_pool("p", json!([]), json!([]));
    template["spec"]["template"]["metadata"] = json!({"labels": {"kubernetes.io/arch": "arm64"}});
    assert_eq!(
        of_node_pool(&read(&template)),
        platforms(arm64),
        "labels of the template count as requirements"
    );
    let unknown = read(&node_pool("p", arch("In", &["amd64", "sparc"]), json!([])));
    assert_eq!(
        of_node_pool(&unknown),
        PlatformSet::ALL,
        "no image is known to run there"
    );
}

#[test]
fn labelled_node_pools_form_a_pool() {
    let taints = json!([
        taint("tolerarch.io/multi-arch"),
        {"key": "team", "effect": "NoExecute"},
        {"key": "spot", "effect": "PreferNoSchedule"},
    ]);
    let mut labelled_pool = labelled(
        node_pool("spot", arch("In", &["arm64"]), taints),
        json!({POOL_LABEL: "found"}),
    );
    labelled_pool["spec"]["template"]["spec"]["startupTaints"] = json!([taint("cilium")]);
    let other = labelled(
        node_pool(
            "demand",
            arch("In", &["amd64"]),
            json!([taint("tolerarch.io/multi-arch")]),
        ),
        json!({POOL_LABEL: "found"}),
    );
    let inventory = inventory(&[labelled_pool, other], &[]);
    let discovery = Discovery::of(&[], &inventory);
    let [discovered] = &discovery.pools[..] else {
        panic!("{discovery:?}")
    };
    assert_eq!(discovered.pool.name, "found");
    assert_eq!(discovered.source, Source::Discovered);
    assert_eq!(
        discovered.pool.platforms,
        PlatformSet::AMD64_AND_ARM64,
        "of both"
    );
    let tolerations = [
        json!({"key": "tolerarch.io/multi-arch", "operator": "Equal", "value": "true", "effect": "NoSchedule"}),
        json!({"key": "team", "operator": "Equal", "effect": "NoExecute"}),
        json!({"key": "spot", "operator": "Equal", "effect": "PreferNoSchedule"}),
    ];
    assert_eq!(
        discovered.pool.tolerations,
        tolerations.each_ref().map(toleration)
    );
    assert_eq!(discovery.warnings, [""; 0]);
    let names: Vec<&str> = discovered
        .node_pools
        .iter()
        .map(|pool| pool.name())
        .collect();
    assert_eq!(names, ["spot", "demand"], "in the order of Karpenter");

    // The configuration takes precedence.
    let configured = [pool("found", "own", &["linux/amd64"])];
    let discovery = Discovery::of(&configured, &inventory);
    assert_eq!(discovery.pools.len(), 1);
    assert_eq!(discovery.pools[0].pool, configured[0]);
}

#[test]
fn labelled_node_pool_that_is_no_pool_gives_a_warning() {
    let taints = || json!([taint("t")]);
    let bad = |name: &str, label: &str, requirements: Value, taints: Value| {
        labelled(
            node_pool(name, requirements, taints),
            json!({POOL_LABEL: label}),
        )
    };
    let windows = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]);
    let all = [
        bad("a", "Upper", json!([]), taints()),
        bad("b", "", json!([]), taints()),
        bad("c", "windows", windows, taints()),
        bad("d", "open", json!([]), json!([])),
        bad(
            "e",
            "wish",
            json!([]),
            json!([{"key": "k", "effect": "PreferNoSchedule"}]),
        ),
        node_pool("gpu", json!([]), json!([taint("gpu")])),
    ];
    let inventory = inventory(&all, &[]);
    let discovery = Discovery::of(&[], &inventory);
    assert_eq!(discovery.pools, []);
    assert_eq!(discovery.warnings.len(), 5, "{:?}", discovery.warnings);
    assert!(discovery.warnings[0].starts_with("NodePool a has the label tolerarch.io/pool"));
    assert!(discovery.warnings[3].ends_with("it has no taint, so that Pods use it anyway"));
    assert!(
        discovery.warnings[4]
            .ends_with("its taints are only PreferNoSchedule, so that Pods use it anyway")
    );
    let closed: Vec<&str> = discovery.closed.iter().map(|pool| pool.name()).collect();
    assert_eq!(closed, ["a", "b", "c", "gpu"]);
}

/// The API server refuses a Pod with an invalid toleration, whatever the webhook's failurePolicy says.
#[test]
fn taint_that_no_toleration_can_name_makes_no_pool() {
    let long = "x".repeat(64);
    let valid = json!({"key": "example.com/team", "value": "blue", "effect": "NoSchedule"});
    for (member, value) in [
        ("value", json!("example.com/team")),
        ("value", json!(long)),
        ("key", json!(long)),
        ("key", json!("a b")),
        ("effect", json!("NoWay")),
    ] {
        let mut invalid = valid.clone();
        invalid[member] = value.clone();
        for (taint, pools) in [(&valid, 1), (&invalid, 0)] {
            let labels = json!({"tolerarch.io/pool": "team"});
            let node_pool = labelled(node_pool("team", json!([]), json!([taint])), labels);
            let (discovered, warnings) = discover(&[], &inventory(&[node_pool], &[]));
            assert_eq!(
                (discovered.len(), warnings.len()),
                (pools, 1 - pools),
                "{member} {value}"
            );
        }
    }
}

/// Images have to run on all nodes that a toleration admits, whatever the configuration declares.
#[test]
fn platforms_of_tolerated_nodes_are_added() {
    let configured = [pool("multi-arch", "multi", &["linux/amd64"])];
    let effective = |node_pools: &[Value], nodes: &[Value]| {
        let inventory = inventory(node_pools, nodes);
        let discovery = Discovery::of(&configured, &inventory);
        let pool = &discovery.pools[0];
        let declared = platforms(&["linux/amd64"]);
        assert_eq!(pool.mismatch(), pool.pool.platforms.difference(declared));
        (pool.pool.platforms, pool.nodes)
    };
    let amd64 = platforms(&["linux/amd64"]);
    let both = PlatformSet::AMD64_AND_ARM64;
    let multi = || json!([taint("multi")]);
    assert_eq!(effective(&[], &[]), (amd64, 0));
    assert_eq!(
        effective(&[node_pool("p", arch("In", &["arm64"]), multi())], &[]),
        (both, 0)
    );
    assert_eq!(
        effective(
            &[],
            &[node("arm64", "", multi()), node("amd64", "", multi())]
        ),
        (both, 2)
    );
    // Pods could use these nodes without a toleration.
    assert_eq!(
        effective(
            &[node_pool("p", json!([]), json!([]))],
            &[node("arm64", "", json!([]))]
        ),
        (amd64, 0)
    );
    let preference = json!([{"key": "multi", "value": "true", "effect": "PreferNoSchedule"}]);
    assert_eq!(
        effective(
            &[node_pool("p", json!([]), preference.clone())],
            &[node("arm64", "", preference)]
        ),
        (amd64, 0)
    );
    // The pool does not tolerate the other taint of these nodes.
    let closed = || json!([taint("multi"), taint("gpu")]);
    assert_eq!(
        effective(
            &[node_pool("p", json!([]), closed())],
            &[node("arm64", "", closed())]
        ),
        (amd64, 0)
    );
    // Taints that come and go do not count.
    let new =
        json!([taint("multi"), {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    assert_eq!(effective(&[], &[node("arm64", "", new)]), (both, 1));
    let mut starting = node_pool("p", arch("In", &["amd64"]), multi());
    starting["spec"]["template"]["spec"]["startupTaints"] = json!([taint("cilium")]);
    assert_eq!(
        effective(
            &[starting],
            &[node("arm64", "p", json!([taint("multi"), taint("cilium")]))]
        ),
        (both, 1)
    );
    // A node outside of its NodePool's requirements.
    let narrow = node_pool("p", arch("In", &["amd64"]), multi());
    assert_eq!(
        effective(&[narrow], &[node("arm64", "p", closed())]),
        (both, 0)
    );
    assert_eq!(
        effective(&[], &[node("sparc", "", multi())]),
        (PlatformSet::ALL, 1)
    );
}

/// Taints that others set while a node starts, is repaired, or is about to be removed.
const TRANSIENT: [&str; 17] = [
    "node.kubernetes.io/unschedulable",
    "karpenter.sh/disrupted",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "ignore-taint.cluster-autoscaler.kubernetes.io/a",
    "startup-taint.cluster-autoscaler.kubernetes.io/a",
    "status-taint.cluster-autoscaler.kubernetes.io/a",
    "cloud.google.com/impending-node-termination",
    "NodeWithImpairedVolumes",
    "readiness.k8s.io/a",
    "node.cluster.x-k8s.io/uninitialized",
    "node.cluster.x-k8s.io/outdated-revision",
    "aws-node-termination-handler/spot-itn",
    "remediator.kubernetes.azure.com/unschedulable",
    "remediator.aks.microsoft.com/unschedulable",
    "node.cilium.io/agent-not-ready",
    "ebs.csi.aws.com/agent-not-ready",
];

/// Nodes of a group have a pool's taint, and others while they start or are about to be removed.
#[test]
fn transient_taint_does_not_remove_a_node_from_its_pool() {
    let configured = [pool("multi-arch", "multi", &["linux/amd64"])];
    let both = PlatformSet::AMD64_AND_ARM64;
    for transient in TRANSIENT {
        for effect in ["NoSchedule", "NoExecute", "PreferNoSchedule"] {
            let taints = json!([
                taint("multi"),
                {"key": transient, "value": "1764357843", "effect": effect},
            ]);
            let inventory = inventory(&[], &[node("arm64", "", taints)]);
            let pool = &Discovery::of(&configured, &inventory).pools[0];
            assert_eq!(pool.pool.platforms, both, "{transient}:{effect}");
            assert_eq!(pool.nodes, 1, "{transient}:{effect}");
        }
    }
}

#[test]
fn transient_taint_alone_makes_no_node_of_the_pool() {
    let configured = [pool("multi-arch", "multi", &["linux/amd64"])];
    for transient in TRANSIENT {
        let inventory = inventory(&[], &[node("arm64", "", json!([taint(transient)]))]);
        let discovery = Discovery::of(&configured, &inventory);
        assert_eq!(discovery.pools[0].nodes, 0, "{transient}");
    }
}

#[test]
fn taints_with_similar_keys_are_lasting() {
    let configured = [pool("multi-arch", "multi", &["linux/amd64"])];
    for lasting in [
        "cluster-autoscaler.kubernetes.io/a",
        "node.cluster.x-k8s.io/team",
        "cloud.google.com/gke-spot",
    ] {
        let taints = json!([taint("multi"), taint(lasting)]);
        let inventory = inventory(&[], &[node("arm64", "", taints)]);
        let discovery = Discovery::of(&configured, &inventory);
        assert_eq!(discovery.pools[0].nodes, 0, "{lasting}");
    }
}

/// When the cluster-autoscaler has scaled a group to zero, only the configuration declares its platform.
#[test]
fn pool_without_nodes_has_its_declared_platforms() {
    let of = |named: &[&str], nodes: &[Value]| {
        Discovery::of(
            &[pool("multi-arch", "multi", named)],
            &inventory(&[], nodes),
        )
        .pools[0]
            .pool
            .platforms
    };
    let multi = |architecture: &str| node(architecture, "", json!([taint("multi")]));
    let both = PlatformSet::AMD64_AND_ARM64;
    for nodes in [
        &[multi("amd64"), multi("arm64")][..],
        &[multi("amd64")],
        &[multi("arm64")],
        &[],
    ] {
        assert_eq!(
            of(&["linux/amd64", "linux/arm64"], nodes),
            both,
            "{nodes:?}"
        );
    }
    assert_eq!(of(&["linux/amd64"], &[multi("arm64")]), both);
    assert_eq!(
        of(&["linux/amd64"], &[]),
        platforms(&["linux/amd64"]),
        "what it does not name is gone"
    );
}

/// A Pod may get the tolerations of both pools.
#[test]
fn node_pool_that_needs_two_pools_counts_for_both() {
    let configured = [
        pool("a", "a", &[]),
        pool("b", "b", &[]),
        pool("c", "c", &[]),
    ];
    let taints = json!([taint("a"), taint("b")]);
    let inventory = inventory(&[node_pool("p", arch("In", &["s390x"]), taints)], &[]);
    let discovery = Discovery::of(&configured, &inventory);
    let large = platforms(&["linux/amd64", "linux/arm64", "linux/s390x"]);
    let all: Vec<PlatformSet> = discovery
        .pools
        .iter()
        .map(|pool| pool.pool.platforms)
        .collect();
    assert_eq!(all, [large, large, PlatformSet::AMD64_AND_ARM64]);
    assert!(
        discovery
            .pools
            .iter()
            .all(|pool| pool.node_pools.is_empty()),
        "no pool tolerates it alone"
    );
    assert_eq!(discovery.closed.len(), 1);
}

#[test]
fn platforms_of_the_cluster_are_those_of_all_nodes() {
    let of = |inventory: &Inventory| Discovery::of(&[], inventory).platforms;
    assert_eq!(of(&inventory(&[], &[])), None);
    let windows = json!({"metadata": {"name": "w", "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}}});
    assert_eq!(of(&inventory(&[], std::slice::from_ref(&windows))), None);
    let nodes = [node("s390x", "", json!([taint("x")])), windows];
    let all = of(&inventory(
        &[node_pool(
            "p",
            arch("In", &["arm64"]),
            json!([taint("gpu")]),
        )],
        &nodes,
    ));
    assert_eq!(all, Some(platforms(&["linux/arm64", "linux/s390x"])));
}

#[test]
fn toleration_is_lacking_where_another_taint_is_tolerated() {
    let tolerations = [toleration(&json!({"key": "a", "operator": "Exists"}))];
    let taints =
        |keys: &[&str]| -> Vec<Taint> { keys.iter().map(|key| read(&taint(key))).collect() };
    for others in [
        &[][..],
        &["b"],
        &["a"],
        &["a", "node.kubernetes.io/not-ready"],
    ] {
        assert_eq!(lacking(&tolerations, &taints(others)), None, "{others:?}");
    }
    for transient in TRANSIENT {
        let taints = taints(&["a", transient]);
        assert_eq!(lacking(&tolerations, &taints), None, "{transient}");
    }
    let both = taints(&["a", "b"]);
    assert_eq!(lacking(&tolerations, &both), Some(&both[1]));
}

/// A selected pool has exactly the nodes with its labels, with or without taints.
#[test]
fn nodes_of_a_selected_pool_have_its_labels() {
    let labelled = |name: &str, architectures: &[&str], taints: Value, group: Option<&str>| {
        let mut pool = node_pool(name, arch("In", architectures), taints);
        if let Some(group) = group {
            pool["spec"]["template"]["metadata"]["labels"] = json!({"group": group});
        }
        pool
    };
    let taint = || json!([{"key": "multi", "effect": "NoSchedule"}]);
    let node_pools = [
        labelled("selected", &["amd64"], taint(), Some("multi")),
        labelled("without-taint", &["s390x"], json!([]), Some("multi")),
        labelled("other-group", &["ppc64le"], taint(), Some("other")),
        labelled("plain", &["riscv64"], json!([]), None),
    ];
    let mut selected = node("arm64", "none", json!([]));
    selected["metadata"]["labels"]["group"] = "multi".into();
    let nodes = [selected, node("loong64", "none", taint())];
    let inventory = inventory(&node_pools, &nodes);
    let mut pool = pool("multi", "multi", &["linux/amd64"]);
    pool.select.insert("group".to_owned(), "multi".to_owned());
    let discovery = Discovery::of(std::slice::from_ref(&pool), &inventory);
    let selected = &discovery.pools[0];
    let expected = platforms(&["linux/amd64", "linux/arm64", "linux/s390x"]);
    assert_eq!(selected.pool.platforms, expected);
    let names: Vec<&str> = selected.node_pools.iter().map(|pool| pool.name()).collect();
    assert_eq!(names, ["without-taint", "selected"]);
    assert_eq!(selected.nodes, 1);
    assert_eq!(inventory.count_nodes(platforms(&["linux/arm64"]), &pool), 1);
    assert!(
        matches!(&selected.verdict, Verdict::OfPool(node_pool) if node_pool.name() == "without-taint")
    );

    // By its tolerations alone the pool has other nodes.
    pool.select.clear();
    let discovery = Discovery::of(std::slice::from_ref(&pool), &inventory);
    let unselected = &discovery.pools[0];
    let names: Vec<&str> = unselected
        .node_pools
        .iter()
        .map(|pool| pool.name())
        .collect();
    assert_eq!(names, ["selected", "other-group"]);
    assert!(matches!(unselected.verdict, Verdict::Behind { .. }));
}
