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

struct World {
    objects: Objects,
    metrics: Metrics,
    recorder: Recorder,
    state: Reported,
}

impl World {
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

    /// Writes until this is so.
    async fn until(&self, what: impl Fn() -> bool) {
        let cluster = Arc::new(self.objects.cluster());
        let lease = OwnedName {
            namespace: "team".into(),
            name: ObjectName::new("controller").unwrap(),
        };
        let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
        let mut elector = Elector::new(cluster, lease, "a".into(), &metrics);
        let leadership = elector.leadership();
        let reached = async {
            while !what() {
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
async fn a_namespace_that_floods_keeps_none_waiting() {
    let world = World::new().await;
    for at in 0..QUEUE + 500 {
        world.record("many", &format!("web-{at}"));
    }
    assert!(world.dropped(500));
    world.record("few", "one");
    assert!(world.dropped(501), "of the many");
    world.until(|| world.written("few") == 1).await;
    assert!(world.written("many") < 50, "{}", world.written("many"));
}

/// The author of a Pod may name the owner of another namespace's Pods, by its uid.
#[tokio::test]
async fn no_namespace_tells_what_is_to_be_told_of_another() {
    let world = World::new().await;
    let owner = tolerarch_kubernetes::cluster::OwnerReference {
        uid: "victim".into(),
        ..Default::default()
    };
    for namespace in ["hostile", "team"] {
        let event = ObjectEvent::on_owner(&pod(namespace, "web"), owner.clone(), POOL_CLOSED);
        world.recorder.record(event, || "told".to_owned());
    }
    world
        .until(|| world.written("hostile") == 1 && world.written("team") == 1)
        .await;
}

#[tokio::test]
async fn an_event_is_told_once_and_one_that_was_dropped_again() {
    let world = World::new().await;
    for at in 0..=QUEUE {
        world.record("team", &format!("web-{at}"));
    }
    assert!(world.dropped(1));
    world.record("team", "web-0");
    assert!(world.dropped(1), "it waits");
    world.record("team", &format!("web-{QUEUE}"));
    assert!(world.dropped(2), "there is no room yet");
    world.until(|| world.written("team") > 10).await;
    // What waited when another replica led is forgotten; this one would be the leader after it.
    *world.recorder.queue.lock() = Queue::default();
    world.record("team", "web-0");
    world.record("team", "last");
    let is_told = |event: &serde_json::Value| event["regarding"]["name"] == "last";
    world
        .until(|| world.objects.all("/apis/events").iter().any(is_told))
        .await;
    assert_eq!(
        world.state.get(),
        State::Healthy,
        "that there is one already is no failure"
    );
}

#[tokio::test]
async fn a_namespace_that_refuses_events_rests_and_others_go_on() {
    let world = World::new().await;
    world
        .objects
        .refuse(Some((Method::POST, "/namespaces/refuses/", 403)));
    for at in 0..100 {
        world.record("refuses", &format!("web-{at}"));
    }
    for at in 0..20 {
        world.record("takes", &format!("web-{at}"));
    }
    let all = r#"events_total{reason="PoolClosed"} 20"#;
    world
        .until(|| world.metrics.render().unwrap().contains(all))
        .await;
    assert_eq!(
        (world.written("takes"), world.objects.creations()),
        (20, 21),
        "one was tried"
    );
}
