//! Pods of other controllers' kinds, from the manifests of `docs/workloads.md`.

mod kueue;
mod workload_cluster;

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, PodExt, WorkloadController};
use serde_json::json;

pub(crate) use self::kueue::{
    flavour_with_the_taint_takes_pods_that_tolerate_it, flavours_without_the_taint_take_every_job,
    jobs_get_the_tolerations_of_flavour_and_pool,
};
use self::workload_cluster::WorkloadCluster;

pub(crate) async fn pods_of_job_sets_are_decided_once(cluster: &Cluster) {
    let workloads = WorkloadCluster::start(cluster, WorkloadController::JobSet, json!({})).await;
    workloads.apply("JobSet", 0).await;
    let namespace = &workloads.namespace;
    let workers = namespace
        .until_pods("worker", 4, PodExt::tolerates_pool)
        .await;
    let reports = namespace
        .until_pods("report", 1, |pod| !pod.tolerates_pool())
        .await;
    assert_eq!(workloads.calls().await, 5);

    // After one failure the controller creates all Pods again.
    let first = uids(&[workers, reports.clone()].concat());
    let failed = json!({"status": {"phase": "Failed"}});
    workloads.set_status(&reports[0], &failed).await.unwrap();
    let is_new = |pod: &Pod| !first.contains(&pod.uid().expect("an uid"));
    namespace
        .until_pods("worker", 4, |pod| is_new(pod) && pod.tolerates_pool())
        .await;
    namespace
        .until_pods("report", 1, |pod| is_new(pod) && !pod.tolerates_pool())
        .await;
    assert_eq!(workloads.calls().await, 10);
    let job_set = workloads
        .get("jobset.x-k8s.io/v1alpha2", "JobSet", "training")
        .await;
    assert_eq!(job_set.data["status"]["restarts"], 1);
    assert_eq!(job_set.metadata.generation, Some(1));
}

pub(crate) async fn pods_of_leader_worker_sets_are_decided_once(cluster: &Cluster) {
    let workloads =
        WorkloadCluster::start(cluster, WorkloadController::LeaderWorkerSet, json!({})).await;
    let mut objects = workloads.objects("LeaderWorkerSet", 0).await;
    workloads.apply_objects(&objects).await;
    let namespace = &workloads.namespace;
    let leaders = namespace
        .until_pods("leader", 1, |pod| !pod.tolerates_pool())
        .await;
    let workers = namespace
        .until_pods("worker", 2, PodExt::tolerates_pool)
        .await;
    assert_eq!(workloads.calls().await, 3);

    // Another group leaves the first one unchanged.
    let first = uids(&[leaders, workers].concat());
    objects[0]["spec"]["replicas"] = 2.into();
    workloads.apply_objects(&objects).await;
    let leaders = namespace
        .until_pods("leader", 2, |pod| !pod.tolerates_pool())
        .await;
    let workers = namespace
        .until_pods("worker", 4, PodExt::tolerates_pool)
        .await;
    assert!(first.is_subset(&uids(&[leaders, workers].concat())));
    assert_eq!(workloads.calls().await, 6);
}

pub(crate) async fn rollouts_progress_and_each_revision_is_decided(cluster: &Cluster) {
    let workloads = WorkloadCluster::start(cluster, WorkloadController::Rollouts, json!({})).await;
    let mut objects = workloads.objects("Argo Rollouts", 0).await;
    workloads.apply_objects(&objects).await;
    let namespace = &workloads.namespace;
    namespace.until_pods("web", 4, PodExt::tolerates_pool).await;
    workloads.until_phase("Healthy").await;
    assert_eq!(workloads.calls().await, 4);

    // A new revision, whose image lacks arm64: its canary does not get the toleration; the other Pods stay.
    objects[0]["spec"]["template"]["spec"]["containers"][0]["image"] =
        workloads.cluster.images.tag("amd64").into();
    workloads.apply_objects(&objects).await;
    workloads.until_phase("Paused").await;
    let pods = namespace.until_pods("web", 4, |_| true).await;
    let canaries = pods.iter().filter(|pod| !pod.tolerates_pool());
    assert_eq!(canaries.count(), 1);
    assert_eq!(workloads.calls().await, 5);

    // As `kubectl argo rollouts promote` does.
    let promote = Patch::Merge(json!({"status": {"pauseConditions": null}}));
    let rollouts = workloads.api("argoproj.io/v1alpha1", "Rollout");
    rollouts
        .patch_status("web", &PatchParams::default(), &promote)
        .await
        .unwrap();
    workloads.until_phase("Healthy").await;
    namespace
        .until_pods("web", 4, |pod| !pod.tolerates_pool())
        .await;
    assert_eq!(workloads.calls().await, 8);
}

fn uids(pods: &[Pod]) -> HashSet<String> {
    pods.iter().map(|pod| pod.uid().expect("an uid")).collect()
}
