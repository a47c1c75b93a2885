//! Pools whose nodes are selected by labels: a Pod gets node selector and tolerations together, or neither.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, Pod, PodSpec};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use scenarios::{
    AutoscalerSettings, Cluster, ClusterAutoscaler, Karpenter, Namespace, NodeGroup, POOL, PodExt,
    deployment, node_pool, pod, until,
};
use serde_json::{Value, json};
use testregistry::Registry;

use crate::certificates::RELEASE;
use crate::cluster_autoscaler::{MOST, all_in, groups_of, machine_pod, scale};
use crate::controller::give_rights;
use crate::reinvocation::injector;

const CLASS: &str = "cloud.google.com/compute-class";
const SPOT: &str = "cloud.google.com/gke-spot";

fn compute_class() -> Value {
    json!({"pools": [{"preset": "gke-compute-class"}], "daemonSets": true})
}

/// The value of the selector's label, and the keys of the tolerations that tolerarch may have added.
fn placed(spec: &PodSpec) -> (Option<&str>, Vec<&str>) {
    let selector = spec.node_selector.as_ref();
    let class = selector.and_then(|selector| selector.get(CLASS));
    let tolerations = spec.tolerations.iter().flatten();
    let added = |key: &&str| [CLASS, "kubernetes.io/arch"].contains(key);
    let keys = tolerations.filter_map(|toleration| toleration.key.as_deref());
    (class.map(String::as_str), keys.filter(added).collect())
}

fn of_pod(pod: &Pod) -> (Option<&str>, Vec<&str>) {
    placed(pod.spec.as_ref().unwrap())
}

const OPEN: (Option<&str>, [&str; 2]) = (Some("multi-arch"), [CLASS, "kubernetes.io/arch"]);

pub(crate) async fn a_pod_gets_selector_and_tolerations_or_neither(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(compute_class()).await;
    let namespace = cluster.namespace_with("selected", &tolerarch.url).await;
    cluster.review_daemon_sets(&namespace, &tolerarch.url).await;
    cluster.until_called_without_effect(&namespace).await;
    let image = |tag: &str| cluster.images.tag(tag);
    let multi = until("the webhook is called", async || {
        let pod = namespace.dry_run(&pod(&[&image("multi")])).await.ok()?;
        pod.pools().is_some().then_some(pod)
    })
    .await;
    assert_eq!(of_pod(&multi), (OPEN.0, OPEN.1.to_vec()));
    assert_eq!(multi.pools(), Some("gke-compute-class"));

    let amd64 = namespace.pod(&pod(&[&image("amd64")])).await;
    assert_eq!(of_pod(&amd64), (None, vec![]));
    for own in [json!({SPOT: "true"}), json!({CLASS: "gpu"})] {
        let mut pod = pod(&[&image("multi")]);
        pod["spec"]["nodeSelector"] = own.clone();
        let pod = namespace.pod(&pod).await;
        let selector = serde_json::to_value(&pod.spec.as_ref().unwrap().node_selector).unwrap();
        assert_eq!(selector, own);
        assert_eq!((of_pod(&pod).1, pod.pools()), (vec![], None));
    }
    let closed = r#"{decision="unchanged",profile="",reason="own-selector"}"#;
    let metric = format!("tolerarch_reviews_total{closed}");
    assert_eq!(tolerarch.metric(&metric).await, 2);

    // A selector would take its Pods off all other nodes.
    let template =
        json!({"metadata": {"labels": {"app": "agent"}}, "spec": pod(&[&image("multi")])["spec"]});
    let selector = json!({"matchLabels": {"app": "agent"}});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": selector, "template": template},
    });
    namespace.apply(&set).await;
    let set = namespace.api::<DaemonSet>().get("agent").await.unwrap();
    let template = set.spec.unwrap().template.spec.unwrap();
    assert_eq!(placed(&template), (None, OPEN.1.to_vec()));
}

pub(crate) async fn a_sidecar_for_one_architecture_takes_both_back(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(compute_class()).await;
    for (tag, is_open) in [("sidecar", true), ("amd64", false)] {
        let namespace = cluster.namespace_with("selected", &tolerarch.url).await;
        let injector = injector(cluster, tag).await;
        cluster
            .intercept(&namespace, "zzz-injector", &injector.url)
            .await;
        let mut pod = pod(&[&cluster.images.tag("multi")]);
        pod["spec"]["nodeSelector"] = json!({"disk": "ssd"});
        let stored = until("both webhooks are called", async || {
            let pod = namespace.dry_run(&pod).await.ok()?;
            let containers = pod.spec.as_ref().unwrap().containers.len();
            let is_settled = pod.pools().is_some() == is_open;
            (containers == 2 && is_settled).then_some(pod)
        })
        .await;
        let expected = if is_open {
            (OPEN.0, OPEN.1.to_vec())
        } else {
            (None, vec![])
        };
        assert_eq!(of_pod(&stored), expected, "{tag}");
        let selector = stored.spec.as_ref().unwrap().node_selector.as_ref();
        assert_eq!(selector.unwrap()["disk"], "ssd");
    }
}

