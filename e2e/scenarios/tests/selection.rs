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

/// Returns the value of the selector's label, and the keys of the tolerations that tolerarch may have added.
fn placement_of(spec: &PodSpec) -> (Option<&str>, Vec<&str>) {
    let selector = spec.node_selector.as_ref();
    let class = selector.and_then(|selector| selector.get(CLASS));
    let tolerations = spec.tolerations.iter().flatten();
    let added = |key: &&str| [CLASS, "kubernetes.io/arch"].contains(key);
    let keys = tolerations.filter_map(|toleration| toleration.key.as_deref());
    (class.map(String::as_str), keys.filter(added).collect())
}

fn of_pod(pod: &Pod) -> (Option<&str>, Vec<&str>) {
    placement_of(pod.spec.as_ref().unwrap())
}

/// The placement of an eligible Pod.
const ADDED: (Option<&str>, [&str; 2]) = (Some("multi-arch"), [CLASS, "kubernetes.io/arch"]);

pub(crate) async fn pods_get_selector_and_tolerations_or_neither(cluster: &Cluster) {
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
    assert_eq!(of_pod(&multi), (ADDED.0, ADDED.1.to_vec()));
    assert_eq!(multi.pools(), Some("gke-compute-class"));

    let amd64 = namespace.pod(&pod(&[&image("amd64")])).await;
    assert_eq!(of_pod(&amd64), (None, vec![]));
    for user_selector in [json!({SPOT: "true"}), json!({CLASS: "gpu"})] {
        let mut pod = pod(&[&image("multi")]);
        pod["spec"]["nodeSelector"] = user_selector.clone();
        let pod = namespace.pod(&pod).await;
        let selector = serde_json::to_value(&pod.spec.as_ref().unwrap().node_selector).unwrap();
        assert_eq!(selector, user_selector);
        assert_eq!((of_pod(&pod).1, pod.pools()), (vec![], None));
    }
    let unchanged = r#"{decision="unchanged",profile="",reason="own-selector"}"#;
    let metric = format!("tolerarch_reviews_total{unchanged}");
    assert_eq!(tolerarch.metric(&metric).await, 2);

    // A DaemonSet gets no selector, which would remove its Pods from all other nodes.
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
    assert_eq!(placement_of(&template), (None, ADDED.1.to_vec()));
}

pub(crate) async fn single_arch_sidecar_removes_selector_and_tolerations(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(compute_class()).await;
    for (tag, is_eligible) in [("sidecar", true), ("amd64", false)] {
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
            let is_settled = pod.pools().is_some() == is_eligible;
            (containers == 2 && is_settled).then_some(pod)
        })
        .await;
        let expected = if is_eligible {
            (ADDED.0, ADDED.1.to_vec())
        } else {
            (None, vec![])
        };
        assert_eq!(of_pod(&stored), expected, "{tag}");
        let selector = stored.spec.as_ref().unwrap().node_selector.as_ref();
        assert_eq!(selector.unwrap()["disk"], "ssd");
    }
}

/// The controller cannot add a selector to an existing Pod, so it does not add the tolerations of such a pool.
pub(crate) async fn event_says_that_an_existing_pod_gets_no_selector(cluster: &Cluster) {
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
    // It is created without tolerarch, as before an installation.
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
    let repaired = until("the toleration of the other pool is added", async || {
        let pod = namespace.pods().get("older").await.ok()?;
        pod.pools().is_some().then_some(pod)
    })
    .await;
    assert_eq!(repaired.pools(), Some("multi-arch"));
    assert!(repaired.tolerates_pool());
    assert_eq!(of_pod(&repaired), (None, vec![]));
    let event = until("an event says why", async || {
        let events = namespace.api::<Event>();
        let events = events.list(&ListParams::default()).await.ok()?;
        let mut events = events.items.into_iter();
        events.find(|event| event.reason.as_deref() == Some("PoolClosed"))
    })
    .await;
    let message = event.message.unwrap();
    assert!(
        message.starts_with("gke-compute-class cannot be opened to this Pod any more"),
        "{message}"
    );
}

/// Opts a Pod in, and the namespace, which has opted out of the installed webhook, so that the controller reads them.
async fn opt_in(cluster: &Cluster, namespace: &Namespace, pod: &str) {
    let opted_in = Patch::Merge(json!({"metadata": {"labels": {"tolerarch.io/mode": null}}}));
    let parameters = PatchParams::default();
    let namespaces =
        kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    namespaces
        .patch(&namespace.name, &parameters, &opted_in)
        .await
        .unwrap();
    namespace
        .pods()
        .patch(pod, &parameters, &opted_in)
        .await
        .unwrap();
}

/// The NodePool without taints has more weight, so a toleration alone would create no nodes in the pool.
pub(crate) async fn karpenter_creates_the_nodes_that_pods_select(cluster: &Cluster) {
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
            let (node_pool, _) = karpenter.node(pod.node().unwrap()).await;
            assert_eq!(
                node_pool,
                expected,
                "{tag} {settings}: {:?}",
                pod.annotations()
            );
        }
    }
}

/// The autoscaler has its default flags, with which a toleration alone brings Pods to the pool only by chance.
pub(crate) async fn cluster_autoscaler_needs_no_priorities_for_selecting_pods(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let taints = json!([
        {"key": CLASS, "value": "multi-arch", "effect": "NoSchedule"},
        {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
    ]);
    let multi = NodeGroup {
        taints,
        labels: json!({CLASS: "multi-arch"}),
        // Larger nodes, which the default expander likes less.
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
        let groups: BTreeMap<String, usize> = groups_of(&autoscaler, &namespace, tag, 3).await;
        assert_eq!(groups, all_in(group, 3), "{tag}");
    }
}
