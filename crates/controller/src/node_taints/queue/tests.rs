use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;
use tolerarch_kubernetes::cluster::Taint;

/// Returns a version of a node that is newer than all before it.
fn node(name: &str, tainted: bool) -> Node {
    static VERSION: AtomicU32 = AtomicU32::new(1);
    let version = VERSION.fetch_add(1, Ordering::Relaxed).to_string();
    let taints = if tainted {
        json!([{"key": "k", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    let annotations = if tainted {
        json!({"tolerarch.io/node-taints": "k:NoSchedule"})
    } else {
        json!({})
    };
    let metadata = json!({"name": name, "resourceVersion": version, "labels": {"l": "v"}, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap()
}

const CHANGED: Written = Some(Ok(()));

fn entries() -> Vec<NodeTaint> {
    let taint = Taint {
        key: "k".into(),
        value: String::new(),
        effect: "NoSchedule".into(),
    };
    vec![NodeTaint {
        selector: [("l".to_owned(), "v".to_owned())].into(),
        taint,
    }]
}

/// Waits for the next node that is due, and ends its change with this result.
async fn one(queue: &mut Queue, written: Written) -> bool {
    tokio::time::sleep_until(queue.next_due().unwrap()).await;
    let (name, patch) = queue.begin(1).remove(0);
    queue.end(&name, patch, written)
}

/// Another controller removes the taint as soon as it is set.
#[tokio::test(start_paused = true)]
async fn contested_node_is_slowed_down_and_reported_once() {
    let mut queue = Queue::default();
    let entries = entries();
    let begun = Instant::now();
    let mut reports = 0;
    for _ in 0..100 {
        queue.take(Change::Applied(node("a", false)), &entries);
        reports += usize::from(one(&mut queue, CHANGED).await);
        queue.take(Change::Applied(node("a", true)), &entries);
        assert_eq!(queue.next_due(), None);
    }
    assert_eq!(reports, 1);
    assert!(
        begun.elapsed() > Duration::from_secs(85 * 600),
        "{:?}",
        begun.elapsed()
    );
    // Another node does not wait for it.
    queue.take(Change::Applied(node("a", false)), &entries);
    queue.take(Change::Applied(node("b", false)), &entries);
    assert_eq!(queue.begin(10).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failure_is_retried_and_conflict_waits_for_the_watch() {
    let mut queue = Queue::default();
    let entries = entries();
    queue.take(Change::Applied(node("a", false)), &entries);
    for _ in 0..3 {
        assert!(!one(&mut queue, Some(Err(ClusterError::Timeout))).await);
    }
    assert!(queue.begin(1).is_empty(), "not at once");
    one(&mut queue, Some(Err(ClusterError::Conflict))).await;
    assert_eq!(queue.next_due(), None, "the watch delivers the new version");
    let begun = Instant::now();
    queue.take(Change::Applied(node("a", false)), &entries);
    one(&mut queue, Some(Err(ClusterError::NotFound))).await;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    let attempts = &queue.attempts["a"];
    assert!(queue.next_due().is_none() && !attempts.is_busy && attempts.last.is_none());
}

#[tokio::test(start_paused = true)]
async fn busy_node_is_not_changed_again() {
    let mut queue = Queue::default();
    let entries = entries();
    queue.take(Change::Applied(node("a", false)), &entries);
    let (name, patch) = queue.begin(9).remove(0);
    // A newer version of the node arrives in the meantime.
    queue.take(Change::Applied(node("a", false)), &entries);
    assert!(queue.begin(9).is_empty() && queue.next_due().is_none());
    queue.take(Change::Applied(node("a", true)), &entries);
    queue.end(&name, patch, CHANGED);
    assert!(queue.next_due().is_none());
}

#[tokio::test]
async fn queue_is_settled_after_the_last_change() {
    let mut queue = Queue::default();
    let none = Vec::new();
    assert!(!queue.is_settled());
    queue.take(Change::Begins, &none);
    queue.take(Change::Listed(node("b", false)), &none);
    queue.take(Change::Failed(ClusterError::Timeout), &none);
    assert!(!queue.is_settled(), "the list was incomplete");
    queue.take(Change::Begins, &none);
    queue.take(Change::Listed(node("a", true)), &none);
    assert!(!queue.is_settled());
    queue.take(Change::Complete, &none);
    assert!(!queue.is_settled());
    one(&mut queue, CHANGED).await;
    assert!(queue.is_settled());
}

/// There is no event for what happened while the watch was broken.
#[tokio::test(start_paused = true)]
async fn nodes_missing_in_the_list_are_forgotten() {
    let mut queue = Queue::default();
    let entries = entries();
    let mut other = node("a", false);
    other.raw_taints = vec![json!({"key": "k", "value": "mine", "effect": "NoSchedule"})];
    other.taints = serde_json::from_value(json!(other.raw_taints)).unwrap();
    assert!(
        queue
            .take(Change::Applied(other.clone()), &entries)
            .is_some()
    );
    queue.take(Change::Applied(node("b", false)), &entries);
    one(&mut queue, CHANGED).await;
    assert!(queue.nodes.objects()["a"].is_in_the_way && queue.attempts["b"].last.is_some());
    queue.take(Change::Begins, &entries);
    queue.take(Change::Listed(node("c", true)), &entries);
    queue.take(Change::Complete, &entries);
    assert!(queue.nodes.objects().keys().eq(["c"]) && queue.attempts.is_empty());
}

/// The API server's answer may arrive before the event of the watch.
#[tokio::test(start_paused = true)]
async fn conflict_is_retried_without_the_long_pause() {
    let mut queue = Queue::default();
    queue.take(Change::Begins, &[]);
    queue.take(Change::Listed(node("a", true)), &[]);
    queue.take(Change::Complete, &[]);
    for _ in 0..3 {
        one(&mut queue, CHANGED).await;
        queue.take(Change::Applied(node("a", true)), &[]);
    }
    one(&mut queue, Some(Err(ClusterError::Conflict))).await;
    assert_eq!((queue.next_due(), queue.is_settled()), (None, false));
    queue.take(Change::Applied(node("a", true)), &[]);
    assert_eq!(queue.next_due(), Some(Instant::now() + CONFLICT));
    one(&mut queue, Some(Err(ClusterError::Conflict))).await;
    queue.take(Change::Applied(node("a", false)), &[]);
    assert!(queue.is_settled(), "another client has removed the taint");
}

#[tokio::test(start_paused = true)]
async fn listed_node_is_due_before_the_list_ends() {
    let mut queue = Queue::default();
    let entries = entries();
    queue.take(Change::Begins, &entries);
    queue.take(Change::Listed(node("a", false)), &entries);
    assert_eq!(queue.begin(10).len(), 1);
    queue.take(Change::Failed(ClusterError::Status), &entries);
    queue.take(Change::Begins, &entries);
    queue.take(Change::Listed(node("b", false)), &entries);
    queue.take(Change::Complete, &entries);
    assert_eq!(
        queue.begin(10).len(),
        1,
        "the first node is being changed, or does not exist"
    );
}
