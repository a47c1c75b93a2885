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
struct TestCluster {
    bench: TestEngine,
    lists: Lists,
    objects: Objects,
    metrics: Metrics,
    counts: ControllerMetrics,
}

impl TestCluster {
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

    /// Adds a Pod for which the scheduler has found no node.
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

    /// Runs the controller until this is true.
    async fn until(&self, is_reached: impl Fn() -> bool) {
        self.until_with(ControllerSettings::default(), is_reached)
            .await;
    }

    /// Returns the events in a namespace: Pod, reason and note.
    fn events(&self, namespace: &str) -> Vec<[String; 3]> {
        let events = self.objects.all(&format!(
            "/apis/events.k8s.io/v1/namespaces/{namespace}/events/"
        ));
        let mut texts = Vec::new();
        for event in &events {
            let text = |pointer| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            texts.push(["/regarding/name", "/reason", "/note"].map(text));
        }
        texts.sort_unstable();
        texts
    }

    fn counts(&self, line: &str) -> bool {
        self.metrics.render().unwrap().contains(line)
    }

    async fn until_with(&self, settings: ControllerSettings, is_reached: impl Fn() -> bool) {
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
            while !is_reached() {
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
async fn repair_adds_only_tolerations_and_annotations() {
    let cluster = TestCluster::new().await;
    let image = cluster.bench.image("multi", &BOTH);
    let repo = cluster.bench.remote.repo("multi");
    repo.fault(Some(Fault::status(503)));
    let pods: Vec<Value> = (0..100)
        .map(|at| cluster.pod("team", &format!("web-{at}"), &image))
        .collect();
    let back = std::cell::Cell::new(false);
    cluster
        .until(|| {
            if !back.get() && cluster.bench.remote.requests().len() >= 4 {
                assert!(!pods.iter().any(|pod| cluster.is_repaired(pod)));
                repo.fault(None);
                back.set(true);
            }
            cluster
                .metrics
                .render()
                .unwrap()
                .contains(r#"repairs_total{result="repaired"} 100"#)
        })
        .await;
    for pod in &pods {
        let mut stored = cluster.stored(pod);
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
async fn pods_out_of_scope_are_unchanged() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    let one = cluster.bench.image("one", &["linux/amd64"]);
    let changed = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = cluster.pod("team", name, &both);
        change(&mut pod);
        cluster.put(&pod);
        pod
    };
    let owner = json!([{"kind": "DaemonSet", "name": "d", "controller": true}]);
    let pods = [
        cluster.pod("team", "one-platform", &one),
        cluster.pod("out", "out-of-scope", &both),
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
    // The Pod has been replaced by another one of the same name.
    let replaced = cluster.pod("team", "replaced", &both);
    let mut other = replaced.clone();
    other["metadata"]["uid"] = "other".into();
    cluster.objects.put(&path(&replaced), other);
    let last = cluster.pod("team", "zz-last", &both);
    let refused = r#"repairs_total{result="refused"} 1"#;
    cluster
        .until(|| cluster.is_repaired(&last) && cluster.metrics.render().unwrap().contains(refused))
        .await;
    for pod in pods.iter().chain([&replaced]) {
        assert!(!cluster.is_repaired(pod), "{pod}");
    }
}

#[tokio::test]
async fn events_report_blockers_and_repairs() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    let one = cluster.bench.image("one", &["linux/amd64"]);
    cluster.pod("team", "closed", &one);
    cluster.pod("team", "opened", &both);
    cluster.pod("out", "out-of-scope", &one);
    let mut observed = cluster.pod("team", "observed", &one);
    observed["metadata"]["labels"]["tolerarch.io/mode"] = "observe".into();
    cluster.put(&observed);
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
    cluster
        .until(|| counted.iter().all(|line| cluster.counts(line)))
        .await;
    assert_eq!(cluster.events("team"), expected);
    let event = cluster.objects.all("/apis/events").remove(0);
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
    // The next leader finds the existing event, and a change of the Pod is not reported again.
    let last = cluster.pod("team", "zz-last", &both);
    cluster
        .until(|| {
            cluster.pod("team", "closed", &one);
            cluster.is_repaired(&last) && cluster.counts(r#"events_total{reason="PoolOpened"} 2"#)
        })
        .await;
    assert!(
        cluster.events("team").len() == 3
            && cluster.counts(r#"events_total{reason="PoolClosed"} 1"#)
    );
    assert!(cluster.events("out").is_empty());
}

/// Returns settings with all features of the loop disabled.
fn disabled() -> ControllerSettings {
    ControllerSettings {
        repair: false,
        events: false,
        learn: false,
        ..ControllerSettings::default()
    }
}

#[tokio::test]
async fn repair_and_events_are_enabled_separately() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    let one = cluster.bench.image("one", &["linux/amd64"]);
    let opened = cluster.pod("team", "opened", &both);
    let closed = cluster.pod("team", "closed", &one);
    let repairs = ControllerSettings {
        repair: true,
        ..disabled()
    };
    cluster
        .until_with(repairs, || cluster.is_repaired(&opened))
        .await;
    assert_eq!(cluster.objects.creations(), 0);
    let other = cluster.pod("team", "zz-other", &both);
    let reports = ControllerSettings {
        events: true,
        ..disabled()
    };
    cluster
        .until_with(reports, || !cluster.events("team").is_empty())
        .await;
    assert_eq!(cluster.events("team").len(), 1);
    assert!(!cluster.is_repaired(&other) && !cluster.is_repaired(&closed));
}

#[tokio::test]
async fn disabled_loop_follows_nothing() {
    let cluster = TestCluster::new().await;
    let begun = Instant::now();
    cluster
        .until_with(disabled(), || begun.elapsed() > Duration::from_millis(500))
        .await;
    assert_eq!(cluster.lists.queries(), [""; 0]);
}

#[tokio::test]
async fn learning_alone_follows_pods_without_decisions() {
    let cluster = TestCluster::new().await;
    let unknown = cluster.bench.image("unknown", &BOTH);
    cluster.pod("team", "unknown", &unknown);
    let learns = ControllerSettings {
        learn: true,
        ..disabled()
    };
    let begun = Instant::now();
    let is_over =
        || !cluster.lists.queries().is_empty() && begun.elapsed() > Duration::from_millis(1000);
    cluster.until_with(learns, is_over).await;
    assert!(cluster.bench.remote.requests().is_empty());
    for query in cluster.lists.queries() {
        assert!(query.contains("spec.nodeName"), "not of Pods: {query}");
    }
}

/// Each right is tested separately: that the other rights are granted must not hide the fault.
#[tokio::test]
async fn missing_right_is_a_fault_until_it_is_granted() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    cluster.pod("team", "web", &both);
    let settings = watch::Sender::new(ControllerSettings::default());
    let context = context(&cluster.bench, &cluster.lists, &cluster.objects, &settings);
    let component =
        tolerarch_support::health::Component::reported("pending-pods", context.state.clone());
    let health =
        tolerarch_support::health::Health::register(&cluster.metrics, vec![component]).unwrap();
    let is_healthy = || {
        health.check();
        cluster.counts(r#"component_healthy{component="pending-pods"} 1"#)
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = tokio::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let checked = async {
        let lists = |path: &'static str, status| cluster.lists.refuse(path, status);
        let objects = |refused| cluster.objects.refuse(refused);
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
        // Advances the time until the webhook configurations are read again.
        let pass = async |what: &str| {
            let before = cluster.objects.requests();
            tokio::time::pause();
            tokio::time::advance(SCOPE_PERIOD).await;
            tokio::time::resume();
            until(what, &|| cluster.objects.requests() > before).await;
        };
        for (what, revoke, grant) in &rights {
            revoke();
            pass(what).await;
            until(what, &|| context.state.has(what)).await;
            // The other rights are used in the meantime.
            for _ in 0..3 {
                pass(what).await;
                assert!(context.state.has(what) && !is_healthy(), "{what}");
            }
            grant();
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
