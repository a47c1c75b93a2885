//! What one tenant can do with Pods that the API server takes: nothing to the Pods of others.

use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, PodExt, pod, until};
use serde_json::{Value, json};
use testregistry::Registry;

use crate::certificates::RELEASE;
use crate::controller::give_rights;

/// Levels of managed fields, more than a reader of JSON usually goes down.
const LEVELS: usize = 200;
/// Pods with as many entries as fit into etcd's limit.
const LARGE: usize = 6;
const ENTRIES: usize = 200_000;
/// MiB that the controller may take, also as a debug build.
const MEMORY: usize = 128;

pub(crate) async fn large_and_deep_pods_do_not_affect_other_pods(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let repo = registry.repo("app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let address = registry.address();
    let webhook = local.tolerarch_for(&address, json!({})).await;
    let namespace = cluster.namespace_with("hostile", &webhook.url).await;
    cluster.until_called_without_effect(&namespace).await;
    namespace.offer(0, 0).await;
    let named = |name: &str| {
        let mut pod = namespace.takes_a_place(&pod(&[&repo.reference("v1")]));
        pod["metadata"] = json!({"name": name, "labels": {"app": "hostile"}});
        pod
    };
    let create = async |pod: String| {
        let path = format!("/api/v1/namespaces/{}/pods", namespace.name);
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(pod.into_bytes()).unwrap();
        cluster.client.request_text(request).await.unwrap()
    };
    let fields = format!("{}{{}}{}", r#"{"f:a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    let mut deep = named("deep");
    deep["metadata"]["managedFields"] = json!([{
        "manager": "tenant", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": "FIELDS",
    }]);
    let stored = create(deep.to_string().replace(r#""FIELDS""#, &fields)).await;
    assert!(
        stored.contains(&r#"{"f:a":"#.repeat(LEVELS)),
        "the API server keeps them"
    );
    for at in 0..LARGE {
        let mut large = named(&format!("large-{at}"));
        large["spec"]["containers"][0]["env"] = "ENTRIES".into();
        let entries = vec![r#"{"name":"a"}"#; ENTRIES].join(",");
        create(
            large
                .to_string()
                .replace(r#""ENTRIES""#, &format!("[{entries}]")),
        )
        .await;
    }
    let mut escaped = named("escaped");
    escaped["spec"]["containers"][0]["args"] = json!(["<".repeat(1_400_000)]);
    create(escaped.to_string()).await;
    // As if it had been there before the webhook was.
    let mut victim = named("victim");
    victim["metadata"]["labels"] = json!({"app": "victim", "tolerarch.io/mode": "off"});
    namespace.pod(&victim).await;
    let on = json!({"metadata": {"labels": {"tolerarch.io/mode": null}}});
    namespace
        .pods()
        .patch("victim", &PatchParams::default(), &Patch::Merge(on))
        .await
        .unwrap();
    namespace
        .until_pods("victim", 1, PodExt::is_unschedulable)
        .await;

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let controller = local.controller_as(&account, &address, settings).await;
    namespace
        .until_pods("victim", 1, PodExt::tolerates_pool)
        .await;
    until("the census has counted", async || {
        let counted = controller
            .metric_if_any(r#"tolerarch_cluster_workloads{support="all"}"#)
            .await?;
        (counted > LARGE).then_some(())
    })
    .await;
    let at_start = controller.process.peak_memory();
    // The same by the watch: each change shows the whole Pod.
    for at in 0..LARGE {
        let label = json!({"metadata": {"labels": {"changed": "true"}}});
        let name = format!("large-{at}");
        namespace
            .pods()
            .patch(&name, &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
    }
    let mut next = named("next");
    next["metadata"]["labels"] = json!({"app": "next", "tolerarch.io/mode": "off"});
    namespace.pod(&next).await;
    let on = json!({"metadata": {"labels": {"tolerarch.io/mode": null}}});
    namespace
        .pods()
        .patch("next", &PatchParams::default(), &Patch::Merge(on))
        .await
        .unwrap();
    namespace
        .until_pods("next", 1, PodExt::tolerates_pool)
        .await;
    let peak = controller.process.peak_memory();
    print!("controller: {at_start} MiB after its start, {peak} MiB after the watch; ");
    assert!(peak < MEMORY, "{peak} MiB");
    assert_eq!(
        controller
            .metric(r#"tolerarch_cluster_unread_objects_total{resource="pods"}"#)
            .await,
        0
    );

    // What the typed client cannot read back.
    let pods = format!("/api/v1/namespaces/{}/pods", namespace.name);
    for name in ["deep", "large-0", "escaped"] {
        let request = http::Request::patch(format!("{pods}/{name}/status"));
        let request = request.header("content-type", "application/merge-patch+json");
        let running = json!({"status": {"phase": "Running"}})
            .to_string()
            .into_bytes();
        cluster
            .client
            .request_text(request.body(running).unwrap())
            .await
            .unwrap();
    }
    let warm = json!({"cache": {"warm": {"fromPods": true}}});
    let warmed = local.tolerarch_as(local.kubeconfig(), warm).await;
    until("the images of running Pods are looked up", async || {
        warmed
            .process
            .log()
            .contains("looked up the images of running Pods")
            .then_some(())
    })
    .await;

    let namespace_only = ["report", "-n", &namespace.name, "-o", "json"];
    let (status, output) = local.run_tolerarch(&namespace_only).await;
    assert_eq!(status, 0, "{output}");
    let report: Value = serde_json::from_str(&output).unwrap();
    let counted: u64 = ["all", "partial", "unknown", "skipped"]
        .iter()
        .filter_map(|support| report["totals"][support]["pods"].as_u64())
        .sum();
    assert_eq!(counted, LARGE as u64 + 4, "{:#}", report["totals"]);
    cluster
        .client
        .request_text(http::Request::delete(pods).body(Vec::new()).unwrap())
        .await
        .unwrap();
}
