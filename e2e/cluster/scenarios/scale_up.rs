//! How much longer it takes until a Deployment is bound.

use std::time::Duration;

use e2e::{Cluster, Namespace, deployment, pod};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

const PODS: usize = 300;
const ROUNDS: usize = 4;
/// On a machine of its own it is 1.05 or less; a busy one measures itself, too.
const AT_MOST: f64 = 1.5;

pub(crate) async fn a_warm_deployment_is_bound_about_as_fast_as_without_webhook(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(json!({"log": {"level": "warn"}})).await;
    let with = cluster.namespace_with("with", &tolerarch.url).await;
    cluster.until_called(&with).await;
    let without = cluster.namespace_opted_out("without").await;
    for namespace in [&with, &without] {
        let pod = pod(&[&cluster.images.tag("multi")]);
        namespace.apply(&deployment("web", 0, &pod)).await;
    }
    // The first round is for warming up.
    let (mut with_times, mut without_times) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (first, second) = (bound_after(&without).await, bound_after(&with).await);
        if round > 0 {
            without_times.push(first);
            with_times.push(second);
        }
    }
    let (with, without) = (median(with_times), median(without_times));
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!("scale-up: {PODS} Pods bound after {without:?} without, {with:?} with tolerarch: {ratio:.2}");
    assert!(ratio < AT_MOST, "{ratio}");
}

/// Scales from zero up, and down again; how long it took until all Pods were bound.
async fn bound_after(namespace: &Namespace) -> Duration {
    let start = Instant::now();
    scale(namespace, PODS).await;
    namespace.until_bound("web", PODS).await;
    let took = start.elapsed();
    scale(namespace, 0).await;
    namespace.until_pods("web", 0, |_| true).await;
    took
}

async fn scale(namespace: &Namespace, replicas: usize) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    namespace.api::<Deployment>().patch("web", &PatchParams::default(), &patch).await.unwrap();
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
