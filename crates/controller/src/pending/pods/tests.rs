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
async fn refusals_are_limited_and_failures_slowed_down() {
    // Numbers of attempts in an hour.
    for (error, expected) in [
        (ClusterError::Invalid, MAX_ATTEMPTS),
        (ClusterError::Timeout, 14),
        (ClusterError::Forbidden, 14),
    ] {
        let mut pods = Pods::default();
        pods.take(Change::Applied(stored("a", "team")));
        let mut attempts = 0;
        for _ in 0..3600 {
            // A change of the Pod does not reset the count.
            pods.take(Change::Applied(stored("a", "team")));
            for (pod, _) in pods.due(10) {
                attempts += 1;
                pods.finish(pod.uid(), Outcome::Tried(Some(Err(error))));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(attempts, expected, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn busy_namespace_does_not_delay_others() {
    let mut pods = Pods::default();
    for at in 0..1000 {
        pods.take(Change::Applied(stored(&format!("many-{at}"), "many")));
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    pods.take(Change::Applied(stored("one", "few")));
    let busy = pods.due(256);
    assert_eq!(busy.len(), OF_NAMESPACE + 1);
    assert!(busy.iter().any(|(pod, _)| pod.name() == "one"));
    assert!(pods.due(256).is_empty(), "the others are busy");
}

/// Four such namespaces could take all decisions, for as long as Pods wait for their registries.
#[tokio::test(start_paused = true)]
async fn many_busy_namespaces_do_not_delay_another() {
    let mut pods = Pods::default();
    for at in 0..8 * 2 * OF_NAMESPACE {
        pods.take(Change::Applied(stored(
            &format!("many-{at}"),
            &format!("many-{}", at % 8),
        )));
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    pods.take(Change::Applied(stored("one", "few")));
    let all = 4 * OF_NAMESPACE;
    let busy = pods.due(all);
    assert_eq!(busy.len(), all);
    assert!(busy.iter().any(|(pod, _)| pod.name() == "one"));
    // The same with capacity for a single decision.
    pods.take(Change::Applied(stored("another", "fewer")));
    let next = pods.due(1);
    assert_eq!(next[0].0.name(), "another");
}

#[tokio::test(start_paused = true)]
async fn index_is_bounded_and_shrinks_with_the_pods() {
    let mut pods = Pods::default();
    for at in 0..PODS + 10 {
        pods.take(Change::Listed(stored(&at.to_string(), "team")));
    }
    let count = pods.waiting.len();
    assert!((PODS / 16 * 15..=PODS).contains(&count), "{count}");
    // In the next list, only two are left.
    for change in [
        Change::Begins,
        Change::Listed(stored("1", "team")),
        Change::Listed(stored("2", "team")),
    ] {
        pods.take(change);
    }
    assert!(
        (count..=count + 2).contains(&pods.waiting.len()),
        "not before the list is complete"
    );
    pods.take(Change::Complete);
    assert_eq!(pods.waiting.len(), 2);
    pods.take(Change::Deleted(stored("1", "team").metadata));
    pods.take(Change::Deleted(stored("2", "team").metadata));
    assert_eq!(pods.bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn lists_of_a_waiting_pod_are_dropped() {
    let mut pod = stored("a", "team");
    pod.containers = vec![ContainerStatus::default(); 4096];
    pod.metadata.controller = Some(OwnerReference::default());
    let mut pods = Pods::default();
    pods.take(Change::Applied(pod));
    let pod = &pods.waiting["a"].pod;
    assert_eq!(pod.containers.capacity(), 0);
    assert_eq!(pod.metadata.controller, None);
}

#[tokio::test(start_paused = true)]
async fn largest_namespace_loses_pods_until_there_is_room() {
    let mut pods = Pods::default();
    for at in 0..PODS {
        pods.take(Change::Applied(stored(&format!("many-{at}"), "many")));
    }
    assert!(!pods.has_dropped);
    for at in 0..100 {
        pods.take(Change::Applied(stored(&format!("few-{at}"), "few")));
    }
    let few = |pods: &Pods| {
        let waiting = pods.waiting.values();
        let of_few = waiting.filter(|waiting| waiting.pod.namespace() == "few");
        of_few.count()
    };
    assert!(pods.has_dropped && pods.waiting.len() <= PODS);
    assert_eq!(few(&pods), 100);
    for at in 0..PODS {
        pods.take(Change::Applied(stored(&format!("more-{at}"), "many")));
    }
    assert_eq!(few(&pods), 100, "the other namespace is the largest");
    // A change of a waiting Pod takes no room.
    let count = pods.waiting.len();
    pods.take(Change::Applied(stored("few-1", "few")));
    assert_eq!(pods.waiting.len(), count);
    assert!(!pods.has_room_again(), "the index is full");
    for (at, name) in (0..PODS).flat_map(|at| ["many", "more"].map(|name| (at, name))) {
        pods.take(Change::Deleted(
            stored(&format!("{name}-{at}"), "many").metadata,
        ));
    }
    assert!(pods.has_room_again());
    pods.take(Change::Begins);
    assert!(!pods.has_room_again());
    let bytes: usize = pods
        .waiting
        .values()
        .map(|waiting| size(&waiting.pod))
        .sum();
    assert_eq!(bytes, pods.bytes);
}

#[tokio::test(start_paused = true)]
async fn busy_pods_are_dropped_last() {
    let mut pods = Pods::default();
    for at in 0..PODS {
        pods.take(Change::Applied(stored(&format!("many-{at}"), "many")));
    }
    assert_eq!(pods.due(256).len(), OF_NAMESPACE);
    for at in 0..PODS {
        pods.take(Change::Applied(stored(&format!("more-{at}"), "many")));
    }
    assert!(pods.has_dropped && pods.due(256).is_empty());
}
