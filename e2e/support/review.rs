//! Reviews as the API server sends them, and the checks that it makes of the answers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::https::{Answer, request};

/// Returns a Pod of a ReplicaSet whose containers have these images.
pub(crate) fn pod(images: &[&str]) -> Value {
    let containers: Vec<Value> = images
        .iter()
        .enumerate()
        .map(|(index, image)| json!({"name": format!("c{index}"), "image": image}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-5d5c-",
            "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d5c", "uid": "1", "controller": true}],
        },
        "spec": {"containers": containers},
    })
}

/// Returns a Pod that is decided without a lookup.
pub(crate) fn opted_out() -> Value {
    let mut pod = pod(&["nginx"]);
    pod["metadata"]["labels"] = json!({"tolerarch.io/mode": "off"});
    pod
}

/// Returns the review of a Pod's creation.
pub(crate) fn review(uid: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": pod,
            "oldObject": null,
            "dryRun": false,
        },
    })
}

/// Returns the request with a review, to `path`.
pub(crate) fn post(path: &str, review: &Value) -> Vec<u8> {
    request(
        "POST",
        path,
        &[("Content-Type", "application/json")],
        review.to_string().as_bytes(),
    )
}

/// An answer that the API server accepts.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) uid: String,
    pub(crate) decision: String,
    pub(crate) reason: String,
    pub(crate) image: Option<String>,
    pub(crate) patch: Option<json_patch::Patch>,
    pub(crate) warnings: Vec<String>,
}

impl Verdict {
    /// Reads an answer. Asserts what the API server checks (k8s.io/apiserver `VerifyAdmissionResponse`), and that the
    /// Pod is allowed.
    pub(crate) fn of(answer: &Answer) -> Self {
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json")),
            "{answer:?}"
        );
        let review: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(review["kind"], "AdmissionReview");
        let response = &review["response"];
        assert_eq!(response["allowed"], true, "{response}");
        let patch = response.get("patch").map(|patch| {
            assert_eq!(response["patchType"], "JSONPatch");
            serde_json::from_slice(&BASE64.decode(patch.as_str().unwrap()).unwrap()).unwrap()
        });
        assert_eq!(
            patch.is_some(),
            response.get("patchType").is_some(),
            "{response}"
        );
        let audit = |name: &str| {
            response["auditAnnotations"][name]
                .as_str()
                .map(str::to_owned)
        };
        Self {
            uid: response["uid"].as_str().unwrap().to_owned(),
            decision: audit("decision").unwrap(),
            reason: audit("reason").unwrap(),
            image: audit("image"),
            patch,
            warnings: serde_json::from_value::<Option<_>>(response["warnings"].clone())
                .unwrap()
                .unwrap_or_default(),
        }
    }

    /// Returns decision, reason and image, as in the audit log.
    pub(crate) fn audit(&self) -> (&str, &str, Option<&str>) {
        (&self.decision, &self.reason, self.image.as_deref())
    }

    /// Returns the Pod after the patch, which must apply.
    pub(crate) fn applied_to(&self, pod: &Value) -> Value {
        let mut pod = pod.clone();
        if let Some(patch) = &self.patch {
            json_patch::patch(&mut pod, patch).unwrap();
        }
        pod
    }
}
