//! Pods that come by other controllers' kinds, from the manifests of `docs/workloads.md`.

mod kueue;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use e2e::{Cluster, Namespace, PodExt, Process, Tolerarch, WorkloadController, until_ok};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

pub(crate) use self::kueue::{
    a_flavour_with_the_taint_takes_what_tolerates_it,
    jobs_get_the_tolerations_of_their_flavour_and_of_the_pool,
    other_flavours_of_the_pool_take_every_job,
};

/// The page, whose images stand for those of the scenarios.
const PAGE: &str = "../../docs/workloads.md";
const ON_BOTH: &str = "registry.example.com/team/trainer:2.1";
const ON_AMD64: &str = "registry.example.com/team/report:1.0";

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
    fail(namespace, &reports[0]).await;
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
    rollouts
        .patch("web", &PatchParams::default(), &promote)
        .await
        .unwrap();
    site.until_phase("Healthy").await;
    namespace
        .until_pods("web", 4, |pod| !pod.tolerates_pool())
        .await;
    assert_eq!(site.calls().await, 8);
}

/// A cluster with one of the controllers, and a namespace whose Pods a tolerarch with these settings decides.
struct Site {
    cluster: Cluster,
    namespace: Namespace,
    _parts: (Process, Tolerarch),
    /// The calls before those that count.
    before: u64,
}

impl Site {
    async fn start(cluster: &Cluster, controller: WorkloadController, settings: Value) -> Self {
        let cluster = cluster.another().await;
        let controller = controller.start(&cluster).await;
        let tolerarch = cluster.local().tolerarch(settings).await;
        let namespace = cluster.namespace_with("workloads", &tolerarch.url).await;
        // The controller's own webhooks have to answer for that, too.
        cluster.until_called(&namespace).await;
        let before = cluster.calls_of(&namespace).await;
        Self {
            cluster,
            namespace,
            _parts: (controller, tolerarch),
            before,
        }
    }

    /// How often the API server has called tolerarch for the Pods of the namespace.
    async fn calls(&self) -> u64 {
        self.cluster.calls_of(&self.namespace).await - self.before
    }

    /// Applies the objects of a block of manifests below a heading of the page.
    async fn apply(&self, heading: &str, place: usize) {
        let objects = self.objects(heading, place).await;
        self.apply_objects(&objects).await;
    }

    /// Those objects, with images of the scenarios.
    async fn objects(&self, heading: &str, place: usize) -> Vec<Value> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let page = fs::read_to_string(page).unwrap();
        let begin = format!("\n## {heading}\n");
        let section = page
            .split_once(&begin)
            .unwrap_or_else(|| panic!("no{begin}"))
            .1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let block = section.split("```yaml\n").nth(place + 1);
        let block = block.unwrap_or_else(|| panic!("no block {place} of {heading}"));
        let block = block.split("```").next().unwrap_or_default();
        let images = &self.cluster.images;
        let block = block.replace(ON_BOTH, &images.tag("multi"));
        let block = block.replace(ON_AMD64, &images.tag("amd64"));

        let local = self.cluster.local();
        let file = local.directory().join("block.yaml");
        fs::write(&file, block).unwrap();
        let file = file.display().to_string();
        let create = ["create", "--dry-run=client", "-o", "json", "-f", &file];
        let namespace = ["--namespace", &self.namespace.name];
        let text = local.kubectl(&[&create[..], &namespace[..]].concat()).await;
        let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let mut objects: Vec<Value> = objects.map(|one| one.unwrap()).collect();
        objects.iter_mut().for_each(without_grace);
        objects
    }

    async fn apply_objects(&self, objects: &[Value]) {
        let local = self.cluster.local();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = local.directory().join("objects.json");
        fs::write(&file, list.to_string()).unwrap();
        let file = file.display().to_string();
        let name = &self.namespace.name;
        let apply = [
            "apply",
            "--server-side",
            "--validate=strict",
            "-n",
            name,
            "-f",
            &file,
        ];
        local.kubectl(&apply).await;
    }

    fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let meta = TypeMeta {
            api_version: version.to_owned(),
            kind: kind.to_owned(),
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(meta).expect("a kind"));
        let name = &self.namespace.name;
        Api::namespaced_with(self.cluster.client.clone(), name, &kind)
    }

    async fn get(&self, version: &str, kind: &str, name: &str) -> DynamicObject {
        self.api(version, kind).get(name).await.unwrap()
    }

    /// Plays the kubelets until the Rollout of the page is in this phase.
    async fn until_phase(&self, phase: &str) {
        let rollouts = self.api("argoproj.io/v1alpha1", "Rollout");
        let ready = json!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}});
        until_ok(&format!("the Rollout is {phase}"), async || {
            let pods = self.namespace.pods().list(&ListParams::default()).await;
            for pod in pods.map_err(|error| error.to_string())? {
                // It may be gone by now.
                let _ = set_status(&self.namespace, &pod, &ready).await;
            }
            let rollout = rollouts
                .get("web")
                .await
                .map_err(|error| error.to_string())?;
            let status = &rollout.data["status"];
            match status["phase"].as_str() {
                Some(found) if found == phase => Ok(()),
                _ => Err(status.to_string()),
            }
        })
        .await;
    }
}

/// Without kubelets only a Pod without grace ends at once.
fn without_grace(value: &mut Value) {
    if value.get("containers").is_some() {
        value["terminationGracePeriodSeconds"] = 0.into();
        return;
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(without_grace),
        Value::Array(entries) => entries.iter_mut().for_each(without_grace),
        _ => {}
    }
}

fn uids(pods: &[Pod]) -> HashSet<String> {
    pods.iter().map(|pod| pod.uid().expect("an uid")).collect()
}

/// Ends a Pod as if its program had failed.
async fn fail(namespace: &Namespace, pod: &Pod) {
    let failed = json!({"status": {"phase": "Failed"}});
    set_status(namespace, pod, &failed).await.unwrap();
}

async fn set_status(namespace: &Namespace, pod: &Pod, status: &Value) -> kube::Result<Pod> {
    let patch = Patch::Strategic(status);
    let how = PatchParams::default();
    namespace
        .pods()
        .patch_status(&pod.name_any(), &how, &patch)
        .await
}
