//! What takes minutes and measures: run by its name, `cargo test -p scenarios -- --ignored at_scale`.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use scenarios::{Cluster, Namespace, PodExt, pod, until};
use serde_json::json;
use tokio::time::{Instant, interval, timeout};

use crate::certificates::RELEASE;
use crate::controller::{Outage, give_rights};

/// Pods that an outage of their registry has left without a node.
const PODS: usize = 10_000;
/// Requests that are made at a time to bring them about.
const AT_ONCE: usize = 32;
/// How long that may take at most; it is printed, and `docs/sizing.md` says what it was.
const REPAIRED: Duration = Duration::from_secs(600);
/// Another client's lists that are timed before, and how often there is one.
const BEFORE: usize = 300;
const EVERY: Duration = Duration::from_millis(50);

pub(crate) async fn ten_thousand_pods_are_repaired(cluster: &Cluster) {
    let local = cluster.local();
    let Outage {
        registry,
        webhook: _webhook,
        namespace,
    } = Outage::begin(cluster, "scale").await;
    let repo = registry.repo("app");
    let image = repo.reference("v1");
    let pods = stream::iter(0..PODS);
    pods.for_each_concurrent(AT_ONCE, |at| wait_for_a_node(&namespace, at, &image))
        .await;

    let account = give_rights(cluster, &namespace).await;
    let settings = json!({"controller": {
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
        "lease": format!("{RELEASE}-controller"),
    }});
    let controller = local
        .controller_as(&account, &registry.address(), settings)
        .await;
    until("the controller leads", async || {
        controller
            .process
            .log()
            .contains(r#""message":"leading""#)
            .then_some(())
    })
    .await;
    let bystander = cluster.namespace_opted_out("bystander").await;
    for at in 0..20 {
        wait_for_a_node(&bystander, at, &image).await;
    }
    let before = p99(&bystander, async |lists| lists == BEFORE).await;

    repo.fault(None);
    let back = Instant::now();
    let repaired = r#"tolerarch_controller_repairs_total{result="repaired"}"#;
    let meanwhile = p99(&bystander, async |_| {
        controller.metric(repaired).await >= PODS
    })
    .await;
    let took = back.elapsed();
    let peak = controller.process.peak_memory();
    println!(
        "at scale: {PODS} Pods repaired in {took:.1?}, the controller had {peak} MiB; p99 of another client's lists \
         {before:.1?} before, {meanwhile:.1?} meanwhile"
    );
    let pods = namespace.pods().list(&ListParams::default()).await.unwrap();
    assert!(pods.items.iter().all(PodExt::tolerates_pool));
}

/// Creates a Pod for which a scheduler has found no node.
async fn wait_for_a_node(namespace: &Namespace, at: usize, image: &str) {
    let mut pod = pod(&[image]);
    pod["metadata"] = json!({"name": format!("web-{at}"), "labels": {"app": "web"}});
    pod["spec"]["schedulerName"] = "none".into();
    let created: Pod = namespace.pod(&pod).await;
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    namespace
        .pods()
        .patch_status(&created.name_any(), &PatchParams::default(), &status)
        .await
        .unwrap();
}

/// The p99 of another client's lists, one after the other until this is so of their number.
async fn p99(bystander: &Namespace, is_over: impl AsyncFn(usize) -> bool) -> Duration {
    let mut times = Vec::new();
    let mut ticks = interval(EVERY);
    let lists = async {
        while !is_over(times.len()).await {
            ticks.tick().await;
            let begun = Instant::now();
            bystander.pods().list(&ListParams::default()).await.unwrap();
            times.push(begun.elapsed());
        }
    };
    timeout(REPAIRED, lists).await.expect("the lists are over");
    times.sort_unstable();
    times[(times.len() - 1) * 99 / 100]
}
