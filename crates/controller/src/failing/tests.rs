use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Fault;
use tokio::sync::watch;

use super::*;
use crate::testing::{PATIENCE, context, learner, run};
use crate::{ControllerMetrics, Elector, Leadership};
use tolerarch_core::policy::Policy;
use tolerarch_engine::decide::testing::{BOTH, TestEngine};
use tolerarch_engine::lessons::{Lessons, Timestamp};
use tolerarch_images::registry::Digest;
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_kubernetes::cluster::{ObjectName, OwnedName};
use tolerarch_support::health::Reported;
use tolerarch_support::metrics::Metrics;

fn failed_image(digest: &str) -> Lesson {
    Lesson::Image(FailedImage {
        digest: Digest::of_text(digest),
        architecture: "arm64".to_owned(),
        evidence: Evidence::ExecFormatError,
        namespace: "team".to_owned(),
        nodes: vec![node_id("arm64")],
    })
}

/// A cluster with a registry, and a controller that leads.
struct World {
    bench: TestEngine,
    lists: Lists,
    objects: Objects,
}

impl World {
    async fn new() -> Self {
        let bench = TestEngine::new().await;
        let lists = Lists::start().await;
        let objects = Objects::start().await;
        for (name, mode) in [("team", "on"), ("out", "off")] {
            let path = format!("/api/v1/namespaces/{name}");
            objects.put(
                &path,
                json!({"metadata": {"name": name, "labels": {"tolerarch.io/mode": mode}}}),
            );
        }
        for (name, architecture) in [("amd64", "amd64"), ("arm64", "arm64"), ("second", "arm64")] {
            let info = json!({"architecture": architecture, "operatingSystem": "linux"});
            let metadata = json!({"name": name, "uid": format!("uid-of-node-{name}")});
            let node = json!({"metadata": metadata, "status": {"nodeInfo": info}});
            objects.put(&format!("/api/v1/nodes/{name}"), node);
        }
        Self {
            bench,
            lists,
            objects,
        }
    }

    /// The reference of an image that has no index, for amd64.
    fn single(&self) -> String {
        let repo = self.bench.remote.repo("single");
        repo.image("linux/amd64", Some("v1"));
        repo.reference("v1")
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
        self.objects.put(
            &format!("/api/v1/namespaces/team/pods/{pod}/log"),
            json!({"line": line}),
        );
    }

    /// The Pods that were told, and what.
    fn told(&self) -> Vec<[String; 2]> {
        self.told_by("WrongArchitecture")
    }

    /// The objects with events of this reason, and their notes.
    fn told_by(&self, reason: &str) -> Vec<[String; 2]> {
        let of = |event: &Value| {
            assert_eq!(event["type"], json!("Warning"));
            ["/regarding/name", "/note"]
                .map(|key| event.pointer(key).unwrap().as_str().unwrap().to_owned())
        };
        let events = self.objects.all("/apis/events");
        let mut told: Vec<[String; 2]> = events
            .iter()
            .filter(|event| event["reason"] == reason)
            .map(of)
            .collect();
        told.sort_unstable();
        told
    }

    /// Runs the controller until this is so.
    async fn until(&self, pod_logs: bool, what: impl Fn() -> bool) {
        let reached = async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        self.run(pod_logs, reached).await;
    }

