use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Fault;
use tokio::sync::watch;

use super::*;
use crate::testing::{PATIENCE, context, run};
use crate::{ControllerMetrics, ControllerSettings, Elector, Recorder};
use tolerarch_engine::decide::testing::{BOTH, TestEngine};
use tolerarch_images::credentials::Credentials;
use tolerarch_images::resolver::CacheSettings;
use tolerarch_kubernetes::cluster::ObjectName;
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_support::health::Reported;
use tolerarch_support::metrics::Metrics;

const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-tolerarch";

/// A cluster with a registry, and a controller that leads.
struct World {
    bench: TestEngine,
    lists: Lists,
    objects: Objects,
    metrics: Metrics,
    counts: ControllerMetrics,
}

impl World {
    async fn new() -> Self {
        let second = Duration::from_secs(1);
        let cache = CacheSettings {
            unreachable: second,
            timeout: second,
            ..CacheSettings::default()
        };
        let bench = TestEngine::with_cache(Credentials::default(), cache).await;
        let lists = Lists::start().await;
        let objects = Objects::start().await;
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods"]});
        let off = json!({"key": "tolerarch.io/mode", "operator": "NotIn", "values": ["off"]});
        let webhook = json!({
            "clientConfig": {"service": {"path": "/mutate"}}, "rules": [rule],
            "namespaceSelector": {"matchExpressions": [off]},
        });
        objects.put(CONFIGURATION, json!({"webhooks": [webhook]}));
        for (name, mode) in [("team", "on"), ("out", "off")] {
            lists.put(
                "/api/v1/namespaces",
                json!({"metadata": {"name": name, "labels": {"tolerarch.io/mode": mode}}}),
            );
        }
        let metrics = Metrics::new([]).unwrap();
        let counts = ControllerMetrics::register(&metrics).unwrap();
        Self {
            bench,
            lists,
            objects,
            metrics,
            counts,
        }
    }

    /// A Pod that the scheduler found no place for.
    fn pod(&self, namespace: &str, name: &str, image: &str) -> Value {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": {"app": "web"},
                "annotations": {"example.com/own": "stays"},
            },
            "spec": {
                "containers": [{"name": "app", "image": image}],
                "tolerations": [{"key": "example.com/own", "operator": "Exists"}],
            },
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
        });
        self.put(&pod);
        pod
    }

    fn put(&self, pod: &Value) {
        self.objects.put(&path(pod), pod.clone());
        self.lists.put(StoredPod::PATH, pod.clone());
    }

    fn stored(&self, pod: &Value) -> Value {
        self.objects.get(&path(pod)).unwrap()
    }

    /// Runs the controller until this is so.
    async fn until(&self, what: impl Fn() -> bool) {
        self.until_with(ControllerSettings::default(), what).await;
    }

    /// The events in a namespace, as the Pod, the reason and what they say.
    fn events(&self, namespace: &str) -> Vec<[String; 3]> {
        let events = self.objects.all(&format!(
            "/apis/events.k8s.io/v1/namespaces/{namespace}/events/"
        ));
        let mut told: Vec<[String; 3]> = events
            .iter()
            .map(|event| {
                let text = |pointer| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
                ["/regarding/name", "/reason", "/note"].map(text)
            })
            .collect();
        told.sort_unstable();
        told
    }

    fn counts(&self, line: &str) -> bool {
        self.metrics.render().unwrap().contains(line)
    }

    async fn until_with(&self, settings: ControllerSettings, what: impl Fn() -> bool) {
        let cluster = Arc::new(self.objects.cluster());
        let lease = tolerarch_kubernetes::cluster::OwnedName {
            namespace: "team".into(),
            name: ObjectName::new("controller").unwrap(),
        };
        let mut elector = Elector::new(Arc::clone(&cluster), lease, "a".into(), &self.counts);
        let settings = watch::Sender::new(settings);
        let context = context(&self.bench, &self.lists, &self.objects, &settings);
        let recorder = Recorder::new(cluster, "a".into(), self.counts.clone());
        let leadership = elector.leadership();
        let metrics = self.counts.clone();
        let context = Context {
            leadership,
            metrics,
            recorder,
            ..context
        };
        let of_events = Reported::default();
        let reached = async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = elector.run() => {}
            () = run("pending-pods", &context) => {}
            () = context.recorder.run(&context.leadership, &of_events) => {}
            () = reached => {}
            () = tokio::time::sleep(PATIENCE) => panic!("not reached"),
        }
    }

    fn is_repaired(&self, pod: &Value) -> bool {
        self.stored(pod)["metadata"]["annotations"]["tolerarch.io/pools"] == "multi-arch"
    }
}

