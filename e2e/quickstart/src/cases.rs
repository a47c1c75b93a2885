//! The Pods, and the decision that is expected for each.

use serde_json::{Value, json};
use testregistry::Registry;

use crate::TAINT;
use crate::client::Answer;

/// A Pod with the expected decision.
pub(crate) struct Case {
    pub(crate) description: &'static str,
    pub(crate) pod: Value,
    decision: &'static str,
    /// Reasons of which one is expected.
    reasons: &'static [&'static str],
}

impl Case {
    /// Returns the references of the Pod's images, in the order of its containers.
    pub(crate) fn image_references(&self) -> Vec<&str> {
        let mut references = Vec::new();
        if let Some(containers) = self.pod["spec"]["containers"].as_array() {
            for container in containers {
                references.push(container["image"].as_str().unwrap_or_default());
            }
        }
        references
    }

    /// Returns what was expected instead, or `None` if the answer is as expected.
    pub(crate) fn mismatch(&self, answer: &Answer) -> Option<String> {
        let reason_matches = self.reasons.contains(&answer.reason.as_str());
        let pod_matches = match self.decision {
            "tolerated" => is_tolerated(&answer.pod),
            "retracted" => answer.pod != self.pod && !is_tolerated(&answer.pod),
            _ => answer.patch.is_none(),
        };
        if answer.decision == self.decision && reason_matches && pod_matches {
            return None;
        }
        let reasons = self.reasons.join(" or ");
        Some(format!(
            "  != expected {}, {reasons}, and a Pod that shows it",
            self.decision
        ))
    }
}

/// Returns whether the Pod has the pool's toleration and the annotation that says tolerarch added it.
fn is_tolerated(pod: &Value) -> bool {
    if pod["metadata"]["annotations"]["tolerarch.io/pools"] != "multi-arch" {
        return false;
    }
    match pod["spec"]["tolerations"].as_array() {
        Some(tolerations) => tolerations
            .iter()
            .any(|toleration| toleration["key"] == TAINT),
        None => false,
    }
}

/// Returns all cases but the last, which [`with_injected_sidecar`] makes of the first answer.
pub(crate) fn all(registry: &Registry) -> Vec<Case> {
    let image = |repository: &str, tag: &str| registry.repo(repository).reference(tag);
    let web = image("web", "1");
    let api = image("api", "2");
    let tool = image("tool", "1");
    let agent = image("agent", "3");
    let edge = image("edge", "1");
    let slow = image("slow", "1");
    let never_pushed = image("web", "typo");
    let case = |description, images: &[&str], decision, reasons| Case {
        description,
        pod: pod(images),
        decision,
        reasons,
    };

    let mut opted_out = case(
        "opted out by annotation",
        &[&web],
        "unchanged",
        &["opted-out"],
    );
    opted_out.pod["metadata"]["annotations"] = json!({"tolerarch.io/mode": "off"});
    let mut tolerates_all = case(
        "tolerates every taint",
        &[&web],
        "unchanged",
        &["already-tolerated"],
    );
    tolerates_all.pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    vec![
        case("one multi-arch image", &[&web], "tolerated", &["tolerated"]),
        case(
            "with an amd64-only sidecar",
            &[&web, &agent],
            "unchanged",
            &["platform-missing"],
        ),
        case("arm64 only", &[&edge], "unchanged", &["platform-missing"]),
        case(
            "attestations, manifest list",
            &[&api, &tool],
            "tolerated",
            &["tolerated"],
        ),
        opted_out,
        tolerates_all,
        case(
            "an image that was never pushed",
            &[&never_pushed],
            "unchanged",
            &["not-found"],
        ),
        // The lookup may have begun before this review, so either its timeout or the Pod's budget ends first.
        case(
            "a registry that hangs",
            &[&slow],
            "unchanged",
            &["budget-exceeded", "timeout"],
        ),
    ]
}

/// Returns the patched Pod as the API server sends it once more (`reinvocationPolicy: IfNeeded`), after another
/// webhook has injected an amd64-only sidecar.
pub(crate) fn with_injected_sidecar(patched_pod: &Value, registry: &Registry) -> Case {
    let mut pod = patched_pod.clone();
    let sidecar = container("injected", &registry.repo("agent").reference("3"));
    if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
        containers.push(sidecar);
    }
    Case {
        description: "the first, sidecar injected",
        pod,
        decision: "retracted",
        reasons: &["retracted"],
    }
}

/// Returns a Pod as a ReplicaSet creates it and the API server completes it, before any webhook sees it.
fn pod(images: &[&str]) -> Value {
    let mut containers = Vec::new();
    for (index, image) in images.iter().enumerate() {
        containers.push(container(&format!("c{index}"), image));
    }
    let default_toleration = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "shop-5d7c9b6f4-", "namespace": "shop",
            "labels": {"app": "shop", "pod-template-hash": "5d7c9b6f4"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d7c9b6f4",
                "uid": "0b7f3c0e-6f0e-4a50-9d3c-3a8f1b0f9a55", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "containers": containers,
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "serviceAccountName": "default", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": true, "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                default_toleration("node.kubernetes.io/not-ready"),
                default_toleration("node.kubernetes.io/unreachable"),
            ],
        },
        "status": {},
    })
}

fn container(name: &str, image: &str) -> Value {
    json!({
        "name": name, "image": image, "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}
