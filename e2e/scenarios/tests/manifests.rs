//! What `manifests/` installs. The cluster was started with it, by a server-side apply with strict validation. It is
//! rendered from the Helm chart; the tests of the manifests compare the two.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use scenarios::{Cluster, PodExt, pod, until};
use serde_json::json;

pub(crate) async fn pods_of_the_manifests_are_created_unchanged(cluster: &Cluster) {
    // The namespace enforces the restricted Pod security standard. The API server does not call tolerarch for its Pods.
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), "tolerarch");
    let labelled = ListParams::default().labels(
        "app.kubernetes.io/name=tolerarch,app.kubernetes.io/component in (webhook, certificates)",
    );
    // Two replicas of the webhook, and the issuer of its certificates.
    let pods = until("three Pods of tolerarch", async || {
        let pods = pods.list(&labelled).await.unwrap().items;
        (pods.len() == 3).then_some(pods)
    })
    .await;
    assert!(
        pods.iter()
            .all(|pod| pod.pools().is_none() && !pod.tolerates_pool()),
        "{pods:?}"
    );
}

/// The shipped Deployment, on nodes without a zone. Otherwise the scheduler would choose the emptier node for both
/// replicas.
pub(crate) async fn replicas_run_on_different_nodes_without_zones(cluster: &Cluster) {
    const SPREAD: &str = "e2e.tolerarch.io/spread";
    let namespace = cluster.namespace_opted_out("spread").await;
    for node in ["spread-a", "spread-b"] {
        cluster.add_node(node, SPREAD).await;
    }
    let mut full = pod(&["busybox"]);
    full["spec"]["nodeName"] = "spread-a".into();
    full["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "500"}});
    namespace.pod(&full).await;

    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), "tolerarch");
    let mut spec = serde_json::to_value(deployments.get("tolerarch").await.unwrap().spec).unwrap();
    let template = &mut spec["template"]["spec"];
    template["serviceAccountName"] = "default".into();
    template["nodeSelector"] = json!({SPREAD: ""});
    template["tolerations"] = json!([{"key": SPREAD, "operator": "Exists"}]);
    let metadata = json!({"name": "spread"});
    namespace
        .apply(&json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}))
        .await;
    let labelled = ListParams::default().labels("app.kubernetes.io/name=tolerarch");
    let mut nodes = until("both replicas have a node", async || {
        let pods = namespace.pods().list(&labelled).await.ok()?.items;
        let nodes: Vec<String> = pods
            .iter()
            .filter_map(|pod| pod.node().map(str::to_owned))
            .collect();
        (nodes.len() == 2).then_some(nodes)
    })
    .await;
    nodes.sort_unstable();
    assert_eq!(nodes, ["spread-a", "spread-b"]);

    namespace
        .api::<Deployment>()
        .delete("spread", &DeleteParams::default())
        .await
        .unwrap();
    for node in nodes {
        Api::<Node>::all(cluster.client.clone())
            .delete(&node, &DeleteParams::default())
            .await
            .unwrap();
    }
}

/// The expected renderings of the chart: `default.yaml`, and what each value file in the chart's `ci` changes.
pub(crate) async fn api_server_accepts_the_chart_with_every_value_file(cluster: &Cluster) {
    let local = cluster.local();
    local.define_cert_manager().await;
    // The namespace of the release, and those whose pull secrets are read.
    for namespace in ["platform", "shop", "team-a"] {
        local.kubectl(&["create", "namespace", namespace]).await;
    }
    // The chart's test is a Pod, which needs its service account even in a dry run.
    local
        .kubectl(&[
            "create",
            "serviceaccount",
            "arm-tolerarch-test",
            "--namespace=platform",
        ])
        .await;
    let renderings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/testdata/chart");
    let mut files = Vec::new();
    for file in std::fs::read_dir(&renderings).unwrap() {
        let file = file.unwrap().path();
        // The kinds of the Prometheus operator are not defined here; the tests of the manifests decode them strictly.
        if file.ends_with("monitors.yaml") || file.ends_with("prometheus-rule.yaml") {
            continue;
        }
        files.push(file.display().to_string());
    }
    assert!(files.len() > 10, "{files:?}");
    let mut apply = vec![
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
    ];
    for file in &files {
        apply.extend(["-f", file]);
    }
    local.kubectl(&apply).await;
    // The overlays of the kustomization, in the namespace where it is installed. The webhook configuration gets another
    // name: the installed one has a URL instead of the Service, and the two cannot be merged.
    for overlay in ["cert-manager", "tls-secret", "pull-secrets"] {
        let folder = renderings.join("..").join(overlay).display().to_string();
        let rendered = local.kubectl(&["kustomize", &folder]).await;
        assert!(rendered.contains("name: zz-tolerarch\n"), "{overlay}");
        let file = local.directory().join(format!("{overlay}.yaml"));
        std::fs::write(&file, rendered.replace("zz-tolerarch", "zz-rendered")).unwrap();
        let file = file.display().to_string();
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            &file,
        ];
        local.kubectl(&apply).await;
    }
    for namespace in ["platform", "shop", "team-a"] {
        local
            .kubectl(&["delete", "namespace", namespace, "--wait=false"])
            .await;
    }
}
