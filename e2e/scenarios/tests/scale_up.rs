//! Measures how much longer it takes with tolerarch until a Deployment's Pods are bound.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, Namespace, POOL, PodExt, Stub, Tolerarch, deployment, pod};
use serde_json::{Value, json};
use tokio::time::Instant;

const PODS: usize = 300;
const ROUNDS: usize = 7;
/// How many times as long it may take. On an idle machine it takes less than 1.5 times as long. Nearly all of the
/// difference is what any webhook costs the API server: 2 ms of CPU time for each Pod, to call it and to apply its
/// patch. That is much if other programs use the same few cores. If Pods waited for lookups one after the other, it
/// would exceed this.
const MAXIMUM_RATIO: f64 = 10.0;

/// A namespace whose Pods are decided in one way, and how long they took in each round.
struct Variant {
    what: &'static str,
    namespace: Namespace,
    took: Vec<Duration>,
}

impl Variant {
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

    /// Compares the durations with those of another variant.
    fn ratio_to(&self, other: &Self) -> Ratio {
        let mut rounds = Vec::new();
        for (this, other) in self.took.iter().zip(&other.took) {
            rounds.push(this.as_secs_f64() / other.as_secs_f64());
        }
        rounds.sort_by(f64::total_cmp);
        Ratio {
            median: rounds[rounds.len() / 2],
            fastest: self.fastest().as_secs_f64() / other.fastest().as_secs_f64(),
        }
    }
}

/// How many times as long one variant takes as another.
struct Ratio {
    /// The median over the rounds.
    median: f64,
    /// The ratio of the fastest rounds.
    fastest: f64,
}

/// Every variant runs in every round, so that the machine's other load affects all of them.
pub(crate) async fn warm_deployment_is_bound_about_as_fast_as_without_webhook(cluster: &Cluster) {
    let start = async |settings| cluster.local().tolerarch(settings).await;
    let enforcing = start(json!({"log": {"level": "warn"}})).await;
    // In observe mode it decides, but returns no patch that the API server would have to apply.
    let observing = start(json!({"log": {"level": "warn"}, "mode": "observe"})).await;
    let observed = cluster.namespace_with("observed", &observing.url).await;
    cluster.until_called_without_effect(&observed).await;
    let stub = Stub::at_once(&cluster.local().pki, &patch()).await;
    let conditions = cluster.local().conditions().await;
    let mut variants = [
        Variant::new("no webhook", cluster.namespace_opted_out("without").await),
        Variant::new("tolerarch in observe mode", observed),
        Variant::new(
            "a stub that answers the same at once",
            namespace_calling(cluster, &stub.url, json!([])).await,
        ),
        Variant::new(
            "tolerarch",
            namespace_calling(cluster, &enforcing.url, json!([])).await,
        ),
        Variant::new(
            "tolerarch with matchConditions",
            namespace_calling(cluster, &enforcing.url, conditions).await,
        ),
    ];
    for variant in &variants {
        let pod = pod(&[&cluster.images.tag("multi")]);
        variant.namespace.apply(&deployment("web", 0, &pod)).await;
    }
    let mut to_tolerarch = 0;
    let mut to_stub = 0;
    // The first round is for warming up.
    for round in 0..=ROUNDS {
        for turn in 0..variants.len() {
            // The order alternates, so that no variant always follows the same one.
            let index = if round % 2 == 0 {
                turn
            } else {
                variants.len() - 1 - turn
            };
            let variant = &mut variants[index];
            let tolerarch_before = accepted_connections(&enforcing).await;
            let stub_before = stub.connections();
            let took = time_to_bind(&variant.namespace).await;
            if round > 0 {
                variant.took.push(took);
                to_stub += stub.connections() - stub_before;
                if variant.what == "tolerarch" {
                    to_tolerarch += accepted_connections(&enforcing).await - tolerarch_before;
                }
            }
        }
    }
    let [without, _, stub, tolerarch, conditioned] = &variants;
    println!(
        "scale-up: {PODS} Pods are bound after {:.2?} without webhooks",
        without.fastest()
    );
    for variant in &variants[1..] {
        let Ratio { median, fastest } = variant.ratio_to(without);
        println!(
            "  {:<38} {:.2?}, {median:.2} times as long (fastest {fastest:.2})",
            variant.what,
            variant.fastest()
        );
    }
    let Ratio { median, fastest } = tolerarch.ratio_to(stub);
    let conditions = conditioned.ratio_to(tolerarch).median;
    println!(
        "  tolerarch/stub {median:.3} (fastest {fastest:.3}); with matchConditions/without {conditions:.3}"
    );
    println!(
        "  connections opened by {ROUNDS} bursts: {to_tolerarch} to tolerarch, {to_stub} to the stub"
    );
    // The API server decides how many calls reuse a connection. If tolerarch closed connections, it would get one for
    // each call, twice as many as a stub that closes none.
    assert!(
        2 * to_tolerarch < 3 * to_stub,
        "{to_tolerarch} of {} calls, {to_stub} to the stub",
        ROUNDS * PODS
    );
    let ratio = tolerarch.ratio_to(without).fastest;
    assert!(ratio < MAXIMUM_RATIO, "{ratio}");
}

/// Returns tolerarch's patch for a Pod of the Deployment.
fn patch() -> Value {
    json!([
        {"op": "add", "path": "/spec/tolerations/-",
            "value": {"key": POOL, "operator": "Exists", "effect": "NoSchedule"}},
        {"op": "add", "path": "/metadata/annotations", "value": {"tolerarch.io/pools": "multi-arch"}},
    ])
}

/// Creates a namespace for which the webhook at `url` is called under these conditions.
async fn namespace_calling(cluster: &Cluster, url: &str, conditions: Value) -> Namespace {
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

/// Returns how many connections tolerarch has accepted.
async fn accepted_connections(tolerarch: &Tolerarch) -> usize {
    tolerarch.metric("tolerarch_tls_handshakes_total").await
}

/// Scales up from zero and down again. Returns how long it took until all Pods were bound.
async fn time_to_bind(namespace: &Namespace) -> Duration {
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
