//! Pods and pools while the cluster-autoscaler creates nodes, cannot create them, and removes them.

use std::fs;

use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use scenarios::{
    AutoscalerSettings, Cluster, ClusterAutoscaler, NODE_GROUP, Namespace, NodeGroup, PodExt, pod,
    until,
};
use serde_json::json;
use tokio::time::Instant;

use crate::certificates::{self, RELEASE};
use crate::cluster_autoscaler::{MOST, all_in, groups_of, machine_pod, pinned_pod, scale};
use crate::controller::{Outage, give_rights};

/// The key of the taint of another pool.
const WIDE: &str = "e2e.tolerarch.io/wide";
/// The policy that refuses nodes.
const REFUSAL: &str = "out-of-stock";
/// Flags to remove nodes that are not needed at once.
const SCALES_DOWN: [&str; 5] = [
    "--expander=priority",
    "--scale-down-unneeded-time=3s",
    "--scale-down-delay-after-add=1s",
    "--node-delete-delay-after-taint=0s",
    "--unremovable-node-recheck-timeout=1s",
];

/// The untainted group is at its maximum, so the Pods wait until they tolerate the pool.
pub(crate) async fn nodes_are_created_for_repaired_pods(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let full = NodeGroup {
        maximum: 0,
        ..NodeGroup::untainted("plain", "amd64")
    };
    let groups = vec![full, NodeGroup::of_the_pool("multi", "arm64")];
    let settings = AutoscalerSettings {
        groups,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let Outage {
        registry,
        webhook: _webhook,
        namespace,
    } = Outage::begin(cluster, "repaired").await;
    let repo = registry.repo("app");
    let address = registry.address();
    scale(
        &namespace,
        "web",
        2,
        &machine_pod(&repo.reference("v1"), MOST),
    )
    .await;
    let before = namespace
        .until_pods("web", 2, PodExt::is_unschedulable)
        .await;
    assert!(before.iter().all(|pod| !pod.tolerates_pool()));
    until_not_triggered(cluster, &namespace).await;
    assert!(autoscaler.nodes().await.is_empty());

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let _controller = cluster
        .local()
        .controller_as(&account, &address, settings)
        .await;
    repo.fault(None);
    let back = Instant::now();
    assert_eq!(
        groups_of(&autoscaler, &namespace, "web", 2).await,
        all_in("multi", 2)
    );
    print!(
        "repaired Pods are on nodes {:.1?} after their registry's return; ",
        back.elapsed()
    );
    for pod in namespace.until_pods("web", 2, |_| true).await {
        assert_eq!(pod.pools(), Some("multi-arch"));
        assert!(
            before.iter().any(|old| old.uid() == pod.uid()),
            "the same Pods"
        );
    }
}

/// Waits for an event of the autoscaler that no group can help a Pod.
async fn until_not_triggered(cluster: &Cluster, namespace: &Namespace) {
    let path = [
        "get",
        "events",
        "-n",
        &namespace.name,
        "-o",
        "name",
        "--field-selector=reason=NotTriggerScaleUp",
    ];
    until("the autoscaler has considered the Pods", async || {
        (!cluster.local().kubectl(&path).await.is_empty()).then_some(())
    })
    .await;
}

pub(crate) async fn pods_run_on_plain_nodes_while_the_pool_is_at_its_maximum(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let small = NodeGroup {
        maximum: 1,
        ..NodeGroup::of_the_pool("multi", "arm64")
    };
    let groups = vec![NodeGroup::untainted("plain", "amd64"), small];
    let settings = AutoscalerSettings {
        groups,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let namespace = cluster.namespace("maximum").await;
    let machine = machine_pod(&cluster.images.tag("multi"), MOST);
    for (app, replicas, group) in [
        ("fits", 1, "multi"),
        ("next", 1, "plain"),
        ("later", 2, "plain"),
    ] {
        let begun = Instant::now();
        scale(&namespace, app, replicas, &machine).await;
        let replicas = replicas as usize;
        assert_eq!(
            groups_of(&autoscaler, &namespace, app, replicas).await,
            all_in(group, replicas),
            "{app}"
        );
        print!("{app}: in {group} after {:.1?}; ", begun.elapsed());
    }
}

/// As if a cloud has run out of machines and says so: the group may grow, but each attempt fails.
pub(crate) async fn pods_run_on_plain_nodes_while_the_pool_cannot_grow(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let arguments = vec![
        "--expander=priority",
        "--initial-node-group-backoff-duration=30s",
    ];
    let settings = AutoscalerSettings {
        arguments,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let namespace = cluster.namespace("backoff").await;
    let machine = machine_pod(&cluster.images.tag("multi"), MOST);
    refuse_nodes(cluster, "multi").await;
    for app in ["first", "second"] {
        let begun = Instant::now();
        scale(&namespace, app, 2, &machine).await;
        assert_eq!(
            groups_of(&autoscaler, &namespace, app, 2).await,
            all_in("plain", 2),
            "{app}"
        );
        print!("{app}: in plain after {:.1?}; ", begun.elapsed());
        autoscaler.until_scale_up("multi", "Backoff").await;
    }
    cluster
        .local()
        .kubectl(&["delete", "validatingadmissionpolicybinding", REFUSAL])
        .await;
    autoscaler.until_scale_up("multi", "NoActivity").await;
    scale(&namespace, "third", 2, &machine).await;
    assert_eq!(
        groups_of(&autoscaler, &namespace, "third", 2).await,
        all_in("multi", 2)
    );
}

/// As if a cloud has run out of machines and does not say so: the group grows, but its machines never become ready. The
/// first Pods wait for `--max-node-provision-time`, 15 minutes by default.
pub(crate) async fn pods_run_on_plain_nodes_if_pool_machines_never_get_ready(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let arguments = vec!["--expander=priority", "--max-node-provision-time=10s"];
    let settings = AutoscalerSettings {
        arguments,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let namespace = cluster.namespace("never-ready").await;
    autoscaler.kubelets.signal("STOP").await;
    let begun = Instant::now();
    scale(
        &namespace,
        "web",
        1,
        &machine_pod(&cluster.images.tag("multi"), MOST),
    )
    .await;
    autoscaler.until_nodes("multi", 1).await;
    autoscaler.until_scale_up("multi", "Backoff").await;
    autoscaler.until_nodes("plain", 1).await;
    print!("a plain node after {:.1?}; ", begun.elapsed());
    autoscaler.kubelets.signal("CONT").await;
    groups_of(&autoscaler, &namespace, "web", 1).await;
}

/// Makes the API server refuse new nodes of a group, and waits until it does.
async fn refuse_nodes(cluster: &Cluster, group: &str) {
    let expression = format!("object.metadata.?labels[?'{NODE_GROUP}'].orValue('') != '{group}'");
    let nodes = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": REFUSAL},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [nodes]},
            "validations": [{"expression": expression, "message": "out of stock"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": REFUSAL},
        "spec": {"policyName": REFUSAL, "validationActions": ["Deny"]},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]});
    let file = cluster.local().directory().join("refusal.json");
    fs::write(&file, list.to_string()).unwrap();
    cluster
        .local()
        .kubectl(&["apply", "--server-side", "-f", &file.display().to_string()])
        .await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let node = json!({"metadata": {"name": "refused", "labels": {NODE_GROUP: group}}});
    let node: Node = serde_json::from_value(node).unwrap();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("nodes are refused", async || {
        nodes.create(&dry_run, &node).await.err().map(drop)
    })
    .await;
}

/// The Pods need one node of each group, and one Pod could run on the other group's node.
pub(crate) async fn nodes_are_removed_if_their_pods_fit_elsewhere(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let arguments = SCALES_DOWN.to_vec();
    let settings = AutoscalerSettings {
        arguments,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let namespace = cluster.namespace("scale-down").await;
    let of = |tag: &str, cpu: &str| machine_pod(&cluster.images.tag(tag), cpu);

    // These fill the plain node, so the next ones have room only in the pool.
    for (app, replicas, cpu) in [("amd64", 2, "1"), ("single", 1, "2")] {
        scale(&namespace, app, replicas, &of(app, cpu)).await;
        let replicas = replicas as usize;
        assert_eq!(
            groups_of(&autoscaler, &namespace, app, replicas).await,
            all_in("plain", replicas)
        );
    }
    autoscaler.until_nodes("plain", 1).await;
    for (app, cpu) in [("large", MOST), ("small", "500m")] {
        scale(&namespace, app, 1, &of("multi", cpu)).await;
        assert_eq!(
            groups_of(&autoscaler, &namespace, app, 1).await,
            all_in("multi", 1)
        );
    }
    scale(&namespace, "single", 0, &of("single", "2")).await;
    namespace.until_gone("single").await;

    // The pool's node is removed: its Pod has room on the plain node.
    let begun = Instant::now();
    scale(&namespace, "large", 0, &of("multi", MOST)).await;
    autoscaler.until_nodes("multi", 0).await;
    assert_eq!(
        groups_of(&autoscaler, &namespace, "small", 1).await,
        all_in("plain", 1)
    );
    print!("the pool is empty after {:.1?}; ", begun.elapsed());

    // The plain node is removed: its Pod has room in the pool.
    scale(&namespace, "large", 1, &of("multi", MOST)).await;
    assert_eq!(
        groups_of(&autoscaler, &namespace, "large", 1).await,
        all_in("multi", 1)
    );
    let begun = Instant::now();
    scale(&namespace, "amd64", 0, &of("amd64", "1")).await;
    autoscaler.until_nodes("plain", 0).await;
    assert_eq!(
        groups_of(&autoscaler, &namespace, "small", 1).await,
        all_in("multi", 1)
    );
    print!("the plain group is empty after {:.1?}; ", begun.elapsed());

    for app in ["large", "small"] {
        scale(&namespace, app, 0, &of("multi", MOST)).await;
    }
    autoscaler.until_nodes("multi", 0).await;
}

/// tolerarch has only the rights that the chart gives for discovery. It sees no groups without nodes: without any nodes,
/// the pool's configured platforms count.
pub(crate) async fn discovered_pools_follow_created_and_removed_nodes(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let taints = json!([{"key": WIDE, "value": "true", "effect": "NoSchedule"}]);
    let groups = ["amd64", "arm64"].map(|architecture| NodeGroup {
        taints: taints.clone(),
        ..NodeGroup::untainted(architecture, architecture)
    });
    let settings = AutoscalerSettings {
        groups: groups.into(),
        arguments: SCALES_DOWN.to_vec(),
        priorities: None,
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let namespace = cluster.namespace_opted_out("discovering").await;
    let rights: [(&str, &[&str]); 2] = [
        ("default", &["ServiceAccount", "ServiceAccount"]),
        ("discovery", &["ClusterRole", "ClusterRoleBinding"]),
    ];
    let kubeconfig = certificates::give_rights(cluster, &namespace, &rights).await;
    let settings = json!({
        "discover": {"nodes": true},
        "pools": [{
            "name": "wide", "platforms": ["linux/arm64"],
            "tolerations": [{"key": WIDE, "operator": "Exists", "effect": "NoSchedule"}],
        }],
    });
    let tolerarch = cluster.local().tolerarch_as(&kubeconfig, settings).await;
    let discovered = cluster.namespace_with("discovered", &tolerarch.url).await;
    let until_pools = async |what: &str, pools: [&str; 2]| {
        let begun = Instant::now();
        for (tag, pools) in ["arm64", "multi"].into_iter().zip(pools) {
            until(
                &format!("{what}: Pods of {tag} get {pools:?}"),
                async || {
                    let pod = discovered
                        .dry_run(&pod(&[&cluster.images.tag(tag)]))
                        .await
                        .ok()?;
                    (pod.pools().unwrap_or_default() == pools).then_some(())
                },
            )
            .await;
        }
        print!("{what}: after {:.1?}; ", begun.elapsed());
    };
    until_pools("no nodes", ["wide", "wide"]).await;
    for (group, pools) in [("arm64", ["wide", "wide"]), ("amd64", ["", "wide"])] {
        let pod = pinned_pod(&cluster.images.tag("multi"), group);
        scale(&namespace, group, 1, &pod).await;
        autoscaler.until_nodes(group, 1).await;
        until_pools(&format!("a node of {group}"), pools).await;
    }
    for (group, pools) in [("arm64", ["", "wide"]), ("amd64", ["wide", "wide"])] {
        scale(
            &namespace,
            group,
            0,
            &pinned_pod(&cluster.images.tag("multi"), group),
        )
        .await;
        autoscaler.until_nodes(group, 0).await;
        until_pools(&format!("no node of {group}"), pools).await;
    }
}
