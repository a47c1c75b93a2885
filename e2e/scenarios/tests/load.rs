//! Pods are created all the time while everything around tolerarch changes.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use scenarios::{Cluster, Forwarder, Namespace, PodExt, Tolerarch, pod};
use serde_json::{Value, json};
use testregistry::{Builder, Fault, Registry};
use tokio::time::{MissedTickBehavior, interval};

use crate::creations::{Creation, Times, failures, tolerated};

/// How long a Pod may wait for tolerarch.
const BUDGET: Duration = Duration::from_secs(1);
/// How many times as long nearly all of them may take as that and the slowest Pod that tolerarch did not see.
const AT_MOST: u32 = 5;
/// Pods in a second.
const RATE: u32 = 50;
/// Pods in a second that tolerarch does not see: they show how slow the machine itself is.
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
    let (creations, unseen, _parts) = tokio::join!(
        create_all_the_time(&namespace, RATE, &images),
        create_all_the_time(&opted_out, UNSEEN_RATE, &images),
        make_trouble(cluster, &service, replicas, registry),
    );
    judge(&creations, &unseen);
    images.until_tolerated(&namespace, "end").await;
}

/// One image that is known, and a new one every second.
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
        scenarios::until("the Pod is tolerated", async || {
            namespace
                .dry_run(&self.pod(tag))
                .await
                .unwrap()
                .tolerates_pool()
                .then_some(())
        })
        .await;
    }
}

/// Creates Pods at a rate, however long each takes.
async fn create_all_the_time(namespace: &Namespace, rate: u32, images: &Images) -> Vec<Creation> {
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
    join_all(creations)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

/// What happens to tolerarch and its registry meanwhile; gives what runs in the end.
async fn make_trouble(
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
    // The Service does not learn of it.
    replicas[0].process.kill().await;
    steps.tick().await;
    replicas[0].start_again().await;
    steps.tick().await;
    for replica in &replicas {
        replica.renew_certificate(pki);
    }
    (replicas, registry)
}

/// Restarts one replica as a rollout does: it is taken out of the Service, ends in its own time, and comes back.
async fn roll(service: &Forwarder, replicas: &mut [Tolerarch; 2], turn: usize) {
    let ports = replicas.each_ref().map(|replica| replica.port);
    service.only(&[ports[1 - turn]]);
    replicas[turn].process.signal("TERM").await;
    replicas[turn].process.ended().await;
    replicas[turn].start_again().await;
    service.only(&ports);
}

fn judge(creations: &[Creation], unseen: &[Creation]) {
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
        times.percentile(99) < AT_MOST * (BUDGET + unseen.percentile(100)),
        "{times}"
    );
    // Otherwise tolerarch was away all the time.
    assert!(tolerated > creations.len() / 5, "{tolerated}");
}
