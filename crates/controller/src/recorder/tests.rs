use http::Method;
use serde_json::json;

use super::*;
use crate::Elector;
use crate::note::POOL_CLOSED;
use crate::testing::PATIENCE;
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_kubernetes::cluster::{ObjectName, OwnedName, StoredPod};
use tolerarch_support::metrics::Metrics;

fn pod(namespace: &str, name: &str) -> StoredPod {
    let metadata =
        json!({"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}")});
    StoredPod::of_value(
        &json!({"metadata": metadata, "spec": {"containers": [{"image": "nginx"}]}}),
    )
    .unwrap()
}

struct TestCluster {
    objects: Objects,
    metrics: Metrics,
    recorder: Recorder,
    state: Reported,
}

impl TestCluster {
    async fn new() -> Self {
        let metrics = Metrics::new([]).unwrap();
        let objects = Objects::start().await;
        let counts = ControllerMetrics::register(&metrics).unwrap();
        let recorder = Recorder::new(Arc::new(objects.cluster()), "a".into(), counts);
        Self {
            objects,
            metrics,
            recorder,
            state: Reported::default(),
        }
    }

    fn record(&self, namespace: &str, name: &str) {
        self.recorder
            .record(ObjectEvent::on(&pod(namespace, name), POOL_CLOSED), || {
                "closed".to_owned()
            });
    }

    fn written(&self, namespace: &str) -> usize {
        self.objects
            .all(&format!(
                "/apis/events.k8s.io/v1/namespaces/{namespace}/events/"
            ))
            .len()
    }

    fn dropped(&self, number: usize) -> bool {
        self.metrics
            .render()
            .unwrap()
            .contains(&format!("events_dropped_total {number}\n"))
    }

    /// Runs the recorder until this is true.
    async fn until(&self, is_reached: impl Fn() -> bool) {
        let cluster = Arc::new(self.objects.cluster());
        let lease = OwnedName {
            namespace: "team".into(),
            name: ObjectName::new("controller").unwrap(),
        };
        let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
        let mut elector = Elector::new(cluster, lease, "a".into(), &metrics);
        let leadership = elector.leadership();
        let reached = async {
            while !is_reached() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = self.recorder.run(&leadership, &self.state) => {}
            () = elector.run() => {}
            () = reached => {}
            () = tokio::time::sleep(PATIENCE) => panic!("not reached"),
        }
    }
}

#[tokio::test]
async fn flood_of_a_namespace_does_not_delay_others() {
    let cluster = TestCluster::new().await;
    for at in 0..QUEUE + 500 {
        cluster.record("many", &format!("web-{at}"));
    }
    assert!(cluster.dropped(500));
    cluster.record("few", "one");
    assert!(cluster.dropped(501), "one of the many");
    cluster.until(|| cluster.written("few") == 1).await;
    assert!(cluster.written("many") < 50, "{}", cluster.written("many"));
}

/// The author of a Pod may name the uid of an owner in another namespace.
#[tokio::test]
async fn events_of_one_owner_are_distinct_by_namespace() {
    let cluster = TestCluster::new().await;
    let owner = tolerarch_kubernetes::cluster::OwnerReference {
        uid: "victim".into(),
        ..Default::default()
    };
    for namespace in ["hostile", "team"] {
        let event = ObjectEvent::on_owner(&pod(namespace, "web"), owner.clone(), POOL_CLOSED);
        cluster.recorder.record(event, || "note".to_owned());
    }
    cluster
        .until(|| cluster.written("hostile") == 1 && cluster.written("team") == 1)
        .await;
}

#[tokio::test]
async fn event_is_written_once_unless_it_was_dropped() {
    let cluster = TestCluster::new().await;
    for at in 0..=QUEUE {
        cluster.record("team", &format!("web-{at}"));
    }
    assert!(cluster.dropped(1));
    cluster.record("team", "web-0");
    assert!(cluster.dropped(1), "it is queued already");
    cluster.record("team", &format!("web-{QUEUE}"));
    assert!(cluster.dropped(2), "there is no room yet");
    cluster.until(|| cluster.written("team") > 10).await;
    // The queue is empty at first if this replica leads after another one.
    *cluster.recorder.queue.lock() = Queue::default();
    cluster.record("team", "web-0");
    cluster.record("team", "last");
    let is_last = |event: &serde_json::Value| event["regarding"]["name"] == "last";
    cluster
        .until(|| cluster.objects.all("/apis/events").iter().any(is_last))
        .await;
    assert_eq!(
        cluster.state.get(),
        State::Healthy,
        "an event that exists already is no failure"
    );
}

#[tokio::test]
async fn refusing_namespace_is_paused() {
    let cluster = TestCluster::new().await;
    cluster
        .objects
        .refuse(Some((Method::POST, "/namespaces/refuses/", 403)));
    for at in 0..100 {
        cluster.record("refuses", &format!("web-{at}"));
    }
    for at in 0..20 {
        cluster.record("takes", &format!("web-{at}"));
    }
    let all = r#"events_total{reason="PoolClosed"} 20"#;
    cluster
        .until(|| cluster.metrics.render().unwrap().contains(all))
        .await;
    assert_eq!(
        (cluster.written("takes"), cluster.objects.creations()),
        (20, 21),
        "one was tried"
    );
}
