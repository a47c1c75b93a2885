use serde_json::{Value, json};

use super::*;
use crate::{ControllerMetrics, Elector, EventLoop};
use tolerarch_engine::decide::testing::{BOTH, Bench};
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_kubernetes::cluster::{LeaseName, ObjectName};
use tolerarch_support::health::Reported;
use tolerarch_support::metrics::Metrics;

/// A cluster with a registry, and a controller that leads.
struct World {
    bench: Bench,
    lists: Lists,
    objects: Objects,
}

impl World {
    async fn new() -> Self {
        let (bench, lists, objects) = (Bench::new().await, Lists::start().await, Objects::start().await);
        for (name, mode) in [("team", "on"), ("out", "off")] {
            let path = format!("/api/v1/namespaces/{name}");
            objects.put(&path, json!({"metadata": {"name": name, "labels": {"tolerarch.io/mode": mode}}}));
        }
        for architecture in ["amd64", "arm64"] {
            let info = json!({"architecture": architecture, "operatingSystem": "linux"});
            let node = json!({"metadata": {"name": architecture}, "status": {"nodeInfo": info}});
            objects.put(&format!("/api/v1/nodes/{architecture}"), node);
        }
        Self { bench, lists, objects }
    }

    /// A Pod on a node, whose container fares like this.
    fn pod(&self, namespace: &str, name: &str, image: &str, state: &Value) {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
            "spec": {"nodeName": "arm64", "containers": [{"name": "app", "image": image}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "app", "state": state}]},
        });
        self.lists.put(StoredPod::PATH, pod);
    }

    /// What the container of a Pod has written.
    fn log(&self, pod: &str, line: &str) {
        self.objects.put(&format!("/api/v1/namespaces/team/pods/{pod}/log"), json!({"line": line}));
    }

    /// The Pods that were told, and what.
    fn told(&self) -> Vec<[String; 2]> {
        let of = |event: &Value| {
            assert_eq!((&event["reason"], &event["type"]), (&json!("WrongArchitecture"), &json!("Warning")));
            ["/regarding/name", "/note"].map(|key| event.pointer(key).unwrap().as_str().unwrap().to_owned())
        };
        let mut told: Vec<[String; 2]> = self.objects.all("/apis/events").iter().map(of).collect();
        told.sort_unstable();
        told
    }

    /// Runs the controller until this is so.
    async fn until(&self, pod_logs: bool, what: impl Fn() -> bool) {
        let cluster = Arc::new(self.objects.cluster());
        let lease = LeaseName { namespace: "team".into(), name: ObjectName::new("controller").unwrap() };
        let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
        let mut elector = Elector::new(Arc::clone(&cluster), lease, "a".into(), &metrics);
        let recorder = Recorder::new(metrics);
        let settings = ControllerSettings { pod_logs, ..ControllerSettings::default() };
        let (_sender, settings) = watch::channel(settings);
        let mut events = EventLoop {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            recorder: recorder.clone(),
            instance: "a".into(),
            state: Reported::default(),
        };
        let mut failing = FailingPods {
            leadership: elector.leadership(),
            cluster,
            watcher: self.lists.watcher(),
            current: self.bench.current.clone(),
            settings,
            recorder,
            conditions: Conditions::default(),
        };
        let reached = async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = failing.run() => {}
            () = events.run() => {}
            () = elector.run() => {}
            () = reached => {}
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("not reached: {:?}", self.told()),
        }
    }
}

/// Ended at once, just now.
fn ended(message: &str) -> Value {
    let now = tolerarch_kubernetes::cluster::micro_time();
    json!({"terminated": {"exitCode": 255, "message": message, "startedAt": now, "finishedAt": now}})
}

const EXEC: &str = "exec /app: exec format error";

