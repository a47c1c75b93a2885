//! Where Pods' templates stand in an object, and images that no template has: their shape tells, in any kind.

use serde_json::json;

use super::part::{Part, Step};
use tolerarch_core::image::LookupError;
use tolerarch_core::pod::Pod;
use tolerarch_text::yaml::{Data, Node};

/// API groups that Kubernetes itself serves, below `k8s.io`. Others there (`sparkoperator.k8s.io`) are its projects'.
const OF_KUBERNETES: &str = "admission admissionregistration apiextensions apiregistration authentication authorization \
    certificates coordination discovery events flowcontrol.apiserver imagepolicy internal.apiserver networking node \
    rbac.authorization resource scheduling storage storagemigration";

/// The templates of Pods in an object.
pub(super) fn templates<'n>(object: &'n Node, group: &str, kind: &str) -> Vec<Part<'n>> {
    let is_whole = matches!((group, kind), ("", "Pod") | ("serving.knative.dev", "Revision"));
    let (brings_pods, is_foreign) = (brings_pods(group, kind), !is_of_kubernetes(group));
    Part::whole(object).within(&|node, way| match way {
        [] if is_whole => true,
        // Of any other object as a whole, the spec is the Pods': its metadata are its own.
        [] => is_foreign && is_spec(node),
        _ if brings_pods => node.at(&["spec", "containers"]).is_some(),
        _ => is_foreign && says_what_runs(way) && (is_spec(node) || node.get("spec").is_some_and(is_spec)),
    })
}

/// The images that are named in an object of another group than Kubernetes' own, outside its templates.
pub(super) fn images<'n>(object: &'n Node, group: &str, templates: &[Part<'_>]) -> Vec<Part<'n>> {
    if is_of_kubernetes(group) {
        return Vec::new();
    }
    let mut images = Part::whole(object).within(&|node, way| says_what_runs(way) && is_image(node, way));
    images.retain(|image| !templates.iter().any(|template| image.is_run_by(template)));
    images
}

/// Whether a kind is one of Kubernetes itself that brings Pods.
pub(super) fn brings_pods(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "Pod" | "PodTemplate" | "ReplicationController"),
        "apps" | "extensions" => matches!(kind, "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet"),
        "batch" => matches!(kind, "CronJob" | "Job"),
        _ => false,
    }
}

/// The kind of the controller of the Pods that a kind brings; empty where they have none. A share of the workloads goes by it.
pub(super) fn controller<'k>(group: &str, kind: &'k str) -> &'k str {
    match (group, kind) {
        ("", "Pod" | "PodTemplate") => "",
        ("apps" | "extensions", "Deployment") | ("argoproj.io", "Rollout") => "ReplicaSet",
        ("batch", "CronJob") => "Job",
        ("leaderworkerset.x-k8s.io", _) => "StatefulSet",
        _ => kind,
    }
}

/// Neither what the object is called, nor what became of it, nor what others like it may say.
fn says_what_runs(way: &[Step<'_>]) -> bool {
    !matches!(way, [Step::Member("metadata" | "status"), ..])
        && !way.contains(&Step::Member("openAPIV3Schema"))
}

/// Whether it reads as the spec of a Pod, whose containers all name an image.
fn is_spec(node: &Node) -> bool {
    let Some(Data::List(containers)) = node.get("containers").map(|list| &list.data) else { return false };
    if containers.is_empty() || containers.iter().any(|container| container.text("image").is_empty()) {
        return false;
    }
    let pod = json!({"spec": node.value()});
    Pod::of_value(&pod)
        .is_ok_and(|pod| pod.images().iter().all(|usage| !matches!(usage.image, Err(LookupError::Invalid))))
}

/// Whether an image is named here, and no picture: as a text, or by the parts of its name.
fn is_image(node: &Node, way: &[Step<'_>]) -> bool {
    let Some(Step::Member(name)) = way.last() else { return false };
    let text = image(node);
    (matches!(*name, "image" | "imageName") || name.ends_with("Image"))
        && !text.is_empty()
        && !["http://", "https://"].iter().any(|scheme| text.starts_with(scheme))
}

/// The image that a part of an object names; empty where it names none.
pub(super) fn image(node: &Node) -> &str {
    if let Data::Text(text) = &node.data { text } else { node.text("repository") }
}

/// Whether Kubernetes itself serves this group: all its kinds that bring Pods are known.
pub(super) fn is_of_kubernetes(group: &str) -> bool {
    matches!(group, "" | "apps" | "autoscaling" | "batch" | "extensions" | "policy")
        || group.strip_suffix(".k8s.io").is_some_and(|group| OF_KUBERNETES.split(' ').any(|own| own == group))
}

/// Whether this object makes Pods by a template that stands elsewhere, or that its operator has.
pub(super) fn is_templateless(object: &Node, group: &str, kind: &str) -> bool {
    match (group, kind) {
        ("argoproj.io", "Rollout") => object.at(&["spec", "workloadRef"]).is_some(),
        ("kafka.strimzi.io", _) => {
            !matches!(kind, "KafkaTopic" | "KafkaUser" | "KafkaRebalance" | "KafkaConnector")
        }
        _ => false,
    }
}
