//! Which Pods get the toleration, and where they run.

use k8s_openapi::api::core::v1::Pod;
use scenarios::{Cluster, PodExt, add_container, deployment, pod};
use serde_json::{Value, json};

pub(crate) async fn multi_arch_deployment_runs_in_pool_if_plain_node_is_full(cluster: &Cluster) {
    let namespace = cluster.namespace("multi-arch").await;
    namespace.offer(0, 10).await;
    let pod = namespace.takes_a_place(&pod(&[&cluster.images.tag("multi")]));
    namespace.apply(&deployment("web", 3, &pod)).await;
    let pods = namespace
        .until_pods("web", 3, |pod| namespace.is_in_pool(pod))
        .await;
    for pod in pods {
        assert!(pod.tolerates_pool(), "{pod:?}");
        assert_eq!(pod.pools(), Some("multi-arch"));
    }
}

pub(crate) async fn single_arch_pods_stay_out_of_the_pool(cluster: &Cluster) {
    let namespace = cluster.namespace("one-arch").await;
    namespace.offer(1, 10).await;
    for tag in ["amd64", "arm64", "single"] {
        let pod = namespace.takes_a_place(&pod(&[&cluster.images.tag(tag)]));
        namespace.apply(&deployment(tag, 2, &pod)).await;
        let pods = namespace
            .until_pods(tag, 2, |pod| pod.is_unschedulable() || pod.node().is_some())
            .await;
        assert!(pods.iter().all(is_unchanged), "{tag}: {pods:?}");
        // The only place for them is on the plain node, although the pool's node has places.
        assert!(
            pods.iter().all(|pod| !namespace.is_in_pool(pod)),
            "{tag}: {pods:?}"
        );
        assert!(pods.iter().any(PodExt::is_unschedulable), "{tag}: {pods:?}");
    }
}

pub(crate) async fn every_image_of_a_pod_counts(cluster: &Cluster) {
    let namespace = cluster.namespace("every-image").await;
    let image = |tag: &str| cluster.images.tag(tag);
    let with = |list: &str, container: Value| {
        let mut pod = pod(&[&image("multi")]);
        add_container(&mut pod, list, container);
        pod
    };
    for tag in ["amd64", "arm64", "single"] {
        let other = image(tag);
        for pod in [
            pod(&[&image("multi"), &other]),
            with("initContainers", json!({"name": "init", "image": other})),
            with(
                "initContainers",
                json!({"name": "native", "image": other, "restartPolicy": "Always"}),
            ),
        ] {
            assert!(is_unchanged(&namespace.pod(&pod).await), "{pod}");
        }
    }
    let other = image("sidecar");
    for pod in [
        pod(&[&image("multi"), &other]),
        with("initContainers", json!({"name": "init", "image": other})),
        with(
            "initContainers",
            json!({"name": "native", "image": other, "restartPolicy": "Always"}),
        ),
    ] {
        assert!(namespace.pod(&pod).await.tolerates_pool(), "{pod}");
    }
}

pub(crate) async fn image_by_digest_gets_the_toleration(cluster: &Cluster) {
    let namespace = cluster.namespace("digests").await;
    let digest = cluster.images.digest();
    let both = digest.replace("@", ":whatever@");
    for image in [digest, both] {
        let created = namespace.pod(&pod(&[&image])).await;
        assert!(created.tolerates_pool(), "{image}");
    }
}

pub(crate) async fn image_volumes_are_checked(cluster: &Cluster) {
    let version = cluster.client.apiserver_version().await.unwrap();
    if version.minor.starts_with("30") {
        // An API server of 1.30 drops the image of a volume.
        return;
    }
    let namespace = cluster.namespace("volumes").await;
    // An index must have the architecture; a single manifest can be mounted anywhere.
    for (tag, is_eligible) in [
        ("sidecar", true),
        ("single", true),
        ("amd64", false),
        ("arm64", false),
    ] {
        let mut pod = pod(&[&cluster.images.tag("multi")]);
        pod["spec"]["volumes"] =
            json!([{"name": "data", "image": {"reference": cluster.images.tag(tag)}}]);
        let created = namespace.pod(&pod).await;
        assert_eq!(created.tolerates_pool(), is_eligible, "{tag}");
    }
}

pub(crate) async fn every_kind_of_workload_gets_the_toleration(cluster: &Cluster) {
    let namespace = cluster.namespace("workloads").await;
    let template = |app: &str, restart: &str| {
        let mut spec = pod(&[&cluster.images.tag("multi")])["spec"].take();
        spec["restartPolicy"] = restart.into();
        json!({"metadata": {"labels": {"app": app}}, "spec": spec})
    };
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let workloads = [
        (
            "set",
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"},
                "spec": {"replicas": 1, "serviceName": "set", "selector": selector("set"),
                    "template": template("set", "Always")},
            }),
        ),
        (
            "replicas",
            json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "replicas"},
                "spec": {"replicas": 1, "selector": selector("replicas"), "template": template("replicas", "Always")},
            }),
        ),
        (
            "job",
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
                "spec": {"template": template("job", "Never")},
            }),
        ),
        (
            "cron",
            json!({
                "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"},
                "spec": {"schedule": "0 0 1 1 *", "suspend": true,
                    "jobTemplate": {"spec": {"template": template("cron", "Never")}}},
            }),
        ),
    ];
    for (_, object) in &workloads {
        namespace.apply(object).await;
    }
    // Creates a Job as `kubectl create job --from=cronjob/cron` does. The CronJob is suspended.
    let mut job = workloads[3].1["spec"]["jobTemplate"].clone();
    job["apiVersion"] = "batch/v1".into();
    job["kind"] = "Job".into();
    job["metadata"] = json!({"name": "cron-1"});
    namespace.apply(&job).await;
    for (app, _) in workloads {
        namespace.until_pods(app, 1, PodExt::tolerates_pool).await;
    }
}

pub(crate) async fn user_tolerations_stay(cluster: &Cluster) {
    let namespace = cluster.namespace("tolerations").await;
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    pod["spec"]["tolerations"] = json!([
        {"key": "example.com/own", "operator": "Equal", "value": "a", "effect": "NoExecute", "tolerationSeconds": 7},
    ]);
    let created = namespace.pod(&pod).await;
    assert!(
        created.tolerates_pool() && has_user_toleration(&created),
        "{created:?}"
    );

    // A toleration of the pool by the user is not managed.
    pod["spec"]["tolerations"] = json!([{"key": scenarios::POOL, "operator": "Exists"}]);
    let created = namespace.pod(&pod).await;
    assert_eq!(created.pools(), None, "{created:?}");
}

fn has_user_toleration(pod: &Pod) -> bool {
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.as_ref())
        .unwrap();
    tolerations
        .iter()
        .any(|toleration| toleration.key.as_deref() == Some("example.com/own"))
}

fn is_unchanged(pod: &Pod) -> bool {
    !pod.tolerates_pool() && pod.pools().is_none()
}
