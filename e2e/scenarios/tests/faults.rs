//! tolerarch is broken, and Pods do not notice.

use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, Namespace, PodExt, Reaction, Stub, pod};
use serde_json::{Value, json};
use testregistry::Pki;

pub(crate) async fn a_webhook_that_was_killed_holds_up_no_pod(cluster: &Cluster) {
    let mut tolerarch = cluster.local().tolerarch(json!({})).await;
    let namespace = cluster.namespace_with("killed", &tolerarch.url).await;
    cluster.until_called(&namespace).await;
    tolerarch.process.kill().await;
    is_created_unchanged(cluster, &namespace).await;

    tolerarch.start_again().await;
    cluster.until_called(&namespace).await;
}

/// How exactly an API server keeps to that is its own matter; that the shipped one is short, the check of the manifests says.
pub(crate) async fn a_webhook_that_hangs_holds_up_pods_until_its_timeout_at_most(
    cluster: &Cluster,
) {
    let stub = Stub::start(&cluster.local().pki, |_| Reaction::Hang).await;
    let briefly = |webhook: &mut Value| webhook["timeoutSeconds"] = 2.into();
    let namespace = cluster
        .namespace_with_changed("hangs", &stub.url, briefly)
        .await;
    cluster.until_called_without_effect(&namespace).await;
    is_created_unchanged(cluster, &namespace).await;
}

pub(crate) async fn a_webhook_with_a_wrong_certificate_holds_up_no_pod(cluster: &Cluster) {
    let stub = Stub::start(&Pki::new(), |_| Reaction::Status(500)).await;
    let namespace = cluster.namespace_with("certificate", &stub.url).await;
    cluster.until_called_without_effect(&namespace).await;
    is_created_unchanged(cluster, &namespace).await;
}

pub(crate) async fn a_webhook_that_answers_rubbish_holds_up_no_pod(cluster: &Cluster) {
    let bytes = |text: &'static str| move || Reaction::Bytes(text.into());
    let rubbish: [Box<dyn Fn() -> Reaction + Send + Sync>; 6] = [
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
    for react in rubbish {
        let stub = Stub::start(&cluster.local().pki, move |_| react()).await;
        let namespace = cluster.namespace_with("rubbish", &stub.url).await;
        cluster.until_called_without_effect(&namespace).await;
        is_created_unchanged(cluster, &namespace).await;
    }
}

pub(crate) async fn a_white_list_of_tolerations_without_ours_rejects_the_pod_unless_it_is_opted_out(
    cluster: &Cluster,
) {
    let namespace = cluster.namespace("white-list").await;
    let listed = json!([{"key": "example.com/other", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]);
    let annotations =
        json!({"scheduler.alpha.kubernetes.io/tolerationsWhitelist": listed.to_string()});
    annotate(cluster, &namespace, annotations).await;
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    // It is the documented exception to "never rejected": the list is the administrator's word.
    scenarios::until("the white list is taken up", async || {
        let error = namespace.dry_run(&pod).await.err()?;
        error.to_string().contains("whitelist").then_some(())
    })
    .await;
    pod["metadata"]["labels"]["tolerarch.io/mode"] = "off".into();
    assert!(!namespace.pod(&pod).await.tolerates_pool());

    // With ours in the list all is well.
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

/// A Pod is stored as it is, as the API server goes on without the webhook.
async fn is_created_unchanged(cluster: &Cluster, namespace: &Namespace) {
    let failed_before = cluster.failed_open_in(namespace).await;
    let pod = namespace.pod(&pod(&[&cluster.images.tag("multi")])).await;
    assert!(!pod.tolerates_pool() && pod.pools().is_none(), "{pod:?}");
    assert!(cluster.failed_open_in(namespace).await > failed_before);
}
