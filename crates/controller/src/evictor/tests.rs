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
fn only_replaced_pods_are_evicted() {
    for (why, pod) in [
        ("it has no owner", pod(POOLS_KEY, &json!([]))),
        (
            "its owner does not control it",
            pod(POOLS_KEY, &owner("Thing", "b", false)),
        ),
        (
            "a DaemonSet would create it on the same node again",
            pod(POOLS_KEY, &owner("DaemonSet", "c", true)),
        ),
        (
            "tolerarch has not changed it",
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
async fn evictions_per_hour_are_limited() {
    let mut recent = RecentEvictions::default();
    let mut adds = |owner: &str| recent.add("team", owner);
    for _ in 0..OF_WORKLOAD {
        assert!(adds("a"));
    }
    assert!(!adds("a"));
    let more = (0..100).filter(|owner| adds(&owner.to_string())).count();
    assert_eq!(
        more + OF_WORKLOAD,
        OF_NAMESPACE,
        "the limit of the namespace"
    );
    tokio::time::advance(HOUR).await;
    assert!(adds("a"));
    assert_eq!(recent.0["team"].len(), 1, "older evictions are dropped");
}

/// A Pod may name any UID as its owner's.
#[tokio::test(start_paused = true)]
async fn limit_of_an_owner_is_per_namespace() {
    let mut recent = RecentEvictions::default();
    for namespace in 0..1000 {
        for _ in 0..2 * OF_WORKLOAD {
            recent.add(&format!("hostile-{namespace}"), "a");
        }
    }
    for _ in 0..OF_WORKLOAD {
        assert!(recent.add("team", "a"));
    }
    // Refused evictions do not count for the workload.
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

/// A disruption budget may delay each of them for an hour.
#[tokio::test(start_paused = true)]
async fn refused_evictions_leave_slots_to_other_namespaces() {
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
    assert_eq!(evictor.running.len(), AT_ONCE, "the others were given up");
    // All namespaces have the same share.
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
async fn eviction_without_a_slot_is_not_counted() {
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
async fn eviction_waits_for_the_record_and_the_budget() {
    let bench = TestEngine::new().await;
    let objects = Objects::start().await;
    let settings = watch::Sender::new(ControllerSettings {
        evict_failed: true,
        ..ControllerSettings::default()
    });
    let context = context(&bench, &Lists::start().await, &objects, &settings);
    let pod = pod(POOLS_KEY, &owner("ReplicaSet", "a", true));
    let image = failed().digest;
    let evict = || evict(&context, &pod, image);
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
