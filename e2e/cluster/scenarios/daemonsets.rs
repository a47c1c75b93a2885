//! What DaemonSets get, on the real controller, and that nothing is rolled out that the user did not change.

use e2e::{Cluster, Namespace, PodExt, pod, until};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

fn agent(image: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": pod(&[image])["spec"]},
        },
    })
}

fn is_open(set: &DaemonSet) -> bool {
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|toleration| toleration.key.as_deref() == Some(e2e::POOL))
}

async fn generation(namespace: &Namespace) -> (Option<i64>, bool) {
    let set = namespace.api::<DaemonSet>().get("agent").await.unwrap();
    (set.metadata.generation, is_open(&set))
}

pub(crate) async fn daemon_sets_run_in_the_pool_and_are_not_rolled_out_by_themselves(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(json!({"daemonSets": true})).await;
    let namespace = cluster.namespace_with("daemonsets", &tolerarch.url).await;
    cluster.review_daemon_sets(&namespace, &tolerarch.url).await;
    let (multi, amd64) = (cluster.images.tag("multi"), cluster.images.tag("amd64"));
    until("the webhook is called", async || {
        let set: DaemonSet = serde_json::from_value(agent(&multi, &json!({}))).unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let stored = namespace.api::<DaemonSet>().create(&dry_run, &set).await.ok()?;
        is_open(&stored).then_some(())
    })
    .await;

    namespace.apply(&agent(&multi, &json!({}))).await;
    namespace.until_pods("agent", 2, PodExt::tolerates_pool).await;
    assert_eq!(generation(&namespace).await, (Some(1), true));

    // Who applies this owns the tolerations that came of its first request, and so takes them away.
    namespace.apply(&agent(&multi, &json!({"team": "blue"}))).await;
    assert_eq!(generation(&namespace).await, (Some(1), true), "nothing is rolled out");
    let revisions = namespace.api::<ControllerRevision>().list(&ListParams::default()).await.unwrap();
    assert_eq!(revisions.items.len(), 1);

    let unknown = format!("{multi}-not-pushed-yet");
    namespace.apply(&agent(&unknown, &json!({}))).await;
    assert_eq!(generation(&namespace).await, (Some(2), true), "kept, as the image is not known");

    namespace.apply(&agent(&amd64, &json!({}))).await;
    assert_eq!(generation(&namespace).await, (Some(3), false));
    namespace.until_pods("agent", 1, |pod| namespace.is_on_plain_node(pod)).await;
}
