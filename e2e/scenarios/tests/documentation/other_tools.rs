//! What the pages in `docs/from/` expect: the values that each shows, and what its tool has installed.

use std::fs;
use std::path::Path;

use scenarios::AdminCluster;
use serde_json::{Value, json};

use crate::migration::{Page, pages};

/// Prepares the cluster for the commands of a page. Does nothing for pages outside `docs/from/`.
pub(super) async fn prepare(admin: &AdminCluster, name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = pages(&root);
    let is_named = |page: &&Page| name == format!("docs/from/{}.md", page.name);
    let Some(page) = pages.iter().find(is_named) else {
        return;
    };
    fs::write(admin.folder().join("values.yaml"), page.values()[0]).unwrap();
    for object in objects(&page.name) {
        fs::write(admin.folder().join("object.json"), object.to_string()).unwrap();
        admin.run("kubectl apply -f object.json").await;
        if object["kind"] == "CustomResourceDefinition" {
            admin
                .run("kubectl wait --for=condition=Established --timeout=60s -f object.json")
                .await;
        }
    }
    if page.name == "archaware-controller" {
        for architecture in ["amd64", "arm64"] {
            let selector = format!("kubernetes.io/arch={architecture}");
            let taint = format!("supported-arch={architecture}:NoSchedule");
            admin
                .run(&format!(
                    "kubectl taint nodes --selector {selector} {taint}"
                ))
                .await;
        }
    }
}

/// Restores the nodes and the installation.
pub(super) async fn clean_up(admin: &AdminCluster) {
    admin
        .run("kubectl taint nodes --selector kubernetes.io/arch=arm64 supported-arch:NoSchedule-")
        .await;
    admin
        .run("helm upgrade tolerarch manifests/helm/tolerarch --namespace tolerarch --reset-values")
        .await;
}

/// Returns the objects of a tool, named as in its manifests or on its page.
fn objects(page: &str) -> Vec<Value> {
    match page {
        "archaware-controller" => vec![deployment("kube-system", "archaware-controller")],
        "archy" => vec![webhook("archy")],
        "k8smultiarcher" => vec![webhook("k8smultiarcher-webhook")],
        "multiarch-tuning-operator" => {
            let group = "multiarch.openshift.io";
            vec![
                namespace("openshift-config"),
                secret("openshift-config", "pull-secret"),
                kind(group, "v1beta1", "ClusterPodPlacementConfig", "Cluster"),
                kind(group, "v1beta1", "PodPlacementConfig", "Namespaced"),
                custom(group, "v1beta1", "ClusterPodPlacementConfig", "cluster"),
                custom(group, "v1beta1", "PodPlacementConfig", "team"),
            ]
        }
        "noe" => vec![
            namespace("noe"),
            deployment("noe", "noe"),
            webhook("noe-noe"),
        ],
        "policies" => vec![
            kind("kyverno.io", "v1", "ClusterPolicy", "Cluster"),
            custom("kyverno.io", "v1", "ClusterPolicy", "tolerate-arm64"),
        ],
        "tolerable" => vec![
            namespace("tolerable"),
            secret("tolerable", "creds"),
            webhook("tolerable-configuration"),
        ],
        other => panic!("docs/from/{other}.md: its tool's objects are missing here"),
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn secret(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": {"docker.io.toml": "user = \"name\"\nsecret = \"word\"\n"},
    })
}

/// Returns a webhook configuration without webhooks.
fn webhook(name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [],
    })
}

fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": name, "image": format!("registry.example.com/{name}")}]},
            },
        },
    })
}

/// Returns the definition of a kind with any fields.
fn kind(group: &str, version: &str, kind: &str, scope: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Returns an object of such a kind; a namespaced one is created in `default`.
fn custom(group: &str, version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{group}/{version}"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": {},
    })
}