    /// Runs the controller until this is so, and no time passes meanwhile.
    async fn at_once(&self, what: impl Fn() -> bool) {
        tokio::time::pause();
        let reached = async {
            // Far more than it takes. The clock stands still while there is something to do.
            for _ in 0..2_000_000 {
                if what() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            panic!("not at once: {:?}", self.told());
        };
        self.run(false, reached).await;
        tokio::time::resume();
    }

    async fn run(&self, pod_logs: bool, reached: impl Future<Output = ()>) {
        let cluster = Arc::new(self.objects.cluster());
        let lease = OwnedName {
            namespace: "team".into(),
            name: ObjectName::new("controller").unwrap(),
        };
        let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
        let mut elector = Elector::new(cluster, lease, "a".into(), &metrics);
        let settings = watch::Sender::new(ControllerSettings {
            pod_logs,
            ..ControllerSettings::default()
        });
        let context = context(&self.bench, &self.lists, &self.objects, &settings);
        let context = Context {
            leadership: elector.leadership(),
            ..context
        };
        let of_events = Reported::default();
        tokio::select! {
            () = run("failing-pods", &context) => {}
            () = context.recorder.run(&context.leadership, &of_events) => {}
            () = elector.run() => {}
            () = reached => {}
            () = tokio::time::sleep(PATIENCE) => panic!("not reached: {:?}", self.told()),
        }
    }
}

/// Ended at once, just now.
fn ended(message: &str) -> Value {
    let now = tolerarch_kubernetes::cluster::micro_time();
    json!({"terminated": {"exitCode": 255, "message": message, "startedAt": now, "finishedAt": now}})
}

const EXEC: &str = "exec /app: exec format error";
const GVISOR: &str = "failed to start containerd task \"a\": OCI runtime start failed: starting container: starting sub-container [/app]: creating process: failed to load /app: exec format error: unknown";
const HOOK: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec /usr/bin/nvidia-ctk: exec format error: unknown";

#[tokio::test]
async fn what_dies_of_another_architecture_is_told_whatever_its_image_claims() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    let one = world.bench.image("one", &["linux/amd64"]);
    let pull = json!({"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"}});
    world.pod("team", "lies", &both, &ended(EXEC));
    world.pod("team", "moved", &both, &pull);
    world.pod("team", "lacks", &one, &pull);
    world.pod("team", "single", &world.single(), &ended(EXEC));
    // These are not told.
    world.pod("out", "opted-out", &both, &ended(EXEC));
    world.pod("team", "other", &both, &ended("out of memory"));
    world.pod("team", "silent", &both, &ended(""));
    world.log("silent", EXEC);
    world.pod("team", "zz-last", &both, &ended(EXEC));
    world.until(false, || world.told().len() >= 5).await;
    let told = world.told();
    let names: Vec<&str> = told.iter().map(|[name, _]| &**name).collect();
    assert_eq!(names, ["lacks", "lies", "moved", "single", "zz-last"]);
    for (at, parts) in [
        (
            0,
            [
                "cannot start on the node arm64 (arm64)",
                "runs on linux/amd64 only",
            ],
        ),
        (
            1,
            [
                "container app ended by an exec format error on the node arm64 (arm64)",
                &both,
            ],
        ),
        (
            2,
            [
                "cannot start on the node arm64 (arm64)",
                "which the registry says runs there",
            ],
        ),
        (
            3,
            [
                "container app ended by an exec format error on the node arm64 (arm64)",
                "runs on linux/amd64 only, and nodes pull",
            ],
        ),
    ] {
        assert!(
            parts.iter().all(|part| told[at][1].contains(part)),
            "{:?}",
            told[at]
        );
    }
}

#[tokio::test]
async fn the_last_line_of_a_log_tells_where_that_is_allowed() {
    let world = World::new().await;
    let both = world.bench.image("both", &BOTH);
    let single = world.single();
    for (pod, image, line) in [
        ("silent", &both, EXEC),
        ("single", &single, EXEC),
        ("other", &both, "panic: exec failed"),
    ] {
        world.pod("team", pod, image, &ended(""));
        world.log(pod, line);
    }
    world.pod("team", "without-a-log", &both, &ended(""));
    world.pod("team", "zz-last", &both, &ended(""));
    world.log("zz-last", EXEC);
    world.until(true, || world.told().len() >= 3).await;
    let names: Vec<String> = world.told().into_iter().map(|[name, _]| name).collect();
    assert_eq!(names, ["silent", "single", "zz-last"]);
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
    let settings = ControllerSettings {
        pod_logs: true,
        ..ControllerSettings::default()
    };
    let settings = watch::Sender::new(settings);
    let context = context(&world.bench, &world.lists, &world.objects, &settings);
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = tokio::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let checked = async {
        for (what, path) in [
            (NO_LOGS, "/log"),
            (NO_NODES, "/nodes/"),
            (NO_NAMESPACES, "/v1/namespaces/"),
        ] {
            world.objects.refuse(Some((http::Method::GET, path, 403)));
            world.pod("team", &format!("silent-{}", path.len()), &both, &ended(""));
            until(what, &|| context.state.has(what)).await;
            world.pod("team", &format!("lies-{}", path.len()), &both, &ended(EXEC));
            for refused in [Some((http::Method::GET, path, 403)), None] {
                world.objects.refuse(refused.clone());
                let before = world.objects.requests();
                tokio::time::pause();
                tokio::time::advance(TRY).await;
                tokio::time::resume();
                until(what, &|| world.objects.requests() > before).await;
                until(what, &|| context.state.has(what) == refused.is_some()).await;
            }
        }
    };
    tokio::select! {
        () = follow(&context) => {}
        () = checked => {}
    }
}

