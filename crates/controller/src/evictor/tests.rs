use std::sync::Arc;

use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::testing::context;
use crate::{ControllerMetrics, ControllerSettings};
use tolerarch_engine::decide::Snapshot;
use tolerarch_engine::decide::testing::TestEngine;
use tolerarch_engine::lessons::{Evidence, FailedImage, Lesson, Lessons, Timestamp};
use tolerarch_kubernetes::cluster::testing::{Lists, Objects};

const EVICTION: &str = "/api/v1/namespaces/team/pods/web-1/eviction";

fn failed() -> FailedImage {
    FailedImage {
        digest: Digest::of_text("web"),
        architecture: "arm64".to_owned(),
        evidence: Evidence::ExecFormatError,
        namespace: "team".to_owned(),
        nodes: Vec::new(),
    }
}

fn pod_of(namespace: &str, annotation: &str, owners: &Value) -> StoredPod {
    StoredPod::of_value(&json!({
        "metadata": {
            "name": "web-1", "namespace": namespace, "uid": "uid-1", "annotations": {annotation: "multi-arch"},
            "ownerReferences": owners,
        },
        "spec": {"containers": [{"name": "app", "image": "web"}]},
    }))
    .unwrap()
}

fn pod(annotation: &str, owners: &Value) -> StoredPod {
    pod_of("team", annotation, owners)
}

fn owner(kind: &str, uid: &str, controller: bool) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": controller}])
}

