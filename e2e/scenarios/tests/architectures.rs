//! On a cluster of two architectures. `kind/README.md` says what of its node for arm64 is emulated.

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use scenarios::{Cluster, Namespace, POOL, PodExt, deployment, pod, until};
use serde_json::{Value, json};

use crate::nodes::{replicas, roll_out, runs};

/// Pods of each Deployment; half of those with images for both architectures are wanted on each.
const PODS: u32 = 6;

pub(crate) async fn pods_run_on_all_architectures_of_their_images(cluster: &Cluster) {
    let arm64 = &cluster.kind().emulated_node();
    let [plain, _] = cluster.node_names();
    exchange(cluster, &[], &[arm64]).await;
    let namespace = cluster.namespace("architectures").await;
    // The scheduler leaves Pods pending where it cannot spread them.
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/arch",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "multi"}},
    }]});
    // An image for arm64 alone is not eligible for the pool, so its owner selects and tolerates the node.
    let there = json!({
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": POOL, "operator": "Exists"}],
    });

    let pods = run(cluster, &namespace, "multi", spread).await;
    assert!(pods.iter().all(|pod| pod.pools() == Some("multi-arch")));
    let on_arm64 = pods.iter().filter(|pod| pod.node() == Some(arm64)).count();
    assert_eq!(2 * on_arm64, pods.len());
    for pod in &pods {
        let architecture = if pod.node() == Some(arm64) {
            "arm64"
        } else {
            "amd64"
        };
        assert_eq!(
            log(&namespace, pod).await,
            format!("built for {architecture}\n")
        );
    }
    let pods = run(cluster, &namespace, "amd64", json!({})).await;
    assert!(
        pods.iter()
            .all(|pod| !pod.tolerates_pool() && pod.node() == Some(plain))
    );
    let pods = run(cluster, &namespace, "arm64", there).await;
    assert!(
        pods.iter()
            .all(|pod| pod.pools().is_none() && pod.node() == Some(arm64))
    );
    exchange(cluster, &[arm64], &[]).await;
}

/// Its replicas are the only ones for a while.
pub(crate) async fn arm64_replica_decides_for_all_pods(cluster: &Cluster) {
    let arm64 = &cluster.kind().emulated_node();
    let amd64 = cluster.node_names();
    exchange(cluster, &amd64, &[arm64]).await;
    roll_out(cluster).await;
    until("all replicas are on the node for arm64", async || {
        let replicas = replicas(cluster).await;
        replicas
            .iter()
            .all(|replica| replica.node() == Some(arm64) && runs(replica))
            .then_some(())
    })
    .await;
    let namespace = cluster.namespace("emulated").await;
    cluster.until_called(&namespace).await;
    assert!(
        namespace
            .pod(&pod(&[&cluster.images.tag("multi")]))
            .await
            .tolerates_pool()
    );
    assert!(
        !namespace
            .pod(&pod(&[&cluster.images.tag("amd64")]))
            .await
            .tolerates_pool()
    );
    exchange(cluster, &[arm64], &amd64).await;
    roll_out(cluster).await;
}

/// Closes nodes to new Pods, and opens others.
pub(crate) async fn exchange(cluster: &Cluster, close: &[&str], open: &[&str]) {
    for (command, nodes) in [("cordon", close), ("uncordon", open)] {
        for node in nodes {
            cluster.kind().kubectl(&[command, node]).await;
        }
    }
}

/// Runs a Deployment of an image with these fields of its Pods' specification.
async fn run(cluster: &Cluster, namespace: &Namespace, image: &str, fields: Value) -> Vec<Pod> {
    let mut pod = pod(&[&cluster.images.program(image)]);
    for (name, value) in fields.as_object().expect("fields") {
        pod["spec"][name] = value.clone();
    }
    namespace.apply(&deployment(image, PODS, &pod)).await;
    namespace.until_pods(image, PODS as usize, runs).await
}

async fn log(namespace: &Namespace, pod: &Pod) -> String {
    let name = pod.metadata.name.as_deref().expect("a name");
    namespace
        .pods()
        .logs(name, &LogParams::default())
        .await
        .expect("a log")
}
