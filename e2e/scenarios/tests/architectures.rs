//! A cluster with two architectures. `kind/README.md` says which part of its node for arm64 is emulated.

use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use scenarios::{Cluster, Namespace, POOL, PodExt, deployment, pod, until};
use serde_json::{Value, json};

use crate::nodes::{replicas, roll_out, runs};

/// Pods of each Deployment. Of those with images for both architectures, half are to run on each.
const PODS: u32 = 6;

pub(crate) async fn pods_run_on_all_architectures_of_their_images(cluster: &Cluster) {
    let arm64 = &cluster.kind().emulated_node();
    let [plain, _] = cluster.node_names();
    cordon_and_uncordon(cluster, &[], &[arm64]).await;
    let namespace = cluster.namespace("architectures").await;
    // The scheduler leaves Pods pending if it cannot spread them.
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/arch",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "multi"}},
    }]});
    // An image for arm64 alone is not eligible for the pool, so its owner selects and tolerates the node.
    let on_arm64_node = json!({
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
    for pod in &pods {
        assert!(!pod.tolerates_pool(), "{pod:?}");
        assert_eq!(pod.node(), Some(plain));
    }
    let pods = run(cluster, &namespace, "arm64", on_arm64_node).await;
    for pod in &pods {
        assert_eq!(pod.pools(), None);
        assert_eq!(pod.node(), Some(arm64.as_str()));
    }
    cordon_and_uncordon(cluster, &[arm64], &[]).await;
}

/// For a while all replicas are on the node for arm64.
pub(crate) async fn arm64_replica_decides_for_all_pods(cluster: &Cluster) {
    let arm64 = &cluster.kind().emulated_node();
    let amd64 = cluster.node_names();
    cordon_and_uncordon(cluster, &amd64, &[arm64]).await;
    roll_out(cluster).await;
    until("all replicas are on the node for arm64", async || {
        let replicas = replicas(cluster).await;
        let is_there = |replica: &Pod| replica.node() == Some(arm64) && runs(replica);
        replicas.iter().all(is_there).then_some(())
    })
    .await;
    let namespace = cluster.namespace("emulated").await;
    cluster.until_called(&namespace).await;
    for (tag, is_eligible) in [("multi", true), ("amd64", false)] {
        let created = namespace.pod(&pod(&[&cluster.images.tag(tag)])).await;
        assert_eq!(created.tolerates_pool(), is_eligible, "{tag}");
    }
    cordon_and_uncordon(cluster, &[arm64], &amd64).await;
    roll_out(cluster).await;
}

/// Cordons nodes, and uncordons others.
pub(crate) async fn cordon_and_uncordon(cluster: &Cluster, cordon: &[&str], uncordon: &[&str]) {
    for (command, nodes) in [("cordon", cordon), ("uncordon", uncordon)] {
        for node in nodes {
            cluster.kind().kubectl(&[command, node]).await;
        }
    }
}

/// Runs a Deployment of an image with these fields in its Pods' spec. Returns its running Pods.
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