#[test]
fn only_pods_that_others_replace_are_evicted() {
    for (why, pod) in [
        ("nobody creates another one", pod(POOLS_KEY, &json!([]))),
        (
            "its owner does not control it",
            pod(POOLS_KEY, &owner("Thing", "b", false)),
        ),
        (
            "it would come back to the node",
            pod(POOLS_KEY, &owner("DaemonSet", "c", true)),
        ),
        (
            "tolerarch has not let it there",
            pod("other", &owner("ReplicaSet", "d", true)),
        ),
    ] {
        assert_eq!(replacing_owner(&pod), None, "{why}");
    }
    for key in [POOLS_KEY, REQUIRED_KEY] {
        assert_eq!(
            replacing_owner(&pod(key, &owner("ReplicaSet", "a", true))),
            Some("a")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn few_pods_of_a_workload_and_of_a_namespace_are_evicted_in_an_hour() {
    let mut recent = RecentEvictions::default();
    let mut takes = |owner: &str| recent.add("team", owner);
    for _ in 0..OF_WORKLOAD {
        assert!(takes("a"));
    }
    assert!(!takes("a"));
    let more = (0..100).filter(|owner| takes(&owner.to_string())).count();
    assert_eq!(
        more + OF_WORKLOAD,
        OF_NAMESPACE,
        "a namespace does not take the turns of all"
    );
    tokio::time::advance(HOUR).await;
    assert!(takes("a"));
    assert_eq!(recent.0["team"].len(), 1, "nothing is kept longer");
}

/// Any Pod may name any UID as its owner's.
#[tokio::test(start_paused = true)]
async fn pods_elsewhere_take_no_turns_of_an_owner() {
    let mut recent = RecentEvictions::default();
    for namespace in 0..1000 {
        for _ in 0..2 * OF_WORKLOAD {
            recent.add(&format!("hostile-{namespace}"), "a");
        }
    }
    for _ in 0..OF_WORKLOAD {
        assert!(recent.add("team", "a"));
    }
    // A namespace without a turn uses up none of its owners' turns.
    let mut recent = RecentEvictions::default();
    for at in 0..OF_NAMESPACE {
        assert!(recent.add("team", &at.to_string()));
    }
    tokio::time::advance(HOUR / 2).await;
    for _ in 0..100 {
        assert!(!recent.add("team", "a"));
    }
    tokio::time::advance(HOUR / 2).await;
    assert!(recent.add("team", "a"));
}

/// A disruption budget may hold each of them back for an hour.
#[tokio::test(start_paused = true)]
async fn evictions_that_budgets_refuse_take_no_places_of_other_namespaces() {
    let bench = TestEngine::new().await;
    let objects = Objects::start().await;
    let settings = watch::Sender::new(ControllerSettings {
        evict_failed: true,
        ..ControllerSettings::default()
    });
    let context = context(&bench, &Lists::start().await, &objects, &settings);
    let mut evictor = Evictor::new(&context);
    let image = failed().digest;
    let mut begin = |namespace: &str, owner_uid: &str| {
        let pod = pod_of(namespace, POOLS_KEY, &owner("ReplicaSet", owner_uid, true));
        evictor.begin(pod, image);
        evictor.slots.retain(|slot| !slot.is_closed());
        evictor.slots.count(namespace)
    };
    for namespace in 0..20 {
        for at in 0..OF_NAMESPACE {
            begin(&format!("hostile-{namespace}"), &at.to_string());
        }
    }
    for at in 1..=10 {
        assert_eq!(begin("team", &at.to_string()), at);
    }
    let ended =
        |metrics: &ControllerMetrics| metrics.evictions.with_label_values(&["failed"]).get();
    let running = evictor.running.len();
    assert!(running > AT_ONCE);
    while ended(&context.metrics) < u64::try_from(running - AT_ONCE).unwrap() {
        evictor.running.next().await;
    }
    assert_eq!(evictor.running.len(), AT_ONCE, "the others have given way");
    // All have their share, however many come.
    let shares: Vec<usize> = (0..20)
        .map(|namespace| evictor.slots.count(&format!("hostile-{namespace}")))
        .collect();
    assert!(
        shares
            .iter()
            .all(|share| (AT_ONCE / 21..=AT_ONCE / 19).contains(share)),
        "{shares:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_without_a_place_takes_no_turn() {
    let bench = TestEngine::new().await;
    let objects = Objects::start().await;
    let context = context(
        &bench,
        &Lists::start().await,
        &objects,
        &watch::Sender::new(ControllerSettings::default()),
    );
    let mut evictor = Evictor::new(&context);
    let pod = |namespace: &str| pod_of(namespace, POOLS_KEY, &owner("ReplicaSet", "a", true));
    for namespace in 0..AT_ONCE {
        evictor.begin(pod(&namespace.to_string()), failed().digest);
    }
    for _ in 0..OF_WORKLOAD {
        evictor.begin(pod("late"), failed().digest);
    }
    assert_eq!(
        (evictor.running.len(), evictor.slots.count("late")),
        (AT_ONCE, 0)
    );
    for _ in 0..OF_WORKLOAD {
        assert!(evictor.recent.add("late", "a"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_and_a_record_that_is_not_there_yet_hold_an_eviction_back() {
    let bench = TestEngine::new().await;
    let objects = Objects::start().await;
    let settings = watch::Sender::new(ControllerSettings {
        evict_failed: true,
        ..ControllerSettings::default()
    });
    let context = context(&bench, &Lists::start().await, &objects, &settings);
    let own = pod(POOLS_KEY, &owner("ReplicaSet", "a", true));
    let image = failed().digest;
    let evict = || evict(&context, &own, image);
    assert_eq!(evict().await, None, "nothing is recorded");

    let mut record = Lessons::default();
    record.record(Lesson::Image(failed()), Timestamp::now());
    let before = Snapshot::clone(&bench.current.load_full());
    bench.current.store(Arc::new(Snapshot {
        lessons: Arc::new(record),
        ..before
    }));
    objects.refuse(Some((Method::POST, "/eviction", 429)));
    let budget = async {
        while objects.requests() < 3 {
            tokio::time::sleep(PAUSE).await;
        }
        assert!(objects.all(EVICTION).is_empty());
        objects.refuse(None);
    };
    assert_eq!(tokio::join!(evict(), budget).0, Some(Ok(())));
    let evictions = objects.all(EVICTION);
    assert_eq!(
        evictions[0]["deleteOptions"]["preconditions"]["uid"], "uid-1",
        "{evictions:?}"
    );

    objects.refuse(Some((Method::POST, "/eviction", 403)));
    let before = objects.requests();
    assert_eq!(evict().await, Some(Err(ClusterError::Forbidden)));
    assert_eq!(objects.requests(), before + 1);
}
