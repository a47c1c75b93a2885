//! A cluster for one of the controllers, and the manifests of the page.

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt};
use scenarios::{Cluster, Namespace, Process, Tolerarch, WorkloadController, until_ok};
use serde_json::{Value, json};

/// The page. The images of the scenarios replace its images.
const PAGE: &str = "../../docs/workloads.md";
const ON_BOTH: &str = "registry.example.com/team/trainer:2.1";
const ON_AMD64: &str = "registry.example.com/team/report:1.0";

/// A cluster with one of the controllers, and a namespace whose Pods a tolerarch decides.
pub(super) struct WorkloadCluster {
    pub(super) cluster: Cluster,
    pub(super) namespace: Namespace,
    _controller: Process,
    _tolerarch: Tolerarch,
    /// How often tolerarch was called before the scenario began.
    calls_before: u64,
}

impl WorkloadCluster {
    pub(super) async fn start(
        cluster: &Cluster,
        controller: WorkloadController,
        settings: Value,
    ) -> Self {
        let cluster = cluster.another().await;
        let controller = controller.start(&cluster).await;
        let tolerarch = cluster.local().tolerarch(settings).await;
        let namespace = cluster.namespace_with("workloads", &tolerarch.url).await;
        // This also proves that the controller's webhooks answer.
        cluster.until_called(&namespace).await;
        let calls_before = cluster.calls_of(&namespace).await;
        Self {
            cluster,
            namespace,
            _controller: controller,
            _tolerarch: tolerarch,
            calls_before,
        }
    }

    /// Returns how often the API server has called tolerarch for the Pods of the namespace.
    pub(super) async fn calls(&self) -> u64 {
        self.cluster.calls_of(&self.namespace).await - self.calls_before
    }

    /// Applies the objects of a block of manifests below a heading of the page.
    pub(super) async fn apply(&self, heading: &str, block: usize) {
        let objects = self.objects(heading, block).await;
        self.apply_objects(&objects).await;
    }

    /// Returns the objects of a block of manifests below a heading of the page, with images of the scenarios.
    pub(super) async fn objects(&self, heading: &str, index: usize) -> Vec<Value> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let page = fs::read_to_string(page).unwrap();
        let begin = format!("\n## {heading}\n");
        let section = page
            .split_once(&begin)
            .unwrap_or_else(|| panic!("no{begin}"))
            .1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let block = section.split("```yaml\n").nth(index + 1);
        let block = block.unwrap_or_else(|| panic!("no block {index} of {heading}"));
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
        let mut objects: Vec<Value> = objects.map(|object| object.unwrap()).collect();
        objects.iter_mut().for_each(remove_grace_period);
        objects
    }

    pub(super) async fn apply_objects(&self, objects: &[Value]) {
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

    pub(super) fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let meta = TypeMeta {
            api_version: version.to_owned(),
            kind: kind.to_owned(),
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(meta).expect("a kind"));
        let name = &self.namespace.name;
        Api::namespaced_with(self.cluster.client.clone(), name, &kind)
    }

    pub(super) async fn get(&self, version: &str, kind: &str, name: &str) -> DynamicObject {
        self.api(version, kind).get(name).await.unwrap()
    }

    pub(super) async fn set_status(&self, pod: &Pod, status: &Value) -> kube::Result<Pod> {
        let pods = self.namespace.pods();
        let patch = Patch::Strategic(status);
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await
    }

    /// Reports all Pods as ready, as kubelets do, until the Rollout of the page is in this phase.
    pub(super) async fn until_phase(&self, phase: &str) {
        let rollouts = self.api("argoproj.io/v1alpha1", "Rollout");
        let ready = json!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}});
        until_ok(&format!("the Rollout is {phase}"), async || {
            let pods = self.namespace.pods().list(&ListParams::default()).await;
            for pod in pods.map_err(|error| error.to_string())? {
                // The Pod may have been deleted meanwhile.
                let _ = self.set_status(&pod, &ready).await;
            }
            let rollout = rollouts
                .get("web")
                .await
                .map_err(|error| error.to_string())?;
            let status = &rollout.data["status"];
            match status["phase"].as_str() {
                Some(current) if current == phase => Ok(()),
                _ => Err(status.to_string()),
            }
        })
        .await;
    }
}

/// Removes the grace period from all Pods in an object: without kubelets, no other Pod ends at once.
fn remove_grace_period(value: &mut Value) {
    if value.get("containers").is_some() {
        value["terminationGracePeriodSeconds"] = 0.into();
        return;
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(remove_grace_period),
        Value::Array(entries) => entries.iter_mut().for_each(remove_grace_period),
        _ => {}
    }
}
