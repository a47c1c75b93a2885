//! Karpenter creates the nodes that Pods with and without the toleration need.

use kube::ResourceExt;
use scenarios::{Cluster, Karpenter, Namespace, POOL, PodExt, deployment, node_pool, pod};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) async fn nodes_are_created_in_the_pool_that_the_images_allow(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let karpenter = Karpenter::start(cluster).await;
    let namespace = cluster.namespace("karpenter").await;

    // Only nodes of Karpenter have room for these Pods.
    scale(cluster, &namespace, "multi", 2).await;
    assert_runs_on(&karpenter, &namespace, "multi", ("multi-arch", "arm64")).await;
    scale(cluster, &namespace, "amd64", 2).await;
    assert_runs_on(&karpenter, &namespace, "amd64", ("plain", "amd64")).await;
}

/// Scales both Deployments to zero and back.
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
    assert_runs_on(&karpenter, &namespace, "amd64", ("plain", "amd64")).await;
    // A toleration does not attract: these Pods may run on a plain node that was created for the others.
    namespace
        .until_pods("multi", 2, |pod| pod.node().is_some())
        .await;
}

/// No machine for arm64 is available. Pods that prefer arm64 run on amd64.
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
        // Karpenter tries this one first: it has the largest weight and the last name.
        let taint = json!([{"key": POOL, "value": "true", "effect": "NoSchedule"}]);
        karpenter
            .apply(&node_pool("only-arm64", &["arm64"], taint, 100))
            .await;
        let tolerarch = cluster.local().tolerarch(settings).await;
        let namespace = cluster.namespace_with("karpenter", &tolerarch.url).await;
        cluster.until_called(&namespace).await;
        // The first Deployment finds that arm64 is out of stock; Karpenter remembers this for three minutes.
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
                let actual = (architecture.as_str(), pod.tolerates_pool(), is_preferred);
                assert_eq!(
                    actual,
                    ("amd64", mode != "off", mode != "off"),
                    "{what}: {app} {pool}"
                );
            }
            print!("{what}, {app}: on a node after {:.1?}; ", begun.elapsed());
        }
    }
}

async fn scale(cluster: &Cluster, namespace: &Namespace, tag: &str, replicas: u32) {
    let pod = machine_pod(&cluster.images.tag(tag));
    namespace.apply(&deployment(tag, replicas, &pod)).await;
}

/// Returns a Pod that needs a whole machine of Karpenter. With spare room, Pods with the toleration would also run on a
/// plain node that was created for another Pod.
fn machine_pod(image: &str) -> Value {
    let mut pod = pod(&[image]);
    pod["spec"]["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    pod
}

/// Waits until the Pods have nodes, and checks the pool and the architecture of these.
async fn assert_runs_on(
    karpenter: &Karpenter,
    namespace: &Namespace,
    app: &str,
    expected: (&str, &str),
) {
    for pod in namespace
        .until_pods(app, 2, |pod| pod.node().is_some())
        .await
    {
        let (pool, architecture) = karpenter.node(pod.node().unwrap()).await;
        assert_eq!((pool.as_str(), architecture.as_str()), expected, "{app}");
        assert_eq!(pod.tolerates_pool(), pool == "multi-arch", "{app}");
    }
}