fn path(pod: &Value) -> String {
    let [namespace, name] = ["namespace", "name"].map(|key| pod["metadata"][key].as_str().unwrap());
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

#[tokio::test]
async fn pods_are_repaired_when_their_registry_is_back_and_nothing_else_of_them_changes() {
    let world = World::new().await;
    let image = world.bench.image("multi", &BOTH);
    let repo = world.bench.remote.repo("multi");
    repo.fault(Some(Fault::status(503)));
    let pods: Vec<Value> = (0..100)
        .map(|at| world.pod("team", &format!("web-{at}"), &image))
        .collect();
    let back = std::cell::Cell::new(false);
    world
        .until(|| {
            if !back.get() && world.bench.remote.requests().len() >= 4 {
                assert!(!pods.iter().any(|pod| world.is_repaired(pod)));
                repo.fault(None);
                back.set(true);
            }
            world
                .metrics
                .render()
                .unwrap()
                .contains(r#"repairs_total{result="repaired"} 100"#)
        })
        .await;
    for pod in &pods {
        let mut stored = world.stored(pod);
        let added = stored["spec"]["tolerations"]
            .as_array_mut()
            .unwrap()
            .pop()
            .unwrap();
        let pool =
            json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"});
        assert_eq!(added, pool);
        stored["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("tolerarch.io/pools");
        stored["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        assert_eq!(stored, *pod);
    }
}

#[tokio::test]
async fn pods_that_are_not_its_concern_stay_as_they_are() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    let one = world.bench.image("one", &["linux/amd64"]);
    let changed = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = world.pod("team", name, &both);
        change(&mut pod);
        world.put(&pod);
        pod
    };
    let owner = json!([{"kind": "DaemonSet", "name": "d", "controller": true}]);
    let pods = [
        world.pod("team", "one-platform", &one),
        world.pod("out", "out-of-scope", &both),
        changed("bound", &|pod| pod["spec"]["nodeName"] = "node".into()),
        changed("nominated", &|pod| {
            pod["status"]["nominatedNodeName"] = "node".into();
        }),
        changed("going", &|pod| {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }),
        changed("new", &|pod| pod["status"] = json!({"phase": "Pending"})),
        changed("daemon", &|pod| {
            pod["metadata"]["ownerReferences"] = owner.clone();
        }),
        changed("off", &|pod| {
            pod["metadata"]["labels"]["tolerarch.io/mode"] = "off".into();
        }),
    ];
    // Another Pod by the same name since.
    let replaced = world.pod("team", "replaced", &both);
    let mut other = replaced.clone();
    other["metadata"]["uid"] = "other".into();
    world.objects.put(&path(&replaced), other);
    let last = world.pod("team", "zz-last", &both);
    let refused = r#"repairs_total{result="refused"} 1"#;
    world
        .until(|| world.is_repaired(&last) && world.metrics.render().unwrap().contains(refused))
        .await;
    for pod in pods.iter().chain([&replaced]) {
        assert!(!world.is_repaired(pod), "{pod}");
    }
}

#[tokio::test]
async fn pods_show_why_they_stay_closed_and_what_was_opened() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    let one = world.bench.image("one", &["linux/amd64"]);
    world.pod("team", "closed", &one);
    world.pod("team", "opened", &both);
    world.pod("out", "out-of-scope", &one);
    let mut observed = world.pod("team", "observed", &one);
    observed["metadata"]["labels"]["tolerarch.io/mode"] = "observe".into();
    world.put(&observed);
    let expected = [
        [
            "closed",
            "PoolClosed",
            &format!("multi-arch stays closed: {one} lacks linux/arm64"),
        ],
        [
            "opened",
            "PoolOpened",
            "opened multi-arch to this Pod after its creation",
        ],
    ];
    let counted =
        ["PoolClosed", "PoolOpened"].map(|reason| format!("events_total{{reason=\"{reason}\"}} 1"));
    world
        .until(|| counted.iter().all(|line| world.counts(line)))
        .await;
    assert_eq!(world.events("team"), expected);
    let event = world.objects.all("/apis/events").remove(0);
    for (pointer, value) in [
        ("/regarding/kind", "Pod"),
        ("/regarding/apiVersion", "v1"),
        ("/reportingController", "tolerarch.io/controller"),
        ("/reportingInstance", "a"),
        ("/type", "Normal"),
    ] {
        assert_eq!(event.pointer(pointer).unwrap(), value, "{event}");
    }
    assert!(
        event["regarding"]["uid"]
            .as_str()
            .unwrap()
            .starts_with("uid-"),
        "{event}"
    );
    // The next leader finds the event of the one before it, and Pods that are changed are not told again.
    let last = world.pod("team", "zz-last", &both);
    world
        .until(|| {
            world.pod("team", "closed", &one);
            world.is_repaired(&last) && world.counts(r#"events_total{reason="PoolOpened"} 2"#)
        })
        .await;
    assert!(
        world.events("team").len() == 3 && world.counts(r#"events_total{reason="PoolClosed"} 1"#)
    );
    assert!(world.events("out").is_empty());
}

#[tokio::test]
async fn what_is_off_does_nothing() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    let one = world.bench.image("one", &["linux/amd64"]);
    let opened = world.pod("team", "opened", &both);
    let closed = world.pod("team", "closed", &one);
    let only = |repair, events| ControllerSettings {
        repair,
        events,
        learn: false,
        ..ControllerSettings::default()
    };
    world
        .until_with(only(true, false), || world.is_repaired(&opened))
        .await;
    assert_eq!(world.objects.creations(), 0);
    let other = world.pod("team", "zz-other", &both);
    world
        .until_with(only(false, true), || !world.events("team").is_empty())
        .await;
    assert_eq!(world.events("team").len(), 1);
    assert!(!world.is_repaired(&other) && !world.is_repaired(&closed));
    let asked = world.lists.queries().len();
    let begun = Instant::now();
    world
        .until_with(only(false, false), || {
            begun.elapsed() > Duration::from_millis(500)
        })
        .await;
    assert_eq!(world.lists.queries().len(), asked, "nothing is followed");
    // What is only learned from is followed, and not decided on.
    let [pods, requests] = [asked, world.bench.remote.requests().len()];
    let unknown = world.bench.image("unknown", &BOTH);
    world.pod("team", "unknown", &unknown);
    let learns = ControllerSettings {
        learn: true,
        ..only(false, false)
    };
    let begun = Instant::now();
    let is_over =
        || world.lists.queries().len() > pods && begun.elapsed() > Duration::from_millis(1000);
    world.until_with(learns, is_over).await;
    assert_eq!(world.bench.remote.requests().len(), requests);
    let lists = world.lists.queries().split_off(pods);
    assert!(
        lists.iter().all(|query| query.contains("spec.nodeName")),
        "Pods alone: {lists:?}"
    );
}

/// Each right by itself: that the others are there hides nothing, however long it takes.
#[tokio::test]
async fn a_right_that_is_missing_shows_until_it_is_back() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    world.pod("team", "web", &both);
    let settings = watch::Sender::new(ControllerSettings::default());
    let context = context(&world.bench, &world.lists, &world.objects, &settings);
    let component =
        tolerarch_support::health::Component::reported("pending-pods", context.state.clone());
    let health =
        tolerarch_support::health::Health::register(&world.metrics, vec![component]).unwrap();
    let is_healthy = || {
        health.check();
        world.counts(r#"component_healthy{component="pending-pods"} 1"#)
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = tokio::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let checked = async {
        let lists = |path: &'static str, status| world.lists.refuse(path, status);
        let objects = |refused| world.objects.refuse(refused);
        let get = (http::Method::GET, "mutatingwebhookconfigurations", 403);
        let patch = (http::Method::PATCH, "/pods/", 403);
        type Step<'a> = Box<dyn Fn() + 'a>;
        let rights: [(&str, Step<'_>, Step<'_>); 4] = [
            (
                FORBIDDEN,
                Box::new(|| objects(Some(patch.clone()))),
                Box::new(|| objects(None)),
            ),
            (
                SCOPE_UNREAD,
                Box::new(|| objects(Some(get.clone()))),
                Box::new(|| objects(None)),
            ),
            (
                PODS_UNREAD,
                Box::new(|| lists(StoredPod::PATH, Some(403))),
                Box::new(|| lists(StoredPod::PATH, None)),
            ),
            (
                NAMESPACES_UNREAD,
                Box::new(|| lists("/api/v1/namespaces", Some(403))),
                Box::new(|| lists("/api/v1/namespaces", None)),
            ),
        ];
        // As long as until the webhook configurations are read again, which they are then.
        let pass = async |what: &str| {
            let before = world.objects.requests();
            tokio::time::pause();
            tokio::time::advance(SCOPE_PERIOD).await;
            tokio::time::resume();
            until(what, &|| world.objects.requests() > before).await;
        };
        for (what, take, give) in &rights {
            take();
            pass(what).await;
            until(what, &|| context.state.has(what)).await;
            // Meanwhile the others are used again and again.
            for _ in 0..3 {
                pass(what).await;
                assert!(context.state.has(what) && !is_healthy(), "{what}");
            }
            give();
            pass(what).await;
            pass(what).await;
            until(what, &|| is_healthy()).await;
        }
    };
    tokio::select! {
        () = follow(&context) => {}
        () = checked => {}
    }
}
