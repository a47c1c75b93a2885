use serde_json::{Value, json};

use super::*;

/// A Pod that requests a core, of the Deployment of this name.
fn pod(deployment: &str, name: &str, image: &str) -> StoredPod {
    let set = format!("{deployment}-5d5c");
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "controller": true});
    let container = json!({"name": "app", "image": image, "resources": {"requests": {"cpu": "1"}}});
    stored(json!({
        "metadata": {
            "name": name, "namespace": "team", "labels": {"pod-template-hash": "5d5c"}, "ownerReferences": [owner],
        },
        "spec": {"containers": [container]},
        "status": {"phase": "Running"},
    }))
}

fn stored(pod: Value) -> StoredPod {
    StoredPod::of_value(&pod).unwrap()
}

fn cores(totals: &Totals, coverage: Coverage) -> (u64, u64) {
    let (amount, workloads) = totals.of[&coverage];
    (amount.cpu_millis / 1000, workloads)
}

#[test]
fn pods_are_added_up_by_coverage_and_workload() {
    let mut count = Count::default();
    for at in 0..10 {
        count.add(
            pod("web", &format!("web-{at}"), "nginx"),
            WebhookCall::For(None),
        );
    }
    count.add(pod("web", "web-new", "other"), WebhookCall::For(None));
    count.add(pod("api", "api-1", "nginx"), WebhookCall::For(None));
    // A Pod that cannot be read within the limits has an unknown coverage.
    let mut unreadable = pod("odd", "odd-1", "nginx");
    unreadable.facts = None;
    count.add(unreadable, WebhookCall::For(None));
    let mut ended = pod("job", "job-1", "nginx");
    ended.phase = tolerarch_kubernetes::cluster::Phase::Succeeded;
    count.add(ended, WebhookCall::For(None));
    assert_eq!(count.shapes.len(), 3);
    let totals = count.totals(&[Coverage::All, Coverage::Partial, Coverage::All]);
    assert_eq!(cores(&totals, Coverage::All), (11, 1), "api");
    assert_eq!(
        cores(&totals, Coverage::Partial),
        (1, 1),
        "web, as its least supported Pod"
    );
    assert_eq!(cores(&totals, Coverage::Unknown), (1, 1));
    assert_eq!(cores(&totals, Coverage::Skipped), (0, 0));
    assert_eq!(totals.other, Amount::default());
}

#[test]
fn shapes_and_sums_are_bounded_and_further_pods_count_as_other() {
    let bare = |containers: Value| {
        stored(
            json!({"metadata": {"name": "p", "namespace": "team"}, "spec": {"containers": containers}}),
        )
    };
    // The number of shapes.
    let mut count = Count::default();
    for at in (0..SHAPES + 7).chain([0]) {
        let resources = json!({"requests": {"cpu": "1"}});
        let pod = bare(json!([{"image": format!("image-{at}"), "resources": resources}]));
        count.add(pod, WebhookCall::For(None));
    }
    let totals = count.totals(&[]);
    assert_eq!((count.shapes.len(), totals.other.pods), (SHAPES, 7));
    assert_eq!(cores(&totals, Coverage::Unknown), (SHAPES as u64 + 1, 1));

    // The bytes of shapes.
    let mut count = Count::default();
    for at in 0..2_000 {
        let images = (0..60)
            .map(|image| json!({"image": format!("host.test/{}:{image}-{at}", "x".repeat(240))}));
        count.add(bare(images.collect()), WebhookCall::For(None));
    }
    let shapes = count.shapes.len();
    let other = count.totals(&[]).other.pods as usize;
    assert!(count.bytes <= BYTES, "{} bytes", count.bytes);
    assert!(shapes > 0 && other > 0, "{shapes} shapes");
    assert_eq!(shapes + other, 2_000);

    // The number of workloads.
    let mut count = Count::default();
    let mut unreadable = pod("web", "web-1", "image");
    unreadable.facts = None;
    for at in 0..SUMS + 7 {
        let mut pod = unreadable.clone();
        pod.metadata.controller.as_mut().unwrap().name = format!("other-{at}");
        count.add(pod, WebhookCall::For(None));
    }
    assert_eq!((count.sums.len(), count.totals(&[]).other.pods), (SUMS, 7));
}
