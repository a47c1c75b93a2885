//! Pods as scenarios write them, and what scenarios read from created Pods.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// The key of the pool's taint.
pub const POOL: &str = "tolerarch.io/multi-arch";

/// Returns a Pod whose containers have these images. It has no grace period: without kubelets, no other Pod ends at once.
pub fn pod(images: &[&str]) -> Value {
    let containers: Vec<Value> = images
        .iter()
        .enumerate()
        .map(|(index, image)| json!({"name": format!("c{index}"), "image": image}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-", "labels": {"app": "web"}},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0},
    })
}

/// Returns a Deployment of Pods like `pod`, labelled `app: <name>`.
pub fn deployment(name: &str, replicas: u32, pod: &Value) -> Value {
    let mut template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    template["metadata"] =
        json!({"labels": {"app": name}, "annotations": pod["metadata"]["annotations"]});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    })
}

/// Adds an object to a list of the Pod's spec, such as `initContainers`.
pub fn add_container(pod: &mut Value, list: &str, container: Value) {
    let spec = pod["spec"].as_object_mut().expect("a spec");
    let list = spec.entry(list).or_insert_with(|| json!([]));
    list.as_array_mut().expect("a list").push(container);
}

/// What scenarios read from a Pod.
pub trait PodExt {
    /// Whether the Pod has the pool's toleration, as tolerarch adds it.
    fn tolerates_pool(&self) -> bool;
    /// The value of the annotation that names the pools whose tolerations tolerarch added.
    fn pools(&self) -> Option<&str>;
    /// The node that the scheduler chose.
    fn node(&self) -> Option<&str>;
    /// Whether the scheduler found no node.
    fn is_unschedulable(&self) -> bool;
}

impl PodExt for Pod {
    fn tolerates_pool(&self) -> bool {
        let tolerations = self
            .spec
            .iter()
            .flat_map(|spec| spec.tolerations.iter().flatten());
        tolerations.into_iter().any(|toleration| {
            toleration.key.as_deref() == Some(POOL)
                && toleration.operator.as_deref() == Some("Exists")
                && toleration.effect.as_deref() == Some("NoSchedule")
        })
    }

    fn pools(&self) -> Option<&str> {
        Some(
            self.metadata
                .annotations
                .as_ref()?
                .get("tolerarch.io/pools")?,
        )
    }

    fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }

    fn is_unschedulable(&self) -> bool {
        let conditions = self
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
    }
}