/// The controller can add no selector to a Pod that exists, and so opens no such pool to it.
pub(crate) async fn a_pod_that_exists_is_told_that_it_is_too_late(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let repo = registry.repo("app");
    repo.index(Some("both"), ["linux/amd64", "linux/arm64"]);
    let plain = json!({
        "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"],
        "tolerations": [{"key": POOL, "operator": "Exists", "effect": "NoSchedule"}],
    });
    let settings = json!({"pools": [{"preset": "gke-compute-class"}, plain]});
    let webhook = local
        .tolerarch_for(&registry.address(), settings.clone())
        .await;
    let namespace = cluster.namespace_with("too-late", &webhook.url).await;
    cluster.until_called_without_effect(&namespace).await;
    namespace.offer(0, 10).await;
    let mut older = namespace.takes_a_place(&pod(&[&repo.reference("both")]));
    // As if it had been there before the webhook was.
    older["metadata"] = json!({"name": "older", "labels": {"tolerarch.io/mode": "off"}});
    namespace.pod(&older).await;

    let account = give_rights(cluster, &namespace).await;
    let mut settings = settings;
    settings["controller"] = json!({
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
        "census": "0",
    });
    let _controller = local
        .controller_as(&account, &registry.address(), settings)
        .await;
    opt_in(cluster, &namespace, "older").await;
    let repaired = until("the other pool is opened", async || {
        let pod = namespace.pods().get("older").await.ok()?;
        pod.pools().is_some().then_some(pod)
    })
    .await;
    assert_eq!(repaired.pools(), Some("multi-arch"));
    assert!(repaired.tolerates_pool());
    assert_eq!(of_pod(&repaired), (None, vec![]));
    let told = until("an event says why", async || {
        let events = namespace.api::<Event>();
        let events = events.list(&ListParams::default()).await.ok()?;
        let mut events = events.items.into_iter();
        events.find(|event| event.reason.as_deref() == Some("PoolClosed"))
    })
    .await;
    let message = told.message.unwrap();
    assert!(
        message.starts_with("gke-compute-class cannot be opened to this Pod any more"),
        "{message}"
    );
}

/// Has the controller look at a Pod, and at the namespace, which has opted out of the installed webhook.
async fn opt_in(cluster: &Cluster, namespace: &Namespace, pod: &str) {
    let on = Patch::Merge(json!({"metadata": {"labels": {"tolerarch.io/mode": null}}}));
    let how = PatchParams::default();
    let namespaces =
        kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    namespaces.patch(&namespace.name, &how, &on).await.unwrap();
    namespace.pods().patch(pod, &how, &on).await.unwrap();
}

/// The NodePool without taints comes first by its weight, so that a toleration alone would buy nothing in the pool.
pub(crate) async fn karpenter_makes_the_nodes_that_pods_select(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let taint = json!([{"key": "example.com/group", "value": "multi", "effect": "NoSchedule"}]);
    let mut selected = node_pool("selected", &["arm64"], taint, 0);
    selected["spec"]["template"]["metadata"]["labels"] = json!({"example.com/group": "multi"});
    karpenter.apply(&selected).await;
    karpenter
        .apply(&node_pool("first", &["amd64", "arm64"], json!([]), 100))
        .await;
    let toleration = json!({"key": "example.com/group", "value": "multi", "effect": "NoSchedule"});
    let pool = |select: Value| {
        let platforms = ["linux/amd64", "linux/arm64"];
        json!({"pools": [{"name": "multi", "platforms": platforms, "tolerations": [toleration], "select": select}]})
    };
    let select = json!({"labels": {"example.com/group": "multi"}});
    for (settings, tag, expected) in [
        (pool(Value::Null), "multi", "first"),
        (pool(select.clone()), "multi", "selected"),
        (pool(select), "amd64", "first"),
    ] {
        let tolerarch = cluster.local().tolerarch(settings.clone()).await;
        let namespace = cluster.namespace_with("selected", &tolerarch.url).await;
        cluster.until_called_without_effect(&namespace).await;
        let mut web = pod(&[&cluster.images.tag(tag)]);
        web["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
        web["spec"]["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
        until("the webhook is called", async || {
            let pod = namespace.dry_run(&web).await.ok()?;
            (pod.pools().is_some() == (tag == "multi")).then_some(())
        })
        .await;
        namespace.apply(&deployment("web", 2, &web)).await;
        for pod in namespace
            .until_pods("web", 2, |pod| pod.node().is_some())
            .await
        {
            let (seen, _) = karpenter.node(pod.node().unwrap()).await;
            assert_eq!(seen, expected, "{tag} {settings}: {:?}", pod.annotations());
        }
    }
}

/// By its default flags, with which a toleration brings Pods to the pool by chance.
pub(crate) async fn the_cluster_autoscaler_needs_no_priorities_for_pods_that_select(
    cluster: &Cluster,
) {
    let cluster = &cluster.another().await;
    let taints = json!([
        {"key": CLASS, "value": "multi-arch", "effect": "NoSchedule"},
        {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
    ]);
    let multi = NodeGroup {
        taints,
        labels: json!({CLASS: "multi-arch"}),
        // Worse than the other group by what the default expander weighs.
        cores: 8,
        ..NodeGroup::untainted("multi", "arm64")
    };
    let settings = AutoscalerSettings {
        groups: vec![NodeGroup::untainted("plain", "amd64"), multi],
        arguments: Vec::new(),
        priorities: None,
    };
    let autoscaler = ClusterAutoscaler::start_with(cluster, settings).await;
    let tolerarch = cluster.local().tolerarch(compute_class()).await;
    let namespace = cluster.namespace_with("selected", &tolerarch.url).await;
    cluster.until_called_without_effect(&namespace).await;
    for (tag, group) in [("multi", "multi"), ("amd64", "plain")] {
        let pod = machine_pod(&cluster.images.tag(tag), MOST);
        until("the webhook is called", async || {
            let pod = namespace.dry_run(&pod).await.ok()?;
            (pod.pools().is_some() == (tag == "multi")).then_some(())
        })
        .await;
        scale(&namespace, tag, 3, &pod).await;
        let seen: BTreeMap<String, usize> = groups_of(&autoscaler, &namespace, tag, 3).await;
        assert_eq!(seen, all_in(group, 3), "{tag}");
    }
}
