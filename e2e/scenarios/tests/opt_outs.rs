//! Pods that tolerarch must not change.

use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use scenarios::{Cluster, Namespace, PodExt, Reaction, Stub, pod, until};
use serde_json::{Value, json};

/// Returns eligible Pods that tolerarch skips for one reason each. All of them can be created by a user.
fn skipped(cluster: &Cluster, namespace: &Namespace) -> Vec<(&'static str, Value)> {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod(&[&cluster.images.tag("multi")]);
        change(&mut pod);
        pod
    };
    vec![
        (
            "label",
            changed(&|pod| pod["metadata"]["labels"]["tolerarch.io/mode"] = "off".into()),
        ),
        (
            "annotation",
            changed(&|pod| pod["metadata"]["annotations"] = json!({"tolerarch.io/mode": "off"})),
        ),
        (
            "node",
            changed(&|pod| pod["spec"]["nodeName"] = namespace.pool_node().into()),
        ),
        (
            "mirror",
            changed(&|pod| {
                pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
                pod["spec"]["nodeName"] = namespace.pool_node().into();
            }),
        ),
        (
            "daemon set",
            changed(&|pod| {
                pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet",
                    "name": "agent", "uid": "6c1ad6a3-6d31-4bd8-a2b5-d3dbdb0f23c5", "controller": true}]);
            }),
        ),
        (
            "windows",
            changed(&|pod| pod["spec"]["os"] = json!({"name": "windows"})),
        ),
    ]
}

pub(crate) async fn skipped_pods_stay_unchanged(cluster: &Cluster) {
    let namespace = cluster.namespace("skipped").await;
    for (what, pod) in skipped(cluster, &namespace) {
        let created = namespace.dry_run(&pod).await.unwrap();
        assert!(is_unchanged(&created), "{what}");
    }
}

pub(crate) async fn daemon_set_pods_stay_unchanged(cluster: &Cluster) {
    let namespace = cluster.namespace("daemons").await;
    let pod = pod(&[&cluster.images.tag("multi")]);
    let selector =
        json!({"matchExpressions": [{"key": "e2e.tolerarch.io/node", "operator": "Exists"}]});
    let mut spec = pod["spec"].clone();
    if Cluster::is_external() {
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [selector]}}});
    }
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec},
            },
        }))
        .await;
    // One Pod on the plain node, none in the pool.
    namespace
        .until_pods("agent", 1, |pod| {
            is_unchanged(pod) && namespace.is_on_plain_node(pod)
        })
        .await;
}

pub(crate) async fn pods_of_opted_out_namespaces_stay_unchanged(cluster: &Cluster) {
    let namespace = cluster.namespace_opted_out("opted-out").await;
    let pod = pod(&[&cluster.images.tag("multi")]);
    assert!(is_unchanged(&namespace.pod(&pod).await));
    assert!(is_unchanged(&dry_run_in_kube_system(cluster, pod).await));
}

pub(crate) async fn api_server_does_not_call_for_opted_out_pods(cluster: &Cluster) {
    let namespace = cluster.namespace("not-called").await;
    let opted_out = cluster.namespace_opted_out("not-called").await;
    let (webhook, _stub) =
        called_as_shipped(cluster, &[&namespace.name, &opted_out.name, "kube-system"]).await;
    let calls = async || cluster.calls(&webhook).await;
    let multi = pod(&[&cluster.images.tag("multi")]);
    until("the webhook is called", async || {
        namespace.dry_run(&multi).await.unwrap();
        (calls().await > 0).then_some(())
    })
    .await;
    let before = calls().await;
    // Without conditions, only the label is excluded.
    let mut skipped = skipped(cluster, &namespace);
    skipped.retain(|(what, _)| *what == "label");
    for (what, pod) in skipped {
        namespace.dry_run(&pod).await.unwrap();
        assert_eq!(calls().await, before, "{what}");
    }
    opted_out.pod(&pod(&["example.com/app"])).await;
    assert_eq!(calls().await, before, "namespace");
    dry_run_in_kube_system(cluster, pod(&["example.com/app"])).await;
    assert_eq!(calls().await, before, "kube-system");
    // A call is counted.
    namespace.pod(&multi).await;
    assert!(calls().await > before);
}

/// Adds a webhook with the shipped selectors for these namespaces. Returns its name, by which its calls are counted.
async fn called_as_shipped(cluster: &Cluster, namespaces: &[&str]) -> (String, Stub) {
    const COUNTED: &str = "e2e.tolerarch.io/counted";
    let stub = Stub::start(&cluster.local().pki, |_| Reaction::Patch(json!([]))).await;
    let api = Api::<NamespaceObject>::all(cluster.client.clone());
    for namespace in namespaces {
        let label = Patch::Merge(json!({"metadata": {"labels": {COUNTED: "true"}}}));
        api.patch(namespace, &PatchParams::default(), &label)
            .await
            .unwrap();
    }
    let mut webhook = cluster.shipped_webhook().await;
    let name = "counted.tolerarch.io".to_owned();
    webhook["name"] = name.clone().into();
    webhook["namespaceSelector"]["matchLabels"][COUNTED] = "true".into();
    cluster
        .add_configuration("zz-counted", webhook, &stub.url)
        .await;
    (name, stub)
}

pub(crate) async fn match_conditions_prevent_calls_for_all_skipped_pods(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(json!({})).await;
    let conditions = cluster.local().conditions().await;
    let change = |webhook: &mut Value| webhook["matchConditions"] = conditions;
    let namespace = cluster
        .namespace_with_changed("conditions", &tolerarch.url, change)
        .await;
    cluster.until_called(&namespace).await;
    let before = cluster.calls_of(&namespace).await;
    for (what, pod) in skipped(cluster, &namespace) {
        namespace.dry_run(&pod).await.unwrap();
        assert_eq!(cluster.calls_of(&namespace).await, before, "{what}");
    }
    namespace.pod(&pod(&[&cluster.images.tag("multi")])).await;
    assert!(cluster.calls_of(&namespace).await > before);
}

async fn dry_run_in_kube_system(cluster: &Cluster, mut pod: Value) -> Pod {
    // The namespace may not have its service account yet.
    pod["spec"]["automountServiceAccountToken"] = false.into();
    let system = Api::<Pod>::namespaced(cluster.client.clone(), "kube-system");
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    system
        .create(&dry_run, &serde_json::from_value(pod).unwrap())
        .await
        .unwrap()
}

fn is_unchanged(pod: &Pod) -> bool {
    !pod.tolerates_pool() && pod.pools().is_none()
}
