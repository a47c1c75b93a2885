//! Pods are created all the time while everything around tolerarch changes.

use std::time::Duration;

use e2e::{Cluster, Forwarder, PodExt, Tolerarch, pod};
use futures_util::future::join_all;
use serde_json::{Value, json};
use testregistry::{Fault, Registry};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How long a Pod may wait for tolerarch.
const BUDGET: Duration = Duration::from_secs(1);
/// What everything else may take, on a busy machine.
const SLACK: Duration = Duration::from_millis(500);
const RATE: u32 = 50;
const SECONDS: u32 = 60;

/// What became of one creation.
struct Creation {
    took: Duration,
    result: Result<bool, String>,
}

pub(crate) async fn no_creation_fails_or_waits_while_everything_is_restarted(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let repo = registry.repo("app");
    for tag in 0..RATE {
        repo.index(Some(&format!("v{tag}")), ["linux/amd64", "linux/arm64"]);
    }
    let settings =
        json!({"lookup": {"budget": format!("{}ms", BUDGET.as_millis())}, "server": {"drain": "1s"}});
    let mut replicas = [
        local.tolerarch_for(&registry.address(), settings.clone()).await,
        local.tolerarch_for(&registry.address(), settings).await,
    ];
    let service = Forwarder::start(&replicas.each_ref().map(|replica| replica.port)).await;
    let namespace = cluster.namespace_with("load", &service.url).await;
    let image = |tag: u32| format!("{}/app:v{tag}", registry.address());
    e2e::until("the webhook is called", async || {
        namespace.dry_run(&pod(&[&image(0)])).await.unwrap().tolerates_pool().then_some(())
    })
    .await;

    let create = async {
        let mut times = interval(Duration::from_secs(1) / RATE);
        times.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut creations = Vec::new();
        for number in 0..RATE * SECONDS {
            times.tick().await;
            let (namespace, pod) = (namespace.clone(), unscheduled(&image(number % RATE)));
            creations.push(tokio::spawn(async move {
                let start = Instant::now();
                let created = namespace.try_pod(&pod).await;
                let result = created.map(|pod| pod.tolerates_pool()).map_err(|error| error.to_string());
                Creation { took: start.elapsed(), result }
            }));
        }
        join_all(creations).await.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let trouble = async {
        let mut steps = interval(Duration::from_secs(u64::from(SECONDS) / 8));
        steps.tick().await;
        steps.tick().await;
        for turn in 0..2 {
            roll(&service, &mut replicas, turn).await;
        }
        steps.tick().await;
        // Nobody tells the Service.
        replicas[0].process.kill().await;
        steps.tick().await;
        replicas[0].start_again().await;
        steps.tick().await;
        for replica in &replicas {
            replica.renew_certificate(&local.pki);
        }
        steps.tick().await;
        repo.fault(Some(Fault::hang()));
        steps.tick().await;
        repo.fault(None);
    };
    let (creations, ()) = tokio::join!(create, trouble);
    judge(creations);
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

/// A Pod that keeps the scheduler out of what is measured.
fn unscheduled(image: &str) -> Value {
    let mut pod = pod(&[image]);
    pod["spec"]["schedulerName"] = "nobody".into();
    pod
}

fn judge(creations: Vec<Creation>) {
    let mut times: Vec<Duration> = creations.iter().map(|creation| creation.took).collect();
    times.sort_unstable();
    let failures: Vec<&String> = creations.iter().filter_map(|one| one.result.as_ref().err()).collect();
    let tolerated = creations.iter().filter(|one| one.result == Ok(true)).count();
    let percentile = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "load: {} creations, {} failures, {tolerated} tolerated, p50 {:?}, p99 {:?}, longest {:?}",
        creations.len(),
        failures.len(),
        percentile(50),
        percentile(99),
        percentile(100),
    );
    assert!(failures.is_empty(), "{failures:?}");
    assert!(percentile(100) < BUDGET + SLACK, "{:?}", percentile(100));
}
