//! The cluster-autoscaler makes the nodes that the tolerations ask for, where its priorities put the groups of the pool first.

use std::collections::BTreeMap;

use e2e::{AUTOSCALED, Cluster, ClusterAutoscaler, Namespace, PodExt, deployment, pod};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Those of the image for one architecture first, so that its nodes have room for others that may go there.
pub(crate) async fn nodes_appear_in_the_group_that_the_images_allow(cluster: &Cluster) {
    let cluster = &cluster.another().await;
    let autoscaler = ClusterAutoscaler::start(cluster).await;
    let namespace = cluster.namespace("autoscaled").await;
    for (tag, group) in [("amd64", "plain"), ("single", "plain"), ("multi", "multi")] {
        let begun = Instant::now();
        scale(cluster, &namespace, tag, 2).await;
        assert_eq!(groups(&autoscaler, &namespace, tag, 2).await, group_of(group, 2), "{tag}");
        print!("{tag}: on nodes after {:.1?}; ", begun.elapsed());
    }
}

async fn scale(cluster: &Cluster, namespace: &Namespace, tag: &str, replicas: u32) {
    namespace.apply(&deployment(tag, replicas, &machine_pod(&cluster.images.tag(tag)))).await;
}

/// A Pod that needs a node of the autoscaler's, and nearly all of it.
fn machine_pod(image: &str) -> Value {
    let mut pod = pod(&[image]);
    pod["spec"]["nodeSelector"] = json!({AUTOSCALED: "true"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3", "memory": "12Gi"}});
    pod
}

/// Waits until the Pods of an app have nodes; how many are in which group.
async fn groups(
    autoscaler: &ClusterAutoscaler,
    namespace: &Namespace,
    app: &str,
    count: usize,
) -> BTreeMap<String, usize> {
    let pods = namespace.until_pods(app, count, |pod| pod.node().is_some()).await;
    let nodes = autoscaler.nodes().await;
    let mut groups = BTreeMap::new();
    for pod in pods {
        let group = nodes[pod.node().unwrap()].clone();
        assert_eq!(pod.tolerates_pool(), app == "multi", "{pod:?}");
        *groups.entry(group).or_default() += 1;
    }
    groups
}

fn group_of(group: &str, count: usize) -> BTreeMap<String, usize> {
    BTreeMap::from([(group.to_owned(), count)])
}
