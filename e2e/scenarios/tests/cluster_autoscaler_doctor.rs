//! What `doctor` and `pools` report of the cluster-autoscaler, from its default flags to Pods in the pool's group.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use scenarios::{
    AUTOSCALED, AutoscalerSettings, Cluster, ClusterAutoscaler, Namespace, NodeGroup, deployment,
    pod, until_ok,
};
use serde_json::{Value, json};

use crate::cluster_autoscaler::{MOST, groups_of};
use crate::documentation::all_commands_of;

/// The flag in the documentation.
const FLAG: &str = "--expander=priority,least-waste";

/// The first line of `doctor` names what is missing. Once nothing is missing, doctor finds no fault.
pub(crate) async fn doctor_names_what_is_missing_to_fill_the_pool(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let namespace = cluster.namespace("autoscaled").await;
    cluster.until_called(&namespace).await;
    install_deployment(cluster, &[]).await;
    let default = AutoscalerSettings {
        arguments: Vec::new(),
        priorities: None,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, default).await;
    // First all groups have no nodes, then one has a node.
    until_first(cluster, &namespace, 3, "not by priority").await;
    namespace
        .apply(&deployment("amd64", 1, &machine_pod(cluster, "amd64")))
        .await;
    groups_of(&autoscaler, &namespace, "amd64", 1).await;
    until_first(cluster, &namespace, 3, "not by priority").await;

    // The flag without the ConfigMap.
    install_deployment(cluster, &[FLAG]).await;
    until_first(
        cluster,
        &namespace,
        3,
        "cluster-autoscaler-priority-expander is missing",
    )
    .await;
    drop(autoscaler);
    let settings = AutoscalerSettings {
        arguments: vec![FLAG],
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    namespace
        .apply(&deployment("multi", 1, &machine_pod(cluster, "multi")))
        .await;
    let groups = groups_of(&autoscaler, &namespace, "multi", 1).await;
    assert!(groups.contains_key("multi"), "{groups:?}");
    until_healthy(
        cluster,
        &namespace,
        "the cluster-autoscaler takes `multi` first (priority 100)",
    )
    .await;
    let pools = pools(cluster).await;
    let entry = &pools["pools"][0]["clusterAutoscaler"];
    assert_eq!(
        (&entry["isFirst"], &entry["nodeGroups"][0]["name"]),
        (&json!(true), &json!("multi")),
        "{pools:#}"
    );

    autoscaler
        .set_priorities(Some("100:\n  - plain\n10:\n  - .*\n"))
        .await;
    until_first(
        cluster,
        &namespace,
        3,
        "takes `plain` (priority 100) before `multi`",
    )
    .await;
    autoscaler.set_priorities(Some("100:\n  - plain\n")).await;
    until_first(cluster, &namespace, 3, "name no node group of it (`multi`)").await;
    autoscaler.set_priorities(Some("first:\n  - multi\n")).await;
    until_first(cluster, &namespace, 3, "does not count").await;
}

/// Runs the commands of docs/autoscalers.md as written, in a cluster whose autoscaler has its default flags.
pub(crate) async fn documented_commands_bring_pods_to_the_pool(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let namespace = cluster.namespace("autoscaled").await;
    cluster.until_called(&namespace).await;
    install_deployment(cluster, &[]).await;
    let default = AutoscalerSettings {
        arguments: Vec::new(),
        ..documented()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, default).await;
    until_first(cluster, &namespace, 3, "not by priority").await;
    for command in all_commands_of("docs/autoscalers.md") {
        cluster.local().shell(&command).await;
    }
    let deployed = deployments(cluster).get("cluster-autoscaler").await;
    let pod_spec = deployed.unwrap().spec.unwrap().template.spec.unwrap();
    let command = pod_spec.containers[0].command.clone().unwrap();
    assert_eq!(command, ["./cluster-autoscaler", FLAG]);
    // Restarts the autoscaler, as the Deployment would.
    drop(autoscaler);
    let autoscaler = ClusterAutoscaler::start_with(cluster, documented()).await;
    for (tag, group) in [("multi", "multi-arch"), ("amd64", "plain")] {
        namespace
            .apply(&deployment(tag, 2, &machine_pod(cluster, tag)))
            .await;
        let groups = groups_of(&autoscaler, &namespace, tag, 2).await;
        assert_eq!(groups, BTreeMap::from([(group.to_owned(), 2)]));
    }
    until_healthy(
        cluster,
        &namespace,
        "the cluster-autoscaler takes `multi-arch` first (priority 100)",
    )
    .await;
}

/// Settings with the documented groups and flag. The documented commands set the priorities.
fn documented() -> AutoscalerSettings {
    AutoscalerSettings {
        groups: vec![
            NodeGroup::untainted("plain", "amd64"),
            NodeGroup::of_the_pool("multi-arch", "arm64"),
        ],
        arguments: vec![FLAG],
        priorities: None,
    }
}

/// Returns a Pod that needs most of a node of the autoscaler.
fn machine_pod(cluster: &Cluster, tag: &str) -> Value {
    let mut pod = pod(&[&cluster.images.tag(tag)]);
    pod["spec"]["nodeSelector"] = json!({AUTOSCALED: "true"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": MOST}});
    pod
}

/// Creates a Deployment with the flags of the autoscaler, which is a process beside the cluster here.
async fn install_deployment(cluster: &Cluster, flags: &[&str]) {
    let labels = json!({"app": "cluster-autoscaler"});
    let image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.1";
    let command: Vec<&str> = ["./cluster-autoscaler"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    let container = json!({"name": "cluster-autoscaler", "image": image, "command": command});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cluster-autoscaler"},
        // Paused, so it creates no Pod.
        "spec": {"paused": true, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [container]},
        }},
    });
    let parameters = PatchParams::apply("e2e").force();
    deployments(cluster)
        .patch(
            "cluster-autoscaler",
            &parameters,
            &Patch::Apply(&deployment),
        )
        .await
        .unwrap();
}

