//! Kueue chooses a flavour of nodes by the tolerations of a workload, and tolerarch adds tolerations to Pods.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use scenarios::{Cluster, POOL, PodExt, WorkloadController};
use serde_json::{Value, json};

use super::workload_cluster::WorkloadCluster;

/// The heading of the page's section.
const HEADING: &str = "Kueue";
/// The numbers of the blocks in that section.
const ONE_FLAVOUR: usize = 0;
const JOBS: usize = 1;
const FLAVOUR_PER_POOL: usize = 2;
const JOB_THAT_TOLERATES: usize = 3;
const PODS: usize = 4;
/// The scheduling gate with which Kueue holds back Pods.
const GATE: &str = "kueue.x-k8s.io/admission";
/// The label by which flavours choose nodes.
const NODE_POOL: &str = "karpenter.sh/nodepool";

pub(crate) async fn jobs_get_the_tolerations_of_flavour_and_pool(cluster: &Cluster) {
    let workloads = WorkloadCluster::start(cluster, WorkloadController::Kueue, json!({})).await;
    workloads.apply(HEADING, JOBS).await;
    for name in ["training", "report"] {
        let job = workloads.namespace.api::<Job>().get(name).await.unwrap();
        assert_eq!(job.spec.unwrap().suspend, Some(true), "{name}");
    }

    workloads.apply(HEADING, ONE_FLAVOUR).await;
    let namespace = &workloads.namespace;
    let is_of_flavour = |pod: &Pod| {
        tolerates(pod, "example.com/batch") && selected(pod, "example.com/nodes") == Some("batch")
    };
    let in_pool = |pod: &Pod| is_of_flavour(pod) && pod.tolerates_pool();
    namespace.until_pods("training", 2, in_pool).await;
    let outside = |pod: &Pod| is_of_flavour(pod) && !pod.tolerates_pool();
    namespace.until_pods("report", 1, outside).await;
    assert_eq!(workloads.calls().await, 3);
    let job = namespace.api::<Job>().get("training").await.unwrap();
    let template = job.spec.unwrap().template.spec.unwrap();
    assert_eq!(template.tolerations.unwrap().len(), 1);
}

pub(crate) async fn flavour_with_the_taint_takes_pods_that_tolerate_it(cluster: &Cluster) {
    let workloads = WorkloadCluster::start(cluster, WorkloadController::Kueue, json!({})).await;
    let namespace = &workloads.namespace;
    // tolerarch decides Pods that Kueue holds back.
    workloads.apply(HEADING, PODS).await;
    namespace
        .until_pods("trainer", 1, |pod| is_gated(pod) && pod.tolerates_pool())
        .await;
    namespace
        .until_pods("reporter", 1, |pod| is_gated(pod) && !pod.tolerates_pool())
        .await;
    assert_eq!(workloads.calls().await, 2);

    workloads.apply(HEADING, FLAVOUR_PER_POOL).await;
    namespace
        .until_pods("trainer", 1, |pod| {
            is_in(pod, "multi-arch") && pod.tolerates_pool()
        })
        .await;
    namespace
        .until_pods("reporter", 1, |pod| {
            is_in(pod, "plain") && !pod.tolerates_pool()
        })
        .await;
    assert_eq!(workloads.calls().await, 2);

    // Kueue reads the template of a Job, which tolerarch does not change.
    let mut jobs = workloads.objects(HEADING, JOBS).await;
    for job in &mut jobs {
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "pools".into();
    }
    workloads.apply_objects(&jobs).await;
    namespace
        .until_pods("training", 2, |pod| {
            is_in(pod, "plain") && pod.tolerates_pool()
        })
        .await;
    namespace
        .until_pods("report", 1, |pod| {
            is_in(pod, "plain") && !pod.tolerates_pool()
        })
        .await;
    workloads.apply(HEADING, JOB_THAT_TOLERATES).await;
    let in_pool = |pod: &Pod| is_in(pod, "multi-arch") && pod.tolerates_pool();
    namespace.until_pods("training-in-pool", 2, in_pool).await;
    assert_eq!(workloads.calls().await, 7);
}

pub(crate) async fn flavours_without_the_taint_take_every_job(cluster: &Cluster) {
    let require = json!({"require": "affinity", "platforms": ["linux/amd64", "linux/arm64"]});
    let settings = json!({"placement": require});
    let workloads = WorkloadCluster::start(cluster, WorkloadController::Kueue, settings).await;
    let namespace = &workloads.namespace;
    let toleration = json!({"key": POOL, "operator": "Exists", "effect": "NoSchedule"});
    for (queue, tolerations) in [("tolerates", json!([toleration])), ("silent", json!([]))] {
        workloads
            .apply_objects(&queue_of_one_flavour(queue, &tolerations))
            .await;
        let mut jobs = workloads.objects(HEADING, JOBS).await;
        let report = &mut jobs[1];
        report["metadata"]["name"] = queue.into();
        report["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue.into();
        report["spec"]["template"]["metadata"]["labels"]["app"] = queue.into();
        workloads.apply_objects(&jobs[1..]).await;
        let pods = namespace
            .until_pods(queue, 1, |pod| is_in(pod, "multi-arch"))
            .await;
        // The image lacks arm64. The required architecture keeps the Pod off the pool's arm64 nodes.
        let actual = (pods[0].tolerates_pool(), required(&pods[0]));
        assert_eq!(actual, (queue == "tolerates", Some("amd64")), "{queue}");
    }
}

/// Returns a queue with a flavour of the pool that does not name the pool's taint.
fn queue_of_one_flavour(name: &str, tolerations: &Value) -> [Value; 3] {
    let version = "kueue.x-k8s.io/v1beta2";
    let flavour = json!({"nodeLabels": {NODE_POOL: "multi-arch"}, "tolerations": tolerations});
    let quota = json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": 40}]});
    let group = json!({"coveredResources": ["cpu"], "flavors": [quota]});
    let queue = json!({"namespaceSelector": {}, "resourceGroups": [group]});
    [
        json!({"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": flavour}),
        json!({"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": queue}),
        json!({"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": name}}),
    ]
}

fn tolerates(pod: &Pod, key: &str) -> bool {
    let tolerations = pod
        .spec
        .iter()
        .flat_map(|spec| spec.tolerations.iter().flatten());
    let mut keys = tolerations.map(|toleration| toleration.key.as_deref());
    keys.any(|other| other == Some(key))
}

fn selected<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    let selector = pod.spec.as_ref()?.node_selector.as_ref()?;
    selector.get(key).map(String::as_str)
}

fn is_in(pod: &Pod, node_pool: &str) -> bool {
    !is_gated(pod) && selected(pod, NODE_POOL) == Some(node_pool)
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == GATE)
}

/// Returns the architectures that tolerarch requires, from its annotation.
fn required(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get("tolerarch.io/required").map(String::as_str)
}
