//! Pods that come by other controllers' kinds, from the manifests of `docs/workloads.md`.

mod kueue;
mod site;

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
use self::site::Site;

pub(crate) async fn pods_of_job_sets_are_decided_once(cluster: &Cluster) {
    let site = Site::start(cluster, WorkloadController::JobSet, json!({})).await;
    site.apply("JobSet", 0).await;
    let namespace = &site.namespace;
    let workers = namespace
        .until_pods("worker", 4, PodExt::tolerates_pool)
        .await;
    let reports = namespace
        .until_pods("report", 1, |pod| !pod.tolerates_pool())
        .await;
    assert_eq!(site.calls().await, 5);

    // One failure, and the controller makes all of them anew.
    let first = uids(&[workers, reports.clone()].concat());
    let failed = json!({"status": {"phase": "Failed"}});
    site.set_status(&reports[0], &failed).await.unwrap();
    let is_new = |pod: &Pod| !first.contains(&pod.uid().expect("an uid"));
    namespace
        .until_pods("worker", 4, |pod| is_new(pod) && pod.tolerates_pool())
        .await;
    namespace
        .until_pods("report", 1, |pod| is_new(pod) && !pod.tolerates_pool())
        .await;
    assert_eq!(site.calls().await, 10);
    let job_set = site
        .get("jobset.x-k8s.io/v1alpha2", "JobSet", "training")
        .await;
    assert_eq!(job_set.data["status"]["restarts"], 1);
    assert_eq!(job_set.metadata.generation, Some(1));
}

pub(crate) async fn pods_of_leader_worker_sets_are_decided_once(cluster: &Cluster) {
    let site = Site::start(cluster, WorkloadController::LeaderWorkerSet, json!({})).await;
    let mut objects = site.objects("LeaderWorkerSet", 0).await;
    site.apply_objects(&objects).await;
    let namespace = &site.namespace;
    let leaders = namespace
        .until_pods("leader", 1, |pod| !pod.tolerates_pool())
        .await;
    let workers = namespace
        .until_pods("worker", 2, PodExt::tolerates_pool)
        .await;
    assert_eq!(site.calls().await, 3);

    // What the controller does for another group leaves the first one as it is.
    let first = uids(&[leaders, workers].concat());
    objects[0]["spec"]["replicas"] = 2.into();
    site.apply_objects(&objects).await;
    let leaders = namespace
        .until_pods("leader", 2, |pod| !pod.tolerates_pool())
        .await;
    let workers = namespace
        .until_pods("worker", 4, PodExt::tolerates_pool)
        .await;
    assert!(first.is_subset(&uids(&[leaders, workers].concat())));
    assert_eq!(site.calls().await, 6);
}

pub(crate) async fn rollouts_progress_and_each_revision_is_decided(cluster: &Cluster) {
    let site = Site::start(cluster, WorkloadController::Rollouts, json!({})).await;
    let mut objects = site.objects("Argo Rollouts", 0).await;
    site.apply_objects(&objects).await;
    let namespace = &site.namespace;
    namespace.until_pods("web", 4, PodExt::tolerates_pool).await;
    site.until_phase("Healthy").await;
    assert_eq!(site.calls().await, 4);

    // A new revision, whose image lacks arm64: its canary stays out of the pool, and the others stay in it.
    objects[0]["spec"]["template"]["spec"]["containers"][0]["image"] =
        site.cluster.images.tag("amd64").into();
    site.apply_objects(&objects).await;
    site.until_phase("Paused").await;
    let pods = namespace.until_pods("web", 4, |_| true).await;
    let canaries = pods.iter().filter(|pod| !pod.tolerates_pool());
    assert_eq!(canaries.count(), 1);
    assert_eq!(site.calls().await, 5);

    // As `kubectl argo rollouts promote` does it.
    let promote = Patch::Merge(json!({"status": {"pauseConditions": null}}));
    let rollouts = site.api("argoproj.io/v1alpha1", "Rollout");
    let how = PatchParams::default();
    rollouts.patch_status("web", &how, &promote).await.unwrap();
    site.until_phase("Healthy").await;
    namespace
        .until_pods("web", 4, |pod| !pod.tolerates_pool())
        .await;
    assert_eq!(site.calls().await, 8);
}

fn uids(pods: &[Pod]) -> HashSet<String> {
    pods.iter().map(|pod| pod.uid().expect("an uid")).collect()
}
