//! Pods are created continuously while everything around tolerarch changes.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use scenarios::{Cluster, Forwarder, Namespace, PodExt, Tolerarch, pod};
use serde_json::{Value, json};
use testregistry::{Builder, Fault, Registry};
use tokio::time::{MissedTickBehavior, interval};

use crate::creations::{Creation, Times, failures, tolerated};

/// How long a Pod waits for a lookup.
const BUDGET: Duration = Duration::from_secs(1);
/// The 99th percentile may be this many times the sum of [`BUDGET`] and the slowest Pod without tolerarch.
const MAXIMUM_RATIO: u32 = 5;
/// Pods a second.
const RATE: u32 = 50;
/// Pods a second for which tolerarch is not called. They show how slow the machine is.
const UNSEEN_RATE: u32 = 10;
const SECONDS: u32 = 60;

pub(crate) async fn no_creation_fails_or_waits_while_everything_restarts(cluster: &Cluster) {
    let registry = start_registry(Registry::builder().pki(cluster.local().pki.clone())).await;
    let settings = json!({"lookup": {"budget": format!("{}ms", BUDGET.as_millis())}, "server": {"drain": "1s"}});
    let replicas = [
        cluster
            .local()
            .tolerarch_for(&registry.address(), settings.clone())
            .await,
        cluster
            .local()
            .tolerarch_for(&registry.address(), settings)
            .await,
    ];
    let service = Forwarder::start(&replicas.each_ref().map(|replica| replica.port)).await;
    let namespace = cluster.namespace_with("load", &service.url).await;
    let images = Images {
        registry: registry.socket_addr(),
    };
    images.until_tolerated(&namespace, "start").await;

    let opted_out = cluster.namespace_opted_out("unseen").await;
    let (creations, unseen, _running) = tokio::join!(
        create_continuously(&namespace, RATE, &images),
        create_continuously(&opted_out, UNSEEN_RATE, &images),
        disrupt(cluster, &service, replicas, registry),
    );
    assert_load_was_handled(&creations, &unseen);
    images.until_tolerated(&namespace, "end").await;
}

/// Starts a registry with one image that is in the cache, and a new one for every second.
async fn start_registry(builder: Builder) -> Registry {
    let registry = builder.start().await;
    let seconds = (0..SECONDS).map(|second| second.to_string());
    for tag in seconds.chain(["start".into(), "end".into()]) {
        registry
            .repo("app")
            .index(Some(&tag), ["linux/amd64", "linux/arm64"]);
    }
    registry
}

struct Images {
    registry: SocketAddr,
}

impl Images {
    fn pod(&self, tag: &str) -> Value {
        pod(&[&format!("{}/app:{tag}", self.registry)])
    }

    async fn until_tolerated(&self, namespace: &Namespace, tag: &str) {
        scenarios::until("the Pod gets the toleration", async || {
            let created = namespace.dry_run(&self.pod(tag)).await.unwrap();
            created.tolerates_pool().then_some(())
        })
        .await;
    }
}

/// Creates Pods at a rate, without waiting for each.
async fn create_continuously(namespace: &Namespace, rate: u32, images: &Images) -> Vec<Creation> {
    let mut times = interval(Duration::from_secs(1) / rate);
    times.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut creations = Vec::new();
    for number in 0..rate * SECONDS {
        times.tick().await;
        let tag = if number % 2 == 0 {
            "start".to_owned()
        } else {
            (number / rate).to_string()
        };
        creations.push(Creation::begin(namespace, images.pod(&tag)));
    }
    let results = join_all(creations).await;
    results.into_iter().map(Result::unwrap).collect()
}

/// Disrupts tolerarch and its registry, one step after the other. Returns what runs at the end.
async fn disrupt(
    cluster: &Cluster,
    service: &Forwarder,
    mut replicas: [Tolerarch; 2],
    registry: Registry,
) -> ([Tolerarch; 2], Registry) {
    let pki = &cluster.local().pki;
    let mut steps = interval(Duration::from_secs(u64::from(SECONDS)) / 9);
    steps.tick().await;
    steps.tick().await;
    registry.repo("app").fault(Some(Fault::hang()));
    steps.tick().await;
    let address = registry.socket_addr();
    registry.stop().await;
    steps.tick().await;
    let registry = start_registry(Registry::builder().pki(pki.clone()).listen(address)).await;
    steps.tick().await;
    for turn in 0..2 {
        roll(service, &mut replicas, turn).await;
    }
    steps.tick().await;
    // The Service is not updated.
    replicas[0].process.kill().await;
    steps.tick().await;
    replicas[0].start_again().await;
    steps.tick().await;
    for replica in &replicas {
        replica.renew_certificate(pki);
    }
    (replicas, registry)
}

/// Restarts one replica as a rollout does: removes it from the Service, ends it, and adds it again.
async fn roll(service: &Forwarder, replicas: &mut [Tolerarch; 2], turn: usize) {
    let ports = replicas.each_ref().map(|replica| replica.port);
    service.only(&[ports[1 - turn]]);
    replicas[turn].process.signal("TERM").await;
    replicas[turn].process.ended().await;
    replicas[turn].start_again().await;
    service.only(&ports);
}

fn assert_load_was_handled(creations: &[Creation], unseen: &[Creation]) {
    let failures = [failures(creations), failures(unseen)].concat();
    let tolerated = tolerated(creations);
    let times = Times::of(creations);
    let unseen = Times::of(unseen);
    println!(
        "load: {} creations, {} failures, {tolerated} tolerated, {times}; without tolerarch {unseen}",
        creations.len(),
        failures.len(),
    );
    assert!(failures.is_empty(), "{failures:?}");
    assert!(
        times.percentile(99) < MAXIMUM_RATIO * (BUDGET + unseen.percentile(100)),
        "{times}"
    );
    // tolerarch was called.
    assert!(tolerated > creations.len() / 5, "{tolerated}");
}
