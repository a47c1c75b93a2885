//! Other webhooks beside tolerarch.

use k8s_openapi::api::core::v1::Pod;
use scenarios::{Cluster, Namespace, PodExt, Reaction, Stub, pod};
use serde_json::{Value, json};

pub(crate) async fn a_sidecar_for_one_architecture_takes_the_toleration_back(cluster: &Cluster) {
    let pod = with_sidecar(cluster, "amd64").await;
    assert!(!pod.tolerates_pool() && pod.pools().is_none(), "{pod:?}");
}

pub(crate) async fn a_multi_arch_sidecar_leaves_it(cluster: &Cluster) {
    let pod = with_sidecar(cluster, "sidecar").await;
    assert!(pod.tolerates_pool(), "{pod:?}");
    assert_eq!(pod.pools(), Some("multi-arch"));
}

pub(crate) async fn tolerations_of_another_webhook_stay(cluster: &Cluster) {
    for name in ["aa-before", "zzz-after"] {
        let other = Stub::start(&cluster.local().pki, |pod| {
            let own = json!({"key": "example.com/other", "operator": "Exists"});
            match pod.pointer("/spec/tolerations").and_then(Value::as_array) {
                Some(list) if list.contains(&own) => Reaction::Patch(json!([])),
                Some(_) => Reaction::Patch(
                    json!([{"op": "add", "path": "/spec/tolerations/-", "value": own}]),
                ),
                None => Reaction::Patch(
                    json!([{"op": "add", "path": "/spec/tolerations", "value": [own]}]),
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

/// A multi-arch Pod into which another webhook has put a sidecar after tolerarch saw it.
async fn with_sidecar(cluster: &Cluster, tag: &str) -> Pod {
    let injector = injector(cluster, tag).await;
    let namespace = cluster.namespace("sidecar").await;
    cluster
        .intercept(&namespace, "zzz-injector", &injector.url)
        .await;
    let injected = |pod: &Pod| pod.spec.as_ref().unwrap().containers.len() == 2;
    created_when(&namespace, &pod(&[&cluster.images.tag("multi")]), injected).await
}

/// A webhook that gives Pods of one container a sidecar with this image.
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

/// A Pod as it is stored, once the API server has taken up the other webhook.
async fn created_when(namespace: &Namespace, pod: &Value, seen: impl Fn(&Pod) -> bool) -> Pod {
    scenarios::until("the other webhook is called", async || {
        namespace.dry_run(pod).await.ok().filter(&seen).map(drop)
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
