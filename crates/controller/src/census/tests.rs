use std::sync::Arc;
use std::time::Duration as StdDuration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::testing::{PATIENCE, context, run};
use crate::{ControllerMetrics, ControllerSettings, Elector};
use tolerarch_engine::decide::testing::{BOTH, TestEngine};
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_kubernetes::cluster::{ObjectName, OwnedName};
use tolerarch_support::metrics::Metrics;

const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-tolerarch";
const NAMESPACES: &str = "/api/v1/namespaces";

fn pod(namespace: &str, name: &str, image: &str) -> Value {
    let requests = json!({"cpu": "500m", "memory": "1Gi"});
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": name, "labels": {"pod-template-hash": "5d5c"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d5c", "controller": true}],
        },
        "spec": {"containers": [{"name": "app", "image": image, "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    })
}

/// Runs the census of a leader until the metrics fulfil a condition.
async fn until(
    bench: &TestEngine,
    lists: &Lists,
    census: Duration,
    is_reached: impl Fn(&str, &watch::Sender<ControllerSettings>) -> bool,
) {
    let objects = Objects::start().await;
    let metrics = Metrics::new([]).unwrap();
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods"]});
    let off = json!({"key": "tolerarch.io/mode", "operator": "NotIn", "values": ["off"]});
    let webhook = json!({
        "clientConfig": {"service": {"path": "/mutate"}}, "rules": [rule],
        "namespaceSelector": {"matchExpressions": [off]}, "objectSelector": {"matchExpressions": [
            {"key": "team.example.com/excluded", "operator": "DoesNotExist"},
        ]},
    });
    objects.put(CONFIGURATION, json!({"webhooks": [webhook]}));
    let counts = ControllerMetrics::register(&metrics).unwrap();
    let lease = OwnedName {
        namespace: "team".into(),
        name: ObjectName::new("controller").unwrap(),
    };
    let mut elector = Elector::new(Arc::new(objects.cluster()), lease, "a".into(), &counts);
    let settings = watch::Sender::new(ControllerSettings {
        census,
        ..ControllerSettings::default()
    });
    let context = context(bench, lists, &objects, &settings);
    let context = Context {
        leadership: elector.leadership(),
        metrics: counts,
        ..context
    };
    let reached = async {
        while !is_reached(&metrics.render().unwrap(), &settings) {
            sleep(StdDuration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = elector.run() => {}
        () = run("census", &context) => {}
        () = reached => {}
        () = sleep(PATIENCE) => panic!("not reached: {}", metrics.render().unwrap()),
    }
}

#[tokio::test]
async fn census_counts_by_platforms_of_images() {
    let bench = TestEngine::new().await;
    let lists = Lists::start().await;
    let multi = bench.image("multi", &BOTH);
    let single = bench.image("single", &BOTH[..1]);
    for (name, mode) in [("team", "on"), ("out", "off")] {
        let labels = json!({"tolerarch.io/mode": mode, "tolerarch.io/profile": "nosuch"});
        lists.put(
            NAMESPACES,
            json!({"metadata": {"name": name, "labels": labels}}),
        );
    }
    for at in 0..3 {
        lists.put(StoredPod::PATH, pod("team", &format!("multi-{at}"), &multi));
    }
    lists.put(StoredPod::PATH, pod("other", "single", &single));
    lists.put(StoredPod::PATH, pod("out", "out", &single));
    // The webhook's object selector excludes this Pod.
    let mut excluded = pod("third", "excluded", &single);
    excluded["metadata"]["labels"]["team.example.com/excluded"] = "true".into();
    lists.put(StoredPod::PATH, excluded);
    let mut ended = pod("team", "ended", &single);
    ended["status"]["phase"] = "Succeeded".into();
    lists.put(StoredPod::PATH, ended);
    let expected = [
        r#"tolerarch_cluster_requested_cpu_cores{support="all"} 1.5"#,
        r#"tolerarch_cluster_requested_cpu_cores{support="partial"} 0.5"#,
        r#"tolerarch_cluster_requested_memory_bytes{support="all"} 3221225472"#,
        r#"tolerarch_cluster_requested_memory_bytes{support="skipped"} 2147483648"#,
        r#"tolerarch_cluster_workloads{support="all"} 1"#,
        // Only one namespace counts: the label of the other one has an effect.
        r#"tolerarch_cluster_ignored_labels{label="mode"} 1"#,
        r#"tolerarch_cluster_ignored_labels{label="profile"} 1"#,
        r#"tolerarch_cluster_workloads{support="partial"} 1"#,
        r#"tolerarch_cluster_workloads{support="skipped"} 2"#,
        r#"tolerarch_cluster_workloads{support="unknown"} 0"#,
    ];
    until(&bench, &lists, Duration::from_secs(600), |text, _| {
        let lines: Vec<&str> = text.lines().collect();
        expected.iter().all(|line| lines.contains(line))
    })
    .await;
    // All Pods with one image need one lookup.
    let lookups = bench
        .remote
        .count(|request| request.path.contains("/multi/manifests/"));
    assert_eq!(lookups, 1);
}

/// A later census counts Pods that were added, or could not be read before.
#[tokio::test]
async fn census_is_repeated() {
    let bench = TestEngine::new().await;
    let lists = Lists::start().await;
    let multi = bench.image("multi", &BOTH);
    lists.put(NAMESPACES, json!({"metadata": {"name": "team"}}));
    lists.refuse(StoredPod::PATH, Some(500));
    let is_there = std::cell::Cell::new(false);
    until(&bench, &lists, Duration::from_millis(50), |text, _| {
        if !is_there.replace(true) {
            assert!(!text.contains("tolerarch_cluster_"), "{text}");
            lists.refuse(StoredPod::PATH, None);
            lists.put(StoredPod::PATH, pod("team", "multi", &multi));
        }
        text.contains(r#"tolerarch_cluster_requested_cpu_cores{support="all"} 0.5"#)
    })
    .await;
}

/// A reload may change the pools.
#[tokio::test]
async fn reload_triggers_a_census() {
    let bench = TestEngine::new().await;
    let lists = Lists::start().await;
    let multi = bench.image("multi", &BOTH);
    lists.put(NAMESPACES, json!({"metadata": {"name": "team"}}));
    let is_there = std::cell::Cell::new(false);
    until(
        &bench,
        &lists,
        Duration::from_secs(3600),
        |text, settings| {
            if text.contains("tolerarch_cluster_") && !is_there.replace(true) {
                lists.put(StoredPod::PATH, pod("team", "multi", &multi));
                settings.send_modify(|_| {});
            }
            text.contains(r#"tolerarch_cluster_requested_cpu_cores{support="all"} 0.5"#)
        },
    )
    .await;
}

#[tokio::test]
async fn cleared_census_exports_nothing() {
    let metrics = Metrics::new([]).unwrap();
    let exported = ControllerMetrics::register(&metrics).unwrap();
    exported.show_census(&Count::default().totals(&[]), [("mode", 0), ("profile", 0)]);
    assert!(
        metrics
            .render()
            .unwrap()
            .contains(r#"tolerarch_cluster_workloads{support="all"} 0"#)
    );
    exported.clear_census();
    assert!(!metrics.render().unwrap().contains("tolerarch_cluster_"));
}

#[test]
fn namespaces_take_turns() {
    let namespaces = ["many", "many", "many", "few", "many", "few", "one"];
    assert_eq!(in_turns(namespaces.into_iter()), [0, 3, 6, 1, 5, 2, 4]);
}
