//! A real autoscaler makes the nodes that the tolerations ask for.

use kube::ResourceExt;
use scenarios::{Cluster, Karpenter, Namespace, POOL, PodExt, deployment, node_pool, pod};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) async fn nodes_are_created_in_the_pool_that_the_images_allow(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let namespace = cluster.namespace("karpenter").await;

    // Nothing else has room for either of them.
    scale(cluster, &namespace, "multi", 2).await;
    runs_on(&karpenter, &namespace, "multi", ("multi-arch", "arm64")).await;
    scale(cluster, &namespace, "amd64", 2).await;
    runs_on(&karpenter, &namespace, "amd64", ("plain", "amd64")).await;
}

/// To zero and back, both at once. Karpenter takes its time to remove a node.
pub(crate) async fn nodes_are_removed_with_their_pods_and_created_again(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let namespace = cluster.namespace("karpenter").await;
    for tag in ["multi", "amd64"] {
        scale(cluster, &namespace, tag, 2).await;
        namespace
            .until_pods(tag, 2, |pod| pod.node().is_some())
            .await;
    }
    for tag in ["multi", "amd64"] {
        scale(cluster, &namespace, tag, 0).await;
        namespace.until_gone(tag).await;
    }
    karpenter.until_no_nodes().await;
    for tag in ["multi", "amd64"] {
        scale(cluster, &namespace, tag, 2).await;
    }
    karpenter.until_node("multi-arch", "arm64").await;
    runs_on(&karpenter, &namespace, "amd64", ("plain", "amd64")).await;
    // A toleration allows, and does not attract: these may take the place of others on a plain node.
    namespace
        .until_pods("multi", 2, |pod| pod.node().is_some())
        .await;
}

/// Where no machine for arm64 is to be had, Pods that may run there, or prefer to, run on amd64 all the same.
pub(crate) async fn pods_run_on_amd64_if_the_preferred_arm64_is_out_of_stock(cluster: &Cluster) {
    let arm64 = json!({"prefer": [{"platform": "linux/arm64", "weight": 80}]});
    let pool = json!({
        "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"],
        "tolerations": [{"key": POOL, "operator": "Exists", "effect": "NoSchedule"}],
        "prefer": {"weight": 50, "labels": {"karpenter.sh/nodepool": "only-arm64"}},
    });
    for (what, settings) in [
        ("placement.prefer", json!({"placement": arm64})),
        ("pools[].prefer", json!({"pools": [pool]})),
    ] {
        let cluster = &cluster.another().await;
        let karpenter = Karpenter::start_without(cluster, "arm64").await;
        // Karpenter tries it first: of the heaviest it has the last name.
        let taint = json!([{"key": POOL, "value": "true", "effect": "NoSchedule"}]);
        karpenter
            .apply(&node_pool("only-arm64", &["arm64"], taint, 100))
            .await;
        let tolerarch = cluster.local().tolerarch(settings).await;
        let namespace = cluster.namespace_with("karpenter", &tolerarch.url).await;
        cluster.until_called(&namespace).await;
        // The first one finds out; for three minutes Karpenter knows.
        for (app, mode) in [
            ("first", "enforce"),
            ("second", "enforce"),
            ("left-out", "off"),
        ] {
            let begun = Instant::now();
            let mut deployment = deployment(app, 2, &machine_pod(&cluster.images.tag("multi")));
            deployment["spec"]["template"]["metadata"]["labels"]["tolerarch.io/mode"] = mode.into();
            namespace.apply(&deployment).await;
            for pod in namespace
                .until_pods(app, 2, |pod| pod.node().is_some())
                .await
            {
                let (pool, architecture) = karpenter.node(pod.node().unwrap()).await;
                let is_preferred = pod.annotations().contains_key("tolerarch.io/preferred");
                let seen = (architecture.as_str(), pod.tolerates_pool(), is_preferred);
                assert_eq!(
                    seen,
                    ("amd64", mode != "off", mode != "off"),
                    "{what}: {app} {pool}"
                );
            }
            print!("{what}, {app}: on a node after {:.1?}; ", begun.elapsed());
        }
    }
}

async fn scale(cluster: &Cluster, namespace: &Namespace, tag: &str, replicas: u32) {
    namespace
        .apply(&deployment(
            tag,
            replicas,
            &machine_pod(&cluster.images.tag(tag)),
        ))
        .await;
}

/// A Pod that needs a machine of Karpenter's for itself: with room to spare Karpenter would put tolerated Pods also on
/// a plain node that another Pod made it buy.
fn machine_pod(image: &str) -> Value {
    let mut pod = pod(&[image]);
    pod["spec"]["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    pod
}

/// Waits until the Pods run, and looks at the pool and the architecture of their nodes.
async fn runs_on(karpenter: &Karpenter, namespace: &Namespace, app: &str, expected: (&str, &str)) {
    for pod in namespace
        .until_pods(app, 2, |pod| pod.node().is_some())
        .await
    {
        let (pool, architecture) = karpenter.node(pod.node().unwrap()).await;
        assert_eq!((pool.as_str(), architecture.as_str()), expected, "{app}");
        assert_eq!(pod.tolerates_pool(), pool == "multi-arch", "{app}");
    }
}
