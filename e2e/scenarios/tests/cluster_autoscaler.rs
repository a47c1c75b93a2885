//! In which groups the cluster-autoscaler creates nodes: in those of the pool for eligible Pods, if its priorities say
//! so, and in the others for the rest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use scenarios::{
    AUTOSCALED, AutoscalerSettings, Cluster, ClusterAutoscaler, NODE_GROUP, Namespace, NodeGroup,
    POOL, PodExt, Tolerarch, deployment, pod, until,
};
use serde_json::{Value, json};
use testregistry::{Fault, Registry};
use tokio::time::Instant;

/// Pods of each kind in a large scale-up.
const MANY: u32 = 100;
/// A CPU request that only one Pod on a node with four cores can have.
pub(crate) const MOST: &str = "3";
const PLAIN_FIRST: &str = "100:\n  - ^plain$\n10:\n  - .*\n";

pub(crate) async fn nodes_are_created_in_the_group_that_the_images_allow(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let autoscaler = ClusterAutoscaler::start(cluster).await;
    let namespace = cluster.namespace("autoscaled").await;
    // The next Pods need the other group, although each node has room for two more.
    for (tag, group) in [("multi", "multi"), ("amd64", "plain"), ("single", "plain")] {
        let begun = Instant::now();
        scale(
            &namespace,
            tag,
            2,
            &machine_pod(&cluster.images.tag(tag), "1"),
        )
        .await;
        assert_eq!(
            groups_of(&autoscaler, &namespace, tag, 2).await,
            all_in(group, 2),
            "{tag}"
        );
        print!("{tag}: on nodes after {:.1?}; ", begun.elapsed());
        let pods = namespace.until_pods(tag, 2, |_| true).await;
        assert!(
            pods.iter()
                .all(|pod| pod.tolerates_pool() == (tag == "multi")),
            "{pods:?}"
        );
    }
    let nodes = count(autoscaler.nodes().await.into_values());
    assert_eq!(
        nodes,
        BTreeMap::from([("multi".to_owned(), 1), ("plain".to_owned(), 1)])
    );
}

/// Pods of both kinds, created at the same time.
pub(crate) async fn none_of_two_hundred_pods_runs_on_a_wrong_architecture(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let autoscaler = ClusterAutoscaler::start(cluster).await;
    let namespace = cluster.namespace("many").await;
    let begun = Instant::now();
    for tag in ["multi", "amd64"] {
        scale(
            &namespace,
            tag,
            MANY,
            &machine_pod(&cluster.images.tag(tag), "1"),
        )
        .await;
    }
    let amd64 = groups_of(&autoscaler, &namespace, "amd64", MANY as usize).await;
    let multi = groups_of(&autoscaler, &namespace, "multi", MANY as usize).await;
    print!(
        "{} Pods on nodes after {:.1?}: multi-arch {multi:?}, ",
        2 * MANY,
        begun.elapsed()
    );
    print!(
        "amd64 {amd64:?}, nodes {:?}; ",
        count(autoscaler.nodes().await.into_values())
    );
    assert_eq!(amd64, all_in("plain", MANY as usize));
    // Some may run on plain nodes that have room.
    assert!(multi.contains_key("multi"), "{multi:?}");
    let pods = namespace.until_pods("multi", MANY as usize, |_| true).await;
    assert!(pods.iter().all(PodExt::tolerates_pool), "{pods:?}");
}

/// The autoscaler simulates the scheduler's filters, but not its scores. So a preference does not affect the choice of a
/// group, only the choice among existing nodes.
pub(crate) async fn preferences_choose_nodes_but_no_group(cluster: &Cluster) {
    let arm64 = json!({"prefer": [{"platform": "linux/arm64", "weight": 100}]});
    let pool = json!({
        "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"],
        "tolerations": [{"key": POOL, "operator": "Exists", "effect": "NoSchedule"}],
        "prefer": {"weight": 100, "labels": {NODE_GROUP: "multi"}},
    });
    for (what, settings) in [
        ("placement.prefer", json!({"placement": arm64})),
        ("pools[].prefer", json!({"pools": [pool]})),
    ] {
        let cluster = &cluster.another().await;
        let small = NodeGroup {
            cores: 2,
            ..NodeGroup::untainted("small", "amd64")
        };
        let mut groups = AutoscalerSettings::default().groups;
        groups.push(small);
        // Otherwise the autoscaler gives nodes without Pods a taint that the scheduler prefers to avoid.
        let no_soft_taints = "--max-bulk-soft-taint-count=0";
        let arguments = vec!["--expander=priority,least-waste", no_soft_taints];
        let autoscaler_settings = AutoscalerSettings {
            groups,
            arguments,
            priorities: None,
        };
        let autoscaler = ClusterAutoscaler::start_with(cluster, autoscaler_settings).await;
        let (_tolerarch, namespace) = start(cluster, settings).await;
        let image = cluster.images.tag("multi");

        // The Pod needs three quarters of a small node, and less of the others.
        scale(&namespace, "least-waste", 1, &machine_pod(&image, "1500m")).await;
        let chosen = groups_of(&autoscaler, &namespace, "least-waste", 1).await;
        assert_eq!(chosen, all_in("small", 1), "{what}");
        autoscaler.set_priorities(Some(PLAIN_FIRST)).await;
        scale(&namespace, "priority", 3, &machine_pod(&image, MOST)).await;
        let chosen = groups_of(&autoscaler, &namespace, "priority", 3).await;
        assert_eq!(chosen, all_in("plain", 3), "{what}");
        let pods = namespace.until_pods("priority", 3, has_preference).await;
        assert!(pods.iter().all(PodExt::tolerates_pool), "{pods:?}");

        // Now there are three free nodes of each group.
        scale(&namespace, "others", 3, &pinned_pod(&image, "multi")).await;
        groups_of(&autoscaler, &namespace, "others", 3).await;
        for app in ["priority", "others"] {
            scale(&namespace, app, 0, &machine_pod(&image, MOST)).await;
            namespace.until_gone(app).await;
        }
        for replicas in 1..=3 {
            namespace.pod(&machine_pod(&image, MOST)).await;
            let chosen = groups_of(&autoscaler, &namespace, "web", replicas).await;
            assert_eq!(chosen, all_in("multi", replicas), "{what}");
        }
    }
}