/// Its index differs from that of both.
const THREE: [&str; 3] = ["linux/amd64", "linux/arm64", "linux/s390x"];
const RECORD: &str = "/api/v1/namespaces/team/configmaps/tolerarch-controller-failed-images";

/// What is recorded, by now.
fn recorded(objects: &Objects) -> Lessons {
    let text = objects
        .get(RECORD)
        .and_then(|map| Some(map["data"]["record.json"].as_str()?.to_owned()));
    Lessons::of_text(&text.unwrap_or_default(), Timestamp::now())
}

impl World {
    /// A Pod whose container the runtime could not begin for its own program; the Pod sets more of it.
    fn fails(&self, name: &str, image: &str, digest: &str, more: &Value) {
        self.fails_on("arm64", GVISOR, name, image, digest, more);
    }

    /// The same on this node, in these words.
    fn fails_on(
        &self,
        node: &str,
        message: &str,
        name: &str,
        image: &str,
        digest: &str,
        more: &Value,
    ) {
        let now = tolerarch_kubernetes::cluster::micro_time();
        let state = json!({"terminated": {
            "exitCode": 128, "reason": "StartError", "message": message, "startedAt": now, "finishedAt": now,
        }});
        let mut container = json!({"name": "app", "image": image});
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let pod = json!({
            "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
            "spec": {"nodeName": node, "containers": [container]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "app", "imageID": format!("acme/app@{digest}"), "state": state},
            ]},
        });
        self.lists.put(StoredPod::PATH, pod);
    }

    fn digest(&self, name: &str) -> String {
        self.bench.remote.repo(name).digest_of("v1").unwrap()
    }

    /// Where the image of this name is kept from in a namespace.
    fn kept(&self, name: &str, namespace: &str) -> String {
        let record = recorded(&self.objects);
        let failure = record.failure(
            &Digest::of_text(&self.digest(name)),
            namespace,
            Timestamp::now(),
        );
        failure.map_or_else(String::new, |failure| failure.platforms.to_string())
    }
}

