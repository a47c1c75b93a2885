//! How much longer it takes until a Deployment is bound.

use std::time::Duration;

use e2e::{Cluster, Namespace, deployment, pod};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

const PODS: usize = 300;
const ROUNDS: usize = 5;
/// How many times as long it may take. Two thirds of the difference are what it costs an API server to call any webhook;
/// where other programs want the same few cores that is much. A Pod that waited for a lookup would be more.
const AT_MOST: f64 = 3.0;

pub(crate) async fn a_warm_deployment_is_bound_about_as_fast_as_without_webhook(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(json!({"log": {"level": "warn"}})).await;
    let with = cluster.namespace_with("with", &tolerarch.url).await;
    cluster.until_called(&with).await;
    let without = cluster.namespace_opted_out("without").await;
    for namespace in [&with, &without] {
        let pod = pod(&[&cluster.images.tag("multi")]);
        namespace.apply(&deployment("web", 0, &pod)).await;
    }
    // One round each for warming up.
    bound_after(&without).await;
    bound_after(&with).await;
    // The fastest count: what else the machine does can only add to them.
    let (mut fastest_without, mut fastest_with) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        fastest_without = fastest_without.min(bound_after(&without).await);
        fastest_with = fastest_with.min(bound_after(&with).await);
    }
    let ratio = fastest_with.as_secs_f64() / fastest_without.as_secs_f64();
    println!(
        "scale-up: {PODS} Pods bound after {fastest_without:?} without, {fastest_with:?} with tolerarch: {ratio:.2}"
    );
    assert!(ratio < AT_MOST, "{ratio}");
}

/// Scales from zero up, and down again; how long it took until all Pods were bound.
async fn bound_after(namespace: &Namespace) -> Duration {
    let start = Instant::now();
    scale(namespace, PODS).await;
    namespace.until_bound("web", PODS).await;
    let took = start.elapsed();
    scale(namespace, 0).await;
    namespace.until_gone("web").await;
    took
}

async fn scale(namespace: &Namespace, replicas: usize) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    namespace.api::<Deployment>().patch("web", &PatchParams::default(), &patch).await.unwrap();
}