/// No group has a taint, and the one for arm64 comes first.
pub(crate) async fn required_architecture_chooses_the_group_of_unknown_images(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let groups = ["amd64", "arm64"].map(|name| NodeGroup::untainted(name, name));
    let priorities = Some("100:\n  - ^arm64$\n10:\n  - .*\n");
    let settings = AutoscalerSettings {
        groups: groups.into(),
        priorities,
        ..AutoscalerSettings::default()
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let registry = Registry::builder()
        .pki(cluster.local().pki.clone())
        .start()
        .await;
    let repo = registry.repo("app");
    repo.index(Some("known"), ["linux/amd64"]);
    for (name, unknown, tag, group) in [
        ("nothing", json!([]), "away", "arm64"),
        ("amd64", json!(["linux/amd64"]), "away", "amd64"),
        ("arm64", json!(["linux/arm64"]), "away", "arm64"),
        ("known", json!(["linux/arm64"]), "known", "amd64"),
    ] {
        repo.fault((tag == "away").then(|| Fault::status(503)));
        let placement = json!({"require": "affinity", "whenUnknown": unknown});
        let settings = json!({"placement": placement, "lookup": {"budget": "2s"}});
        let tolerarch = cluster
            .local()
            .tolerarch_for(&registry.address(), settings)
            .await;
        let namespace = cluster.namespace_with("required", &tolerarch.url).await;
        if tag == "away" {
            cluster.until_called_without_effect(&namespace).await;
        }
        let pod = machine_pod(&repo.reference(tag), MOST);
        let required = name != "nothing";
        until(&format!("{name}: the webhook is called"), async || {
            let pod = namespace.dry_run(&pod).await.ok()?;
            (pod.annotations().contains_key("tolerarch.io/required") == required).then_some(())
        })
        .await;
        scale(&namespace, name, 2, &pod).await;
        assert_eq!(
            groups_of(&autoscaler, &namespace, name, 2).await,
            all_in(group, 2),
            "{name}"
        );
    }
}

/// `least-waste` decides if the priorities leave several groups, and chooses `plain`, whose nodes are smaller.
pub(crate) async fn priorities_count_only_if_valid_and_if_a_group_matches(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let multi = NodeGroup {
        cores: 5,
        maximum: 3,
        ..NodeGroup::of_the_pool("multi", "arm64")
    };
    let groups = vec![NodeGroup::untainted("plain", "amd64"), multi];
    let arguments = vec!["--expander=priority,least-waste"];
    let multi_first = "100:\n  - ^multi$\n10:\n  - .*\n";
    let settings = AutoscalerSettings {
        groups,
        arguments,
        priorities: Some(multi_first),
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let namespace = cluster.namespace("priorities").await;
    for (name, priorities, tag, group) in [
        ("missing", None, "multi", "plain"),
        ("multi-first", Some(multi_first), "multi", "multi"),
        (
            "broken",
            Some("100:\n  - ^multi$\n10:\n  - '*plain'\n"),
            "multi",
            "plain",
        ),
        ("no-numbers", Some("high:\n  - ^multi$\n"), "multi", "plain"),
        ("others", Some("100:\n  - ^other$\n"), "multi", "plain"),
        ("only-multi", Some("100:\n  - ^multi$\n"), "multi", "multi"),
        (
            "only-multi-amd64",
            Some("100:\n  - ^multi$\n"),
            "amd64",
            "plain",
        ),
        (
            "negative",
            Some("-1:\n  - ^plain$\n-2:\n  - ^multi$\n"),
            "multi",
            "plain",
        ),
        (
            "only-negative",
            Some("-2:\n  - ^multi$\n"),
            "multi",
            "plain",
        ),
        ("last-place", Some(multi_first), "multi", "multi"),
        ("full", Some(multi_first), "multi", "plain"),
        (
            "full-only-multi",
            Some("100:\n  - ^multi$\n"),
            "multi",
            "plain",
        ),
    ] {
        autoscaler.set_priorities(priorities).await;
        scale(
            &namespace,
            name,
            1,
            &machine_pod(&cluster.images.tag(tag), MOST),
        )
        .await;
        assert_eq!(
            groups_of(&autoscaler, &namespace, name, 1).await,
            all_in(group, 1),
            "{name}"
        );
    }
}

/// Balancing ignores taints: half of the Pods go to the untainted group of the same architecture, although the other
/// comes first.
pub(crate) async fn groups_of_one_architecture_are_balanced_despite_taints(cluster: &Cluster) {
    for (architecture, expected) in [
        ("arm64", all_in("multi", 4)),
        (
            "amd64",
            BTreeMap::from([("multi".to_owned(), 2), ("plain".to_owned(), 2)]),
        ),
    ] {
        let cluster = &cluster.another().await;
        let multi = NodeGroup::of_the_pool("multi", architecture);
        let groups = vec![NodeGroup::untainted("plain", "amd64"), multi];
        // By default the autoscaler ignores the corresponding labels of clouds.
        let ignored = "--balancing-ignore-label=kwok-nodegroup";
        let arguments = vec![
            "--expander=priority",
            "--balance-similar-node-groups",
            ignored,
        ];
        let settings = AutoscalerSettings {
            groups,
            arguments,
            ..AutoscalerSettings::default()
        };
        let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
        let namespace = cluster.namespace("balanced").await;
        scale(
            &namespace,
            "web",
            4,
            &machine_pod(&cluster.images.tag("multi"), MOST),
        )
        .await;
        assert_eq!(
            groups_of(&autoscaler, &namespace, "web", 4).await,
            expected,
            "{architecture}"
        );
    }
}

/// The simulation ignores startup taints and status taints, so the autoscaler creates nodes that the Pod cannot use: with a
/// startup taint one, for which it waits, and with a status taint one after the other.
pub(crate) async fn pool_taint_must_not_be_a_startup_taint(cluster: &Cluster) {
    for (flag, minimum) in [
        ("--startup-taint=tolerarch.io/multi-arch", 1),
        ("--status-taint=tolerarch.io/multi-arch", 3),
    ] {
        let cluster = &cluster.another().await;
        let arguments = vec!["--expander=priority", flag];
        let settings = AutoscalerSettings {
            arguments,
            ..AutoscalerSettings::default()
        };
        let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
        let namespace = cluster.namespace("startup-taint").await;
        scale(
            &namespace,
            "amd64",
            1,
            &machine_pod(&cluster.images.tag("amd64"), MOST),
        )
        .await;
        until(
            &format!("{flag}: nodes that the Pod cannot use"),
            async || (autoscaler.nodes().await.len() >= minimum).then_some(()),
        )
        .await;
        for group in autoscaler.nodes().await.values() {
            assert_eq!(group, "multi", "{flag}");
        }
        namespace
            .until_pods("amd64", 1, PodExt::is_unschedulable)
            .await;
    }
}

/// Starts a tolerarch with these settings, for the Pods of a namespace.
async fn start(cluster: &Cluster, settings: Value) -> (Tolerarch, Namespace) {
    let tolerarch = cluster.local().tolerarch(settings).await;
    let namespace = cluster.namespace_with("autoscaled", &tolerarch.url).await;
    cluster.until_called(&namespace).await;
    (tolerarch, namespace)
}

/// Applies a Deployment of Pods like `pod`.
pub(crate) async fn scale(namespace: &Namespace, app: &str, replicas: u32, pod: &Value) {
    namespace.apply(&deployment(app, replicas, pod)).await;
}

/// Returns a Pod that requests this much CPU of a node of the autoscaler.
pub(crate) fn machine_pod(image: &str, cpu: &str) -> Value {
    let mut pod = pod(&[image]);
    pod["spec"]["nodeSelector"] = json!({AUTOSCALED: "true"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

/// Returns a Pod that needs most of a node of this group, and tolerates its taints.
pub(crate) fn pinned_pod(image: &str, group: &str) -> Value {
    let mut pod = machine_pod(image, MOST);
    pod["spec"]["nodeSelector"] = json!({NODE_GROUP: group});
    pod["spec"]["tolerations"] = json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    pod
}

/// Waits until the Pods of an app have nodes. Returns how many are in each group.
pub(crate) async fn groups_of(
    autoscaler: &ClusterAutoscaler,
    namespace: &Namespace,
    app: &str,
    replicas: usize,
) -> BTreeMap<String, usize> {
    let pods = namespace
        .until_pods(app, replicas, |pod| pod.node().is_some())
        .await;
    let nodes = autoscaler.nodes().await;
    count(pods.iter().map(|pod| nodes[pod.node().unwrap()].clone()))
}

/// Returns the result of [`groups_of`] if all Pods are in one group.
pub(crate) fn all_in(group: &str, replicas: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(group.to_owned(), replicas)])
}

fn count(groups: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for group in groups {
        *counts.entry(group).or_default() += 1;
    }
    counts
}

fn has_preference(pod: &Pod) -> bool {
    pod.annotations().contains_key("tolerarch.io/preferred")
}
