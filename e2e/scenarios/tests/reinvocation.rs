//! Other webhooks beside tolerarch.

use k8s_openapi::api::core::v1::Pod;
use scenarios::{Cluster, Namespace, PodExt, Reaction, Stub, pod};
use serde_json::{Value, json};

pub(crate) async fn single_arch_sidecar_removes_the_toleration(cluster: &Cluster) {
    let pod = with_sidecar(cluster, "amd64").await;
    assert!(!pod.tolerates_pool() && pod.pools().is_none(), "{pod:?}");
}

pub(crate) async fn multi_arch_sidecar_keeps_the_toleration(cluster: &Cluster) {
    let pod = with_sidecar(cluster, "sidecar").await;
    assert!(pod.tolerates_pool(), "{pod:?}");
    assert_eq!(pod.pools(), Some("multi-arch"));
}

pub(crate) async fn tolerations_of_another_webhook_stay(cluster: &Cluster) {
    for name in ["aa-before", "zzz-after"] {
        let other = Stub::start(&cluster.local().pki, |pod| {
            let toleration = json!({"key": "example.com/other", "operator": "Exists"});
            match pod.pointer("/spec/tolerations").and_then(Value::as_array) {
                Some(list) if list.contains(&toleration) => Reaction::Patch(json!([])),
                Some(_) => Reaction::Patch(
                    json!([{"op": "add", "path": "/spec/tolerations/-", "value": toleration}]),
                ),
                None => Reaction::Patch(
                    json!([{"op": "add", "path": "/spec/tolerations", "value": [toleration]}]),
                ),
            }
        })
        .await;
        let namespace = cluster.namespace("other-tolerations").await;
        cluster.intercept(&namespace, name, &other.url).await;
        let pod = created_when(&namespace, &pod(&[&cluster.images.tag("multi")]), |pod| {
            has(pod, "example.com/other")
        })
        .await;
        assert!(pod.tolerates_pool(), "{name}: {pod:?}");
    }
}

/// Creates a multi-arch Pod to which another webhook adds a sidecar after tolerarch's decision.
async fn with_sidecar(cluster: &Cluster, tag: &str) -> Pod {
    let injector = injector(cluster, tag).await;
    let namespace = cluster.namespace("sidecar").await;
    cluster
        .intercept(&namespace, "zzz-injector", &injector.url)
        .await;
    let injected = |pod: &Pod| pod.spec.as_ref().unwrap().containers.len() == 2;
    created_when(&namespace, &pod(&[&cluster.images.tag("multi")]), injected).await
}

/// Starts a webhook that adds a sidecar with this image to Pods of one container.
pub(crate) async fn injector(cluster: &Cluster, tag: &str) -> Stub {
    let image = cluster.images.tag(tag);
    Stub::start(&cluster.local().pki, move |pod| {
        let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
        let sidecar = json!({"name": "sidecar", "image": image});
        match containers {
            1 => Reaction::Patch(
                json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]),
            ),
            _ => Reaction::Patch(json!([])),
        }
    })
    .await
}

/// Creates a Pod once a dry run shows that the other webhook is called. Returns the stored Pod.
async fn created_when(namespace: &Namespace, pod: &Value, is_called: impl Fn(&Pod) -> bool) -> Pod {
    scenarios::until("the other webhook is called", async || {
        let created = namespace.dry_run(pod).await.ok()?;
        is_called(&created).then_some(())
    })
    .await;
    namespace.pod(pod).await
}

fn has(pod: &Pod, key: &str) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    tolerations
        .into_iter()
        .flatten()
        .any(|toleration| toleration.key.as_deref() == Some(key))
}
