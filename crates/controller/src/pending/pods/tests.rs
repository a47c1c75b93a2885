use serde_json::json;

use super::*;
use tolerarch_kubernetes::cluster::{ContainerStatus, OwnerReference};

fn stored(name: &str, namespace: &str) -> StoredPod {
    let pod = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"containers": [{"image": "nginx"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False"}]},
    });
    StoredPod::of_value(&pod).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_tried_three_times_and_others_less_and_less_often() {
    // In an hour.
    for (error, expected) in
        [(ClusterError::Invalid, TRIES), (ClusterError::Timeout, 14), (ClusterError::Forbidden, 14)]
    {
        let mut pods = Pods::default();
        pods.take(Change::Applied(stored("a", "team")));
        let mut tries = 0;
        for _ in 0..3600 {
            // Its changes do not begin anew.
            pods.take(Change::Applied(stored("a", "team")));
            for (pod, _) in pods.due(10) {
                tries += 1;
                pods.looked(pod.uid(), Look::Tried(Some(Err(error))));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(tries, expected, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_does_not_keep_others_waiting() {
    let mut pods = Pods::default();
    for at in 0..1000 {
        pods.take(Change::Applied(stored(&format!("many-{at}"), "many")));
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    pods.take(Change::Applied(stored("one", "few")));
    let busy = pods.due(256);
    assert_eq!(busy.len(), OF_NAMESPACE + 1);
    assert!(busy.iter().any(|(pod, _)| pod.name() == "one"));
    assert!(pods.due(256).is_empty(), "they hang");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_and_goes_with_the_pods() {
    let mut pods = Pods::default();
    for at in 0..PODS + 10 {
        pods.take(Change::Listed(stored(&at.to_string(), "team")));
    }
    assert_eq!(pods.known.len(), PODS);
    // Listed again, all but two are gone.
    for change in [Change::Begins, Change::Listed(stored("1", "team")), Change::Listed(stored("2", "team"))] {
        pods.take(change);
    }
    assert_eq!(pods.known.len(), PODS, "not before the list is complete");
    pods.take(Change::Complete);
    assert_eq!(pods.known.len(), 2);
    pods.take(Change::Deleted(stored("1", "team").metadata));
    pods.take(Change::Deleted(stored("2", "team").metadata));
    assert_eq!(pods.bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn lists_of_a_kept_pod_take_no_memory() {
    let mut pod = stored("a", "team");
    pod.containers = vec![ContainerStatus::default(); 4096];
    pod.metadata.controller = Some(OwnerReference::default());
    let mut pods = Pods::default();
    pods.take(Change::Applied(pod));
    let kept = &pods.known["a"].pod;
    assert_eq!((kept.containers.capacity(), &kept.metadata.controller), (0, &None));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_floods_takes_no_room_of_others_and_what_was_dropped_comes_back() {
    let mut pods = Pods::default();
    for at in 0..PODS {
        pods.take(Change::Applied(stored(&format!("many-{at}"), "many")));
    }
    assert!(!pods.has_dropped);
    for at in 0..100 {
        pods.take(Change::Applied(stored(&format!("few-{at}"), "few")));
    }
    let of = |pods: &Pods, namespace: &str| pods.shares.get(namespace).map_or(0, |share| share.uids.len());
    assert_eq!((pods.known.len(), of(&pods, "few")), (PODS, 100));
    pods.take(Change::Applied(stored("one-more", "many")));
    assert_eq!((pods.known.len(), of(&pods, "few")), (PODS, 100), "it has the most itself");
    // A change of one that is kept takes no room.
    pods.take(Change::Applied(stored("few-1", "few")));
    assert_eq!(of(&pods, "few"), 100);
    assert!(!pods.has_room_again(), "it is full");
    for at in 0..PODS {
        pods.take(Change::Deleted(stored(&format!("many-{at}"), "many").metadata));
    }
    assert!(pods.has_room_again());
    pods.take(Change::Begins);
    assert!(!pods.has_room_again());
    let bytes: usize = pods.shares.values().map(|share| share.bytes).sum();
    assert_eq!(bytes, pods.bytes);
}