#[tokio::test]
async fn what_fails_is_recorded_for_those_whom_its_evidence_is_of_concern() {
    let world = World::new().await;
    let names = ["lies", "forged", "single"];
    let lies = world.bench.image("lies", &BOTH);
    let forged = world.bench.image("forged", &THREE);
    let single = world.single();
    world.fails("lies", &lies, &world.digest("lies"), &json!({}));
    world.fails(
        "forged",
        &forged,
        &world.digest("forged"),
        &json!({"command": ["/own"]}),
    );
    // It lacks the platform anyway.
    world.fails("single", &single, &world.digest("single"), &json!({}));
    let is_kept = |name: &str| !world.kept(name, "team").is_empty();
    world
        .until(false, || {
            world.told().len() == 3 && is_kept("lies") && is_kept("forged")
        })
        .await;
    assert_eq!(
        names.map(|name| world.kept(name, "team")),
        ["linux/arm64", "linux/arm64", ""]
    );
    assert_eq!(
        names.map(|name| world.kept(name, "other")),
        ["", "", ""],
        "one node may be broken"
    );
    let told = world.told();
    let own =
        "for a day or longer no more Pods of this namespace with it get tolerations for arm64";
    assert!(told[0][1].ends_with(own), "{told:?}");
    let and_others = format!("{own}, nor any others once it fails so on a second node");
    assert!(told[1][1].ends_with(&and_others), "{told:?}");
    assert!(!told[2][1].contains("for a day"), "{told:?}");
    // Again on the same node, then on a second one.
    world.fails("lies-again", &lies, &world.digest("lies"), &json!({}));
    world.until(false, || world.told().len() == 4).await;
    assert_eq!(world.kept("lies", "other"), "");
    for (name, image, more) in [
        ("lies", &lies, json!({})),
        ("forged", &forged, json!({"command": ["/own"]})),
    ] {
        let second = format!("{name}-second");
        world.fails_on("second", GVISOR, &second, image, &world.digest(name), &more);
    }
    world
        .until(false, || {
            world.told().len() == 6 && !world.kept("lies", "other").is_empty()
        })
        .await;
    assert_eq!(
        names.map(|name| world.kept(name, "other")),
        ["linux/arm64", "", ""]
    );
}

#[tokio::test]
async fn a_program_of_the_node_that_fails_is_told_of_the_node_and_not_recorded_of_the_image() {
    let world = World::new().await;
    let hooked = world.bench.image("hooked", &BOTH);
    let lies = world.bench.image("lies", &THREE);
    for (node, name) in [("arm64", "first"), ("second", "second")] {
        world.fails_on(
            node,
            HOOK,
            name,
            &hooked,
            &world.digest("hooked"),
            &json!({}),
        );
    }
    world.pod(
        "out",
        "opted-out",
        &hooked,
        &json!({"waiting": {"reason": "CreateContainerError", "message": HOOK}}),
    );
    // In the log of a container is what a hook within it has said.
    let in_log = "error running startContainer hook #0: fork/exec /hook: exec format error";
    world.pod("team", "in-log", &hooked, &ended(""));
    world.log("in-log", in_log);
    world.pod("team", "in-message", &hooked, &ended(in_log));
    world.fails("zz-last", &lies, &world.digest("lies"), &json!({}));
    world
        .until(true, || {
            world.told().len() == 1 && world.told_by("NodeProgramFailed").len() == 4
        })
        .await;
    assert_eq!(world.told()[0][0], "zz-last");
    assert_eq!(world.kept("hooked", "team"), "");
    let told = world.told_by("NodeProgramFailed");
    let names: Vec<&str> = told.iter().map(|[name, _]| &**name).collect();
    assert_eq!(
        names,
        ["arm64", "first", "second", "second"],
        "each Pod and its node"
    );
    for (at, node) in [(0, "arm64"), (1, "arm64"), (2, "second")] {
        let begin = format!("the node {node} (arm64) has a program for another architecture");
        assert!(
            told[at][1].starts_with(&begin) && told[at][1].contains("/usr/bin/nvidia-ctk"),
            "{told:?}"
        );
    }
    let events = world.objects.all("/apis/events");
    let of_node = events
        .iter()
        .find(|event| event["regarding"]["kind"] == "Node")
        .unwrap();
    assert_eq!(of_node["metadata"]["namespace"], "default");
    assert_eq!(
        of_node["regarding"]["namespace"],
        Value::Null,
        "as the API server wants it"
    );
}