#[tokio::test]
async fn what_dies_although_its_image_claims_the_architecture_is_told() {
    let world = World::new().await;
    let (both, one) = (world.bench.image("both", &BOTH), world.bench.image("one", &["linux/amd64"]));
    let pull = json!({"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"}});
    world.pod("team", "lies", &both, &ended(EXEC));
    world.pod("team", "moved", &both, &pull);
    world.pod("team", "lacks", &one, &pull);
    // These are not told.
    world.pod("team", "misplaced", &one, &ended(EXEC));
    world.pod("out", "opted-out", &both, &ended(EXEC));
    world.pod("team", "other", &both, &ended("out of memory"));
    world.pod("team", "silent", &both, &ended(""));
    world.log("silent", EXEC);
    world.pod("team", "zz-last", &both, &ended(EXEC));
    world.until(false, || world.told().len() >= 4).await;
    let told = world.told();
    let names: Vec<&str> = told.iter().map(|[name, _]| &**name).collect();
    assert_eq!(names, ["lacks", "lies", "moved", "zz-last"]);
    for (at, parts) in [
        (0, ["cannot start on the node arm64 (arm64)", "runs on linux/amd64 only"]),
        (1, ["container app ended by an exec format error on the node arm64 (arm64)", &both]),
        (2, ["cannot start on the node arm64 (arm64)", "which the registry says runs there"]),
    ] {
        assert!(parts.iter().all(|part| told[at][1].contains(part)), "{:?}", told[at]);
    }
}

#[tokio::test]
async fn the_last_line_of_a_log_tells_where_that_is_allowed() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    for (pod, line) in [("silent", EXEC), ("other", "panic: exec failed")] {
        world.pod("team", pod, &both, &ended(""));
        world.log(pod, line);
    }
    world.pod("team", "without-a-log", &both, &ended(""));
    world.pod("team", "zz-last", &both, &ended(""));
    world.log("zz-last", EXEC);
    world.until(true, || world.told().len() >= 2).await;
    let names: Vec<String> = world.told().into_iter().map(|[name, _]| name).collect();
    assert_eq!(names, ["silent", "zz-last"]);
}

#[tokio::test]
async fn one_that_could_not_be_looked_at_is_looked_at_again_when_it_changes() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    let node = world.objects.get("/api/v1/nodes/arm64").unwrap();
    world.objects.delete("/api/v1/nodes/arm64");
    world.pod("team", "lies", &both, &ended(EXEC));
    let looks = std::cell::Cell::new(0);
    world
        .until(false, || {
            looks.set(looks.get() + 1);
            if looks.get() == 20 {
                assert!(world.told().is_empty());
                world.objects.put("/api/v1/nodes/arm64", node.clone());
            }
            if looks.get() % 20 == 0 {
                world.pod("team", "lies", &both, &ended(EXEC));
            }
            world.told().len() == 1
        })
        .await;
}

/// Also where other looks need no such right, and where no Pod needs it any more.
#[tokio::test]
async fn a_right_that_is_missing_shows_until_it_is_back() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    world.pod("team", "silent", &both, &ended(""));
    world.log("silent", EXEC);
    let settings = ControllerSettings { pod_logs: true, ..ControllerSettings::default() };
    let (_sender, settings) = watch::channel(settings);
    let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
    let failing = FailingPods {
        leadership: Leadership::held(),
        cluster: Arc::new(world.objects.cluster()),
        watcher: world.lists.watcher(),
        current: world.bench.current.clone(),
        settings,
        recorder: Recorder::new(metrics),
        conditions: Conditions::default(),
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = tokio::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let checked = async {
        for (what, path) in [(NO_LOGS, "/log"), (NO_NODES, "/nodes/"), (NO_NAMESPACES, "/namespaces/team")] {
            world.objects.refuse(Some((http::Method::GET, path, 403)));
            world.pod("team", &format!("silent-{}", path.len()), &both, &ended(""));
            until(what, &|| failing.conditions.has(what)).await;
            world.pod("team", &format!("lies-{}", path.len()), &both, &ended(EXEC));
            for refused in [Some((http::Method::GET, path, 403)), None] {
                world.objects.refuse(refused.clone());
                let before = world.objects.requests();
                tokio::time::pause();
                tokio::time::advance(TRY).await;
                tokio::time::resume();
                until(what, &|| world.objects.requests() > before).await;
                until(what, &|| failing.conditions.has(what) == refused.is_some()).await;
            }
        }
    };
    tokio::select! {
        () = failing.follow() => {}
        () = checked => {}
    }
}
