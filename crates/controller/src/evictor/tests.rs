use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::ControllerSettings;
use crate::testing::context;
use tolerarch_engine::decide::Snapshot;
use tolerarch_engine::decide::testing::Bench;
use tolerarch_engine::lessons::{Evidence, FailedImage, Lesson, Lessons, Timestamp};
use tolerarch_kubernetes::cluster::testing::{Lists, Objects};

const EVICTION: &str = "/api/v1/namespaces/team/pods/web-1/eviction";

fn failed() -> FailedImage {
    FailedImage {
        digest: Digest::of_text("web"),
        architecture: "arm64".to_owned(),
        evidence: Evidence::ExecFormatError,
        namespace: "team".to_owned(),
        is_for_all: false,
    }
}

fn pod(annotation: &str, owners: &Value) -> StoredPod {
    StoredPod::of_value(&json!({
        "metadata": {
            "name": "web-1", "namespace": "team", "uid": "uid-1", "annotations": {annotation: "multi-arch"},
            "ownerReferences": owners,
        },
        "spec": {"containers": [{"name": "app", "image": "web"}]},
    }))
    .unwrap()
}

fn owner(kind: &str, uid: &str, controller: bool) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": controller}])
}

#[tokio::test(start_paused = true)]
async fn only_pods_that_others_replace_are_evicted_and_few_of_a_workload() {
    let mut evicted = Recently::new(REMEMBERED.0, REMEMBERED.1);
    let mut is_candidate = |pod: &StoredPod| claim(&mut evicted, pod);
    let own = pod(POOLS_KEY, &owner("ReplicaSet", "a", true));
    for (why, pod) in [
        ("nobody creates another one", pod(POOLS_KEY, &json!([]))),
        ("its owner does not control it", pod(POOLS_KEY, &owner("Thing", "b", false))),
        ("it would come back to the node", pod(POOLS_KEY, &owner("DaemonSet", "c", true))),
        ("tolerarch has not let it there", pod("other", &owner("ReplicaSet", "d", true))),
    ] {
        assert!(!is_candidate(&pod), "{why}");
    }
    for _ in 0..OF_WORKLOAD {
        assert!(is_candidate(&own));
    }
    assert!(!is_candidate(&own));
    let of_many = (0..100).map(|at| pod(POOLS_KEY, &owner("ReplicaSet", &at.to_string(), true)));
    let more = of_many.filter(&mut is_candidate).count();
    assert_eq!(more + OF_WORKLOAD, OF_NAMESPACE, "a namespace does not take the turns of all");
    tokio::time::advance(REMEMBERED.0).await;
    assert!(is_candidate(&pod(REQUIRED_KEY, &owner("ReplicaSet", "e", true))), "another workload");
    tokio::time::advance(REMEMBERED.0).await;
    assert!(is_candidate(&own));
}

#[tokio::test(start_paused = true)]
async fn a_budget_and_a_record_that_is_not_there_yet_hold_an_eviction_back() {
    let (bench, objects) = (Bench::new().await, Objects::start().await);
    let settings =
        watch::Sender::new(ControllerSettings { evict_failed: true, ..ControllerSettings::default() });
    let context = context(&bench, &Lists::start().await, &objects, &settings);
    let own = pod(POOLS_KEY, &owner("ReplicaSet", "a", true));
    let image = failed().digest;
    let evict = || evict(&context, own.clone(), image);
    assert_eq!(evict().await, None, "nothing is recorded");

    let mut record = Lessons::default();
    record.record(Lesson::Image(failed()), Timestamp::now());
    let before = Snapshot::clone(&bench.current.load_full());
    bench.current.store(Arc::new(Snapshot { lessons: Arc::new(record), ..before }));
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
    assert_eq!(evictions[0]["deleteOptions"]["preconditions"]["uid"], "uid-1", "{evictions:?}");

    objects.refuse(Some((Method::POST, "/eviction", 403)));
    let before = objects.requests();
    assert_eq!(evict().await, Some(Err(ClusterError::Forbidden)));
    assert_eq!(objects.requests(), before + 1);
}
