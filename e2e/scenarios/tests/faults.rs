//! Pods are created although tolerarch is broken.

use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, Namespace, PodExt, Reaction, Stub, pod};
use serde_json::{Value, json};
use testregistry::Pki;

pub(crate) async fn pods_are_created_while_the_webhook_is_down(cluster: &Cluster) {
    let mut tolerarch = cluster.local().tolerarch(json!({})).await;
    let namespace = cluster.namespace_with("killed", &tolerarch.url).await;
    cluster.until_called(&namespace).await;
    tolerarch.process.kill().await;
    assert_created_unchanged(cluster, &namespace).await;

    tolerarch.start_again().await;
    cluster.until_called(&namespace).await;
}

/// Does not measure how exactly the API server observes the timeout. The tests of the manifests check that the shipped one
/// is short.
pub(crate) async fn hanging_webhook_delays_pods_at_most_by_its_timeout(cluster: &Cluster) {
    let stub = Stub::start(&cluster.local().pki, |_| Reaction::Hang).await;
    let briefly = |webhook: &mut Value| webhook["timeoutSeconds"] = 2.into();
    let namespace = cluster
        .namespace_with_changed("hangs", &stub.url, briefly)
        .await;
    cluster.until_called_without_effect(&namespace).await;
    assert_created_unchanged(cluster, &namespace).await;
}

pub(crate) async fn pods_are_created_if_the_webhook_certificate_is_wrong(cluster: &Cluster) {
    let stub = Stub::start(&Pki::new(), |_| Reaction::Status(500)).await;
    let namespace = cluster.namespace_with("certificate", &stub.url).await;
    cluster.until_called_without_effect(&namespace).await;
    assert_created_unchanged(cluster, &namespace).await;
}

pub(crate) async fn pods_are_created_if_the_webhook_answers_garbage(cluster: &Cluster) {
    let bytes = |text: &'static str| move || Reaction::Bytes(text.into());
    let garbage: [Box<dyn Fn() -> Reaction + Send + Sync>; 6] = [
        Box::new(bytes("")),
        Box::new(bytes("no JSON")),
        Box::new(bytes(
            r#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}"#,
        )),
        Box::new(bytes(
            r#"{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "other"}}"#,
        )),
        Box::new(|| Reaction::Status(500)),
        Box::new(|| Reaction::Close),
    ];
    for react in garbage {
        let stub = Stub::start(&cluster.local().pki, move |_| react()).await;
        let namespace = cluster.namespace_with("garbage", &stub.url).await;
        cluster.until_called_without_effect(&namespace).await;
        assert_created_unchanged(cluster, &namespace).await;
    }
}

pub(crate) async fn toleration_whitelist_without_the_pool_rejects_pods(cluster: &Cluster) {
    let namespace = cluster.namespace("whitelist").await;
    let listed = json!([{"key": "example.com/other", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]);
    let annotations =
        json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": listed.to_string()});
    annotate(cluster, &namespace, annotations).await;
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    // The documented exception to "never rejected": the administrator's list decides.
    scenarios::until("the API server reads the whitelist", async || {
        let error = namespace.dry_run(&pod).await.err()?;
        error.to_string().contains("whitelist").then_some(())
    })
    .await;
    pod["metadata"]["labels"]["tolerarch.io/mode"] = "off".into();
    assert!(!namespace.pod(&pod).await.tolerates_pool());

    // With the pool's toleration in the list, Pods are created.
    let mut listed = listed;
    listed
        .as_array_mut()
        .unwrap()
        .push(json!({"key": scenarios::POOL, "operator": "Exists", "effect": "NoSchedule"}));
    let annotations =
        json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": listed.to_string()});
    annotate(cluster, &namespace, annotations).await;
    cluster.until_called(&namespace).await;
}

async fn annotate(cluster: &Cluster, namespace: &Namespace, annotations: Value) {
    let namespaces = Api::<NamespaceObject>::all(cluster.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    namespaces
        .patch(&namespace.name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Asserts that a Pod is stored unchanged, because the API server continued without the webhook.
async fn assert_created_unchanged(cluster: &Cluster, namespace: &Namespace) {
    let failed_before = cluster.failed_open_in(namespace).await;
    let pod = namespace.pod(&pod(&[&cluster.images.tag("multi")])).await;
    assert!(!pod.tolerates_pool() && pod.pools().is_none(), "{pod:?}");
    assert!(cluster.failed_open_in(namespace).await > failed_before);
}