fn deployments(cluster: &Cluster) -> Api<Deployment> {
    Api::namespaced(cluster.client.clone(), "kube-system")
}

/// Waits until `doctor` and `doctor --pre` end with this status and have this text in their first lines.
async fn until_first(cluster: &Cluster, namespace: &Namespace, status: i32, expected: &str) {
    for (arguments, check) in [(&[][..], "✗ pools"), (&["--pre"], "✗ autoscaler")] {
        let what = format!("doctor {arguments:?} says {expected} first");
        until_ok(&what, async || {
            let (actual_status, text) = doctor(cluster, namespace, arguments).await;
            let first = text.lines().next().unwrap_or_default();
            if actual_status == status && first.contains(check) && first.contains(expected) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
    }
}

/// Waits until `doctor` and `doctor --pre` find no fault and print this text.
async fn until_healthy(cluster: &Cluster, namespace: &Namespace, expected: &str) {
    for arguments in [&[][..], &["--pre"]] {
        until_ok(&format!("doctor {arguments:?} finds nothing"), async || {
            let (status, text) = doctor(cluster, namespace, arguments).await;
            if status == 0 && text.contains(expected) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
    }
}

async fn doctor(cluster: &Cluster, namespace: &Namespace, arguments: &[&str]) -> (i32, String) {
    // An empty configuration has the default pools, as the installed one.
    let all = ["doctor", "--config", "/dev/null", "-n", &namespace.name];
    let arguments = [&all[..], arguments].concat();
    cluster.local().run_tolerarch(&arguments).await
}

async fn pools(cluster: &Cluster) -> Value {
    let (status, text) = cluster
        .local()
        .run_tolerarch(&["pools", "--config", "/dev/null", "-o", "json"])
        .await;
    assert_eq!(status, 0, "{text}");
    serde_json::from_str(&text).unwrap()
}
