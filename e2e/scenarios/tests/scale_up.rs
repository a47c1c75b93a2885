//! How much longer it takes until a Deployment is bound.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, Namespace, POOL, PodExt, Stub, Tolerarch, deployment, pod};
use serde_json::{Value, json};
use tokio::time::Instant;

const PODS: usize = 300;
const ROUNDS: usize = 7;
/// How many times as long it may take; without anything else on the machine it is less than one and a half. Nearly all of the
/// difference is what it costs an API server to call any webhook and to apply its patch, 2 ms of CPU time for each Pod; where other
/// programs want the same few cores that is much. Pods that waited for lookups, one after the other, would be more.
const AT_MOST: f64 = 10.0;

/// Who decides the Pods of a namespace, and how long they took in each round.
struct Side {
    what: &'static str,
    namespace: Namespace,
    took: Vec<Duration>,
}

impl Side {
    fn new(what: &'static str, namespace: Namespace) -> Self {
        Self {
            what,
            namespace,
            took: Vec::new(),
        }
    }

    fn fastest(&self) -> Duration {
        self.took.iter().copied().min().unwrap_or_default()
    }

    /// How many times as long as the other side: the median of the rounds, and of the fastest ones.
    fn times(&self, other: &Self) -> (f64, f64) {
        let ratio = |(own, other): (&Duration, &Duration)| own.as_secs_f64() / other.as_secs_f64();
        let mut rounds: Vec<f64> = self.took.iter().zip(&other.took).map(ratio).collect();
        rounds.sort_by(f64::total_cmp);
        (
            rounds[rounds.len() / 2],
            ratio((&self.fastest(), &other.fastest())),
        )
    }
}

/// Each side in each round, so that what else the machine does concerns all of them.
pub(crate) async fn warm_deployment_is_bound_about_as_fast_as_without_webhook(cluster: &Cluster) {
    let start = async |settings| cluster.local().tolerarch(settings).await;
    let enforcing = start(json!({"log": {"level": "warn"}})).await;
    // It decides all the same, and has no patch that the API server would have to apply.
    let observing = start(json!({"log": {"level": "warn"}, "mode": "observe"})).await;
    let observed = cluster.namespace_with("observed", &observing.url).await;
    cluster.until_called_without_effect(&observed).await;
    let stub = Stub::at_once(&cluster.local().pki, &patch()).await;
    let conditions = cluster.local().conditions().await;
    let mut sides = [
        Side::new("no webhook", cluster.namespace_opted_out("without").await),
        Side::new("tolerarch in observe mode", observed),
        Side::new(
            "a stub that answers the same at once",
            called(cluster, &stub.url, json!([])).await,
        ),
        Side::new(
            "tolerarch",
            called(cluster, &enforcing.url, json!([])).await,
        ),
        Side::new(
            "tolerarch with matchConditions",
            called(cluster, &enforcing.url, conditions).await,
        ),
    ];
    for side in &sides {
        let pod = pod(&[&cluster.images.tag("multi")]);
        side.namespace.apply(&deployment("web", 0, &pod)).await;
    }
    let mut to_tolerarch = 0;
    let mut to_stub = 0;
    // The first round is for warming up.
    for round in 0..=ROUNDS {
        for turn in 0..sides.len() {
            // Each side follows each other one in some round.
            let place = if round % 2 == 0 {
                turn
            } else {
                sides.len() - 1 - turn
            };
            let side = &mut sides[place];
            let tolerarch_before = opened(&enforcing).await;
            let stub_before = stub.connections();
            let took = bound_after(&side.namespace).await;
            if round > 0 {
                side.took.push(took);
                to_stub += stub.connections() - stub_before;
                if side.what == "tolerarch" {
                    to_tolerarch += opened(&enforcing).await - tolerarch_before;
                }
            }
        }
    }
    let [without, _, stub, tolerarch, conditioned] = &sides;
    println!(
        "scale-up: {PODS} Pods are bound after {:.2?} without webhooks",
        without.fastest()
    );
    for side in &sides[1..] {
        let (median, fastest) = side.times(without);
        println!(
            "  {:<38} {:.2?}, {median:.2} times as long (fastest {fastest:.2})",
            side.what,
            side.fastest()
        );
    }
    let ((median, fastest), (conditions, _)) =
        (tolerarch.times(stub), conditioned.times(tolerarch));
    println!(
        "  tolerarch/stub {median:.3} (fastest {fastest:.3}); with matchConditions/without {conditions:.3}"
    );
    println!(
        "  connections opened by {ROUNDS} bursts: {to_tolerarch} to tolerarch, {to_stub} to the stub"
    );
    // How many calls find a connection is up to the API server. A server that closes connections by itself sees one connection for
    // each call, twice as many as a stub that closes none.
    assert!(
        2 * to_tolerarch < 3 * to_stub,
        "{to_tolerarch} of {} calls, {to_stub} to the stub",
        ROUNDS * PODS
    );
    let (_, ratio) = tolerarch.times(without);
    assert!(ratio < AT_MOST, "{ratio}");
}

/// What tolerarch answers for a Pod of the Deployment.
fn patch() -> Value {
    json!([
        {"op": "add", "path": "/spec/tolerations/-",
            "value": {"key": POOL, "operator": "Exists", "effect": "NoSchedule"}},
        {"op": "add", "path": "/metadata/annotations", "value": {"tolerarch.io/pools": "multi-arch"}},
    ])
}

/// A namespace for whose Pods a webhook is called, under these conditions.
async fn called(cluster: &Cluster, url: &str, conditions: Value) -> Namespace {
    let change = |webhook: &mut Value| webhook["matchConditions"] = conditions;
    let namespace = cluster.namespace_with_changed("called", url, change).await;
    cluster.until_called(&namespace).await;
    let pod = namespace
        .dry_run(&pod(&[&cluster.images.tag("multi")]))
        .await
        .unwrap();
    assert_eq!(pod.pools(), Some("multi-arch"));
    namespace
}

/// How many connections it has accepted.
async fn opened(tolerarch: &Tolerarch) -> usize {
    tolerarch.metric("tolerarch_tls_handshakes_total").await
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
    namespace
        .api::<Deployment>()
        .patch("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
}