#[tokio::test]
async fn the_record_outlives_leaders_and_whatever_is_done_to_it() {
    let world = World::new().await;
    let names = ["a", "b", "c", "d"];
    let others = ["linux/386", "linux/ppc64le", "linux/riscv64", "linux/s390x"];
    let platforms = others.map(|other| [BOTH[0], BOTH[1], other]);
    let images: Vec<String> = names
        .iter()
        .zip(&platforms)
        .map(|(name, own)| world.bench.image(name, own))
        .collect();
    let fails =
        |at: usize| world.fails(names[at], &images[at], &world.digest(names[at]), &json!({}));
    let kept = || names.map(|name| !world.kept(name, "team").is_empty());
    fails(0);
    world.until(false, || kept()[0]).await;
    // Another leader, which has not seen the first one fail.
    world.lists.delete(StoredPod::PATH, "a");
    fails(1);
    world.until(false, || kept()[1]).await;
    assert_eq!(kept(), [true, true, false, false]);
    // What is not the controller's beside its record costs none of it, however much it is.
    let mut beside = world.objects.get(RECORD).unwrap();
    beside["data"]["other"] = "x".repeat(600_000).into();
    world.objects.put(RECORD, beside);
    fails(2);
    world.until(false, || kept()[2]).await;
    assert_eq!(kept(), [true, true, true, false]);
    // Garbage counts as nothing.
    world.objects.put(
        RECORD,
        json!({"metadata": {}, "data": {"record.json": "[{]"}}),
    );
    fails(3);
    world.until(false, || kept()[3]).await;
    // What people delete is forgotten, unless it fails still.
    world.objects.delete(RECORD);
    for name in ["b", "c", "d"] {
        world.lists.delete(StoredPod::PATH, name);
    }
    world.fails("again", &images[0], &world.digest("a"), &json!({}));
    world.until(false, || kept()[0]).await;
    assert!(!kept()[1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_learned_as_the_lease_ends_is_written_when_it_is_won_back() {
    let objects = Objects::start().await;
    let (learner, state, (hold, leadership)) = (
        learner(&objects),
        Reported::default(),
        Leadership::lacking(),
    );
    learner.learn(failed_image("a"));
    let steps = async {
        let until = async |what: &dyn Fn() -> bool| {
            while !what() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        until(&|| objects.requests() > 2).await;
        assert!(recorded(&objects).is_empty());
        hold();
        until(&|| !recorded(&objects).is_empty()).await;
    };
    tokio::select! {
        () = learner.keep(&leadership, &state) => {}
        () = steps => {}
    }
}

/// Also where it is written by two at a time, and where it may not be.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_written_later() {
    let objects = Objects::start().await;
    let learner = learner(&objects);
    let state = Reported::default();
    let leadership = Leadership::held();
    let until = async |what: &dyn Fn() -> bool| {
        while !what() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let steps = async {
        for (at, status) in [403, 409].into_iter().enumerate() {
            objects.refuse(Some((http::Method::PATCH, "configmaps", status)));
            let before = objects.requests();
            learner.learn(failed_image(&at.to_string()));
            until(&|| objects.requests() > before + 2).await;
            assert_eq!(
                state.has("the ConfigMap of images that failed cannot be read or written"),
                status == 403
            );
            objects.refuse(None);
            until(&|| recorded(&objects).count(Timestamp::now()) == [at + 1, 0]).await;
            until(&|| !state.has("the ConfigMap of images that failed cannot be read or written"))
                .await;
        }
        // Many that come one by one are written once a second at most.
        let before = objects.requests();
        let begun = tokio::time::Instant::now();
        for at in 0..40 {
            learner.learn(failed_image(&format!("more {at}")));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until(&|| recorded(&objects).count(Timestamp::now()) == [42, 0]).await;
        assert!(
            objects.requests() - before <= 10,
            "{} in {:?}",
            objects.requests() - before,
            begun.elapsed()
        );
    };
    tokio::select! {
        () = learner.keep(&leadership, &state) => {}
        () = steps => {}
    }
}

#[tokio::test]
async fn a_pod_that_is_only_observed_is_not_to_be_evicted() {
    let world = World::new().await;
    let image = world.bench.image("lies", &THREE);
    world.fails("lies", &image, &world.digest("lies"), &json!({}));
    let settings = watch::Sender::new(ControllerSettings::default());
    let context = context(&world.bench, &world.lists, &world.objects, &settings);
    for mode in [Mode::Enforce, Mode::Observe] {
        world.bench.decide_by(Policy {
            mode,
            ..Policy::default()
        });
        let pod = StoredPod::of_value(&world.lists.get(StoredPod::PATH, "lies")).unwrap();
        let (pod, failures) = failing(&context, pod).unwrap();
        let examination = examine(&context, &pod, &failures).await.unwrap();
        assert_eq!(examination.failed.is_some(), mode == Mode::Enforce);
    }
}

/// A Pod that the node cannot start would fail anywhere on it, and its image nowhere else.
#[tokio::test]
async fn a_pod_that_a_program_of_the_node_fails_is_not_to_be_evicted() {
    let world = World::new().await;
    let image = world.bench.image("hooked", &BOTH);
    world.fails_on(
        "arm64",
        HOOK,
        "hooked",
        &image,
        &world.digest("hooked"),
        &json!({}),
    );
    let settings = watch::Sender::new(ControllerSettings {
        events: false,
        ..ControllerSettings::default()
    });
    let context = context(&world.bench, &world.lists, &world.objects, &settings);
    let pod = StoredPod::of_value(&world.lists.get(StoredPod::PATH, "hooked")).unwrap();
    let (pod, failures) = failing(&context, pod).unwrap();
    let examination = examine(&context, &pod, &failures).await.unwrap();
    assert!(examination.is_settled && examination.failed.is_none());
    assert_eq!(
        context.metrics.node_program_failures.get(),
        1,
        "also without events"
    );
    assert!(
        world.bench.remote.requests().is_empty(),
        "its image is not looked up"
    );
}

/// Each of them has more Pods than are examined of a namespace at a time.
#[tokio::test]
async fn tenants_whose_registries_hang_hold_up_no_other() {
    let world = World::new().await;
    for tenant in 0..8 {
        let namespace = format!("hanging-{tenant}");
        let path = format!("/api/v1/namespaces/{namespace}");
        world
            .objects
            .put(&path, json!({"metadata": {"name": namespace}}));
        let image = world.bench.image(&namespace, &BOTH);
        world
            .bench
            .remote
            .repo(&namespace)
            .fault(Some(Fault::hang()));
        for at in 0..8 {
            world.pod(
                &namespace,
                &format!("hanging-{tenant}-{at}"),
                &image,
                &ended(EXEC),
            );
        }
    }
    let lies = world.bench.image("lies", &BOTH);
    world.pod("team", "lies", &lies, &ended(EXEC));
    let is_hanging = || world.bench.remote.requests().len() > 8;
    world
        .at_once(|| is_hanging() && !world.told().is_empty())
        .await;
    assert_eq!(world.told()[0][0], "lies");
}

/// A kubelet chooses these times, and the clocks of nodes differ.
#[test]
fn times_of_containers_of_any_year_are_compared() {
    let now = SystemTime::now();
    let year = Duration::from_secs(366 * 24 * 3600);
    let own = tolerarch_kubernetes::cluster::micro_time();
    let times = [
        json!("-009999-01-02T01:59:59Z"),
        json!("1969-12-31T23:59:59Z"),
        json!(own),
        json!("9999-12-30T22:00:00Z"),
        Value::Null,
    ];
    let mut seen = 0;
    for clock in [SystemTime::UNIX_EPOCH, now, now + 7000 * year] {
        for started in &times {
            for finished in &times {
                let state = json!({"terminated": {"exitCode": 255, "startedAt": started, "finishedAt": finished}});
                let pod = json!({
                    "metadata": {"name": "a", "namespace": "team"},
                    "spec": {"nodeName": "arm64", "containers": [{"name": "app", "image": "app"}]},
                    "status": {"phase": "Running", "containerStatuses": [{"name": "app", "state": state}]},
                });
                let failures = failures(&StoredPod::of_value(&pod).unwrap(), clock);
                // Only that it ended at once, and not long ago, is of interest.
                let is_evidence = started == finished && !started.is_null();
                seen += failures.len();
                assert!(
                    failures.is_empty() || is_evidence,
                    "{started} {finished} {failures:?}"
                );
            }
        }
    }
    assert!(seen > 0);
}
