//! A measurement that takes minutes. Run it by `cargo test -p scenarios -- --ignored at_scale`.

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

/// Pods that have no node because their registry failed.
const PODS: usize = 10_000;
/// Concurrent requests that create the Pods.
const AT_ONCE: usize = 32;
/// The maximum duration of the repairs. The actual one is printed; `docs/sizing.md` has a measurement.
const REPAIRED: Duration = Duration::from_secs(600);
/// How many lists of another client are timed before the repairs.
const LISTS_BEFORE: usize = 300;
/// The interval between these lists.
const LIST_INTERVAL: Duration = Duration::from_millis(50);

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
    pods.for_each_concurrent(AT_ONCE, |index| {
        create_unschedulable(&namespace, index, &image)
    })
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
    for index in 0..20 {
        create_unschedulable(&bystander, index, &image).await;
    }
    let before = p99_of_lists(&bystander, async |lists| lists == LISTS_BEFORE).await;

    repo.fault(None);
    let back = Instant::now();
    let repaired = r#"tolerarch_controller_repairs_total{result="repaired"}"#;
    let meanwhile = p99_of_lists(&bystander, async |_| {
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

/// Creates a Pod whose status says that the scheduler found no node.
async fn create_unschedulable(namespace: &Namespace, index: usize, image: &str) {
    let mut pod = pod(&[image]);
    pod["metadata"] = json!({"name": format!("web-{index}"), "labels": {"app": "web"}});
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

/// Lists the Pods of a namespace repeatedly until `is_over`, which is called with the number of lists. Returns their p99.
async fn p99_of_lists(bystander: &Namespace, is_over: impl AsyncFn(usize) -> bool) -> Duration {
    let mut times = Vec::new();
    let mut ticks = interval(LIST_INTERVAL);
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
