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
struct TestCluster {
    bench: TestEngine,
    lists: Lists,
    objects: Objects,
}

impl TestCluster {
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

    /// Returns the reference of an image for amd64 without an index.
    fn single(&self) -> String {
        let repo = self.bench.remote.repo("single");
        repo.image("linux/amd64", Some("v1"));
        repo.reference("v1")
    }

    /// Adds a Pod whose container has this state, on the node arm64.
    fn pod(&self, namespace: &str, name: &str, image: &str, state: &Value) {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}")},
            "spec": {"nodeName": "arm64", "containers": [{"name": "app", "image": image}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "app", "state": state}]},
        });
        self.lists.put(StoredPod::PATH, pod);
    }

    /// Sets the last log line of a Pod's container.
    fn log(&self, pod: &str, line: &str) {
        self.objects.put(
            &format!("/api/v1/namespaces/team/pods/{pod}/log"),
            json!({"line": line}),
        );
    }

    /// Returns the Pods with events about a wrong architecture, and the notes.
    fn notes(&self) -> Vec<[String; 2]> {
        self.notes_of("WrongArchitecture")
    }

    /// Returns the objects with events of this reason, and the notes.
    fn notes_of(&self, reason: &str) -> Vec<[String; 2]> {
        let mut notes = Vec::new();
        for event in self.objects.all("/apis/events") {
            if event["reason"] == reason {
                assert_eq!(event["type"], json!("Warning"));
                let text = |pointer| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
                notes.push(["/regarding/name", "/note"].map(text));
            }
        }
        notes.sort_unstable();
        notes
    }

    /// Runs the controller until this is true.
    async fn until(&self, pod_logs: bool, is_reached: impl Fn() -> bool) {
        let reached = async {
            while !is_reached() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        self.run(pod_logs, reached).await;
    }

    /// Runs the controller until this is true, with a stopped clock.
    async fn at_once(&self, is_reached: impl Fn() -> bool) {
        tokio::time::pause();
        let reached = async {
            // Far more turns than necessary. The clock does not advance while tasks can run.
            for _ in 0..2_000_000 {
                if is_reached() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            panic!("not at once: {:?}", self.notes());
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
            () = tokio::time::sleep(PATIENCE) => panic!("not reached: {:?}", self.notes()),
        }
    }
}

/// Returns the state of a container that has ended at once, just now.
fn ended(message: &str) -> Value {
    let now = tolerarch_kubernetes::cluster::micro_time();
    json!({"terminated": {"exitCode": 255, "message": message, "startedAt": now, "finishedAt": now}})
}

const EXEC: &str = "exec /app: exec format error";
const GVISOR: &str = "failed to start containerd task \"a\": OCI runtime start failed: starting container: starting sub-container [/app]: creating process: failed to load /app: exec format error: unknown";
const HOOK: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec /usr/bin/nvidia-ctk: exec format error: unknown";

#[tokio::test]
async fn wrong_architecture_is_reported_despite_the_manifest() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    let one = cluster.bench.image("one", &["linux/amd64"]);
    let pull = json!({"waiting": {"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"}});
    cluster.pod("team", "lies", &both, &ended(EXEC));
    cluster.pod("team", "moved", &both, &pull);
    cluster.pod("team", "lacks", &one, &pull);
    cluster.pod("team", "single", &cluster.single(), &ended(EXEC));
    // These are not reported.
    cluster.pod("out", "opted-out", &both, &ended(EXEC));
    cluster.pod("team", "other", &both, &ended("out of memory"));
    cluster.pod("team", "silent", &both, &ended(""));
    cluster.log("silent", EXEC);
    cluster.pod("team", "zz-last", &both, &ended(EXEC));
    cluster.until(false, || cluster.notes().len() >= 5).await;
    let notes = cluster.notes();
    let names: Vec<&str> = notes.iter().map(|[name, _]| &**name).collect();
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
        for part in parts {
            assert!(notes[at][1].contains(part), "{:?}", notes[at]);
        }
    }
}

#[tokio::test]
async fn last_log_line_is_evidence_if_allowed() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    let single = cluster.single();
    for (pod, image, line) in [
        ("silent", &both, EXEC),
        ("single", &single, EXEC),
        ("other", &both, "panic: exec failed"),
    ] {
        cluster.pod("team", pod, image, &ended(""));
        cluster.log(pod, line);
    }
    cluster.pod("team", "without-a-log", &both, &ended(""));
    cluster.pod("team", "zz-last", &both, &ended(""));
    cluster.log("zz-last", EXEC);
    cluster.until(true, || cluster.notes().len() >= 3).await;
    let names: Vec<String> = cluster.notes().into_iter().map(|[name, _]| name).collect();
    assert_eq!(names, ["silent", "single", "zz-last"]);
}

#[tokio::test]
async fn failed_examination_is_repeated_on_change() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    let node = cluster.objects.get("/api/v1/nodes/arm64").unwrap();
    cluster.objects.delete("/api/v1/nodes/arm64");
    cluster.pod("team", "lies", &both, &ended(EXEC));
    let polls = std::cell::Cell::new(0);
    cluster
        .until(false, || {
            polls.set(polls.get() + 1);
            if polls.get() == 20 {
                assert!(cluster.notes().is_empty());
                cluster.objects.put("/api/v1/nodes/arm64", node.clone());
            }
            if polls.get() % 20 == 0 {
                cluster.pod("team", "lies", &both, &ended(EXEC));
            }
            cluster.notes().len() == 1
        })
        .await;
}

/// Other examinations need no such right, and in the end no Pod needs it any more.
#[tokio::test]
async fn missing_right_is_a_fault_until_it_is_granted() {
    let cluster = TestCluster::new().await;
    let both = cluster.bench.image("both", &BOTH);
    cluster.pod("team", "silent", &both, &ended(""));
    cluster.log("silent", EXEC);
    let settings = ControllerSettings {
        pod_logs: true,
        ..ControllerSettings::default()
    };
    let settings = watch::Sender::new(settings);
    let context = context(&cluster.bench, &cluster.lists, &cluster.objects, &settings);
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
            cluster.objects.refuse(Some((http::Method::GET, path, 403)));
            cluster.pod("team", &format!("silent-{}", path.len()), &both, &ended(""));
            until(what, &|| context.state.has(what)).await;
            cluster.pod("team", &format!("lies-{}", path.len()), &both, &ended(EXEC));
            for refused in [Some((http::Method::GET, path, 403)), None] {
                cluster.objects.refuse(refused.clone());
                let before = cluster.objects.requests();
                tokio::time::pause();
                tokio::time::advance(TRY).await;
                tokio::time::resume();
                until(what, &|| cluster.objects.requests() > before).await;
                until(what, &|| context.state.has(what) == refused.is_some()).await;
            }
        }
    };
    tokio::select! {
        () = follow(&context) => {}
        () = checked => {}
    }
}

/// Platforms of an index that differs from that of [`BOTH`].
const THREE: [&str; 3] = ["linux/amd64", "linux/arm64", "linux/s390x"];
const RECORD: &str = "/api/v1/namespaces/team/configmaps/tolerarch-controller-failed-images";

/// Returns the current record.
fn recorded(objects: &Objects) -> Lessons {
    let text = objects
        .get(RECORD)
        .and_then(|map| Some(map["data"]["record.json"].as_str()?.to_owned()));
    Lessons::of_text(&text.unwrap_or_default(), Timestamp::now())
}

impl TestCluster {
    /// Adds a Pod whose container's program gVisor could not load. `more` are further fields of the container.
    fn fails(&self, name: &str, image: &str, digest: &str, more: &Value) {
        self.fails_on("arm64", GVISOR, name, image, digest, more);
    }

    /// Adds a Pod whose container could not be started on this node, with this message.
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

    /// Returns the platforms on which the image of this name has failed, for a namespace.
    fn failed_platforms(&self, name: &str, namespace: &str) -> String {
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
async fn failure_is_recorded_within_its_evidence() {
    let cluster = TestCluster::new().await;
    let names = ["lies", "forged", "single"];
    let lies = cluster.bench.image("lies", &BOTH);
    let forged = cluster.bench.image("forged", &THREE);
    let single = cluster.single();
    cluster.fails("lies", &lies, &cluster.digest("lies"), &json!({}));
    cluster.fails(
        "forged",
        &forged,
        &cluster.digest("forged"),
        &json!({"command": ["/own"]}),
    );
    // It lacks the platform anyway.
    cluster.fails("single", &single, &cluster.digest("single"), &json!({}));
    let is_recorded = |name: &str| !cluster.failed_platforms(name, "team").is_empty();
    cluster
        .until(false, || {
            cluster.notes().len() == 3 && is_recorded("lies") && is_recorded("forged")
        })
        .await;
    assert_eq!(
        names.map(|name| cluster.failed_platforms(name, "team")),
        ["linux/arm64", "linux/arm64", ""]
    );
    assert_eq!(
        names.map(|name| cluster.failed_platforms(name, "other")),
        ["", "", ""],
        "one node may be broken"
    );
    let notes = cluster.notes();
    let for_namespace =
        "for a day or longer no more Pods of this namespace with it get tolerations for arm64";
    assert!(notes[0][1].ends_with(for_namespace), "{notes:?}");
    let for_all = format!("{for_namespace}, nor any others once it fails so on a second node");
    assert!(notes[1][1].ends_with(&for_all), "{notes:?}");
    assert!(!notes[2][1].contains("for a day"), "{notes:?}");
    // Again on the same node, then on a second one.
    cluster.fails("lies-again", &lies, &cluster.digest("lies"), &json!({}));
    cluster.until(false, || cluster.notes().len() == 4).await;
    assert_eq!(cluster.failed_platforms("lies", "other"), "");
    for (name, image, more) in [
        ("lies", &lies, json!({})),
        ("forged", &forged, json!({"command": ["/own"]})),
    ] {
        let second = format!("{name}-second");
        cluster.fails_on(
            "second",
            GVISOR,
            &second,
            image,
            &cluster.digest(name),
            &more,
        );
    }
    cluster
        .until(false, || {
            cluster.notes().len() == 6 && !cluster.failed_platforms("lies", "other").is_empty()
        })
        .await;
    assert_eq!(
        names.map(|name| cluster.failed_platforms(name, "other")),
        ["linux/arm64", "", ""]
    );
}

#[tokio::test]
async fn failed_program_of_the_node_is_reported_on_the_node() {
    let cluster = TestCluster::new().await;
    let hooked = cluster.bench.image("hooked", &BOTH);
    let lies = cluster.bench.image("lies", &THREE);
    for (node, name) in [("arm64", "first"), ("second", "second")] {
        cluster.fails_on(
            node,
            HOOK,
            name,
            &hooked,
            &cluster.digest("hooked"),
            &json!({}),
        );
    }
    cluster.pod(
        "out",
        "opted-out",
        &hooked,
        &json!({"waiting": {"reason": "CreateContainerError", "message": HOOK}}),
    );
    // A hook within the container writes into the container's log.
    let in_log = "error running startContainer hook #0: fork/exec /hook: exec format error";
    cluster.pod("team", "in-log", &hooked, &ended(""));
    cluster.log("in-log", in_log);
    cluster.pod("team", "in-message", &hooked, &ended(in_log));
    cluster.fails("zz-last", &lies, &cluster.digest("lies"), &json!({}));
    cluster
        .until(true, || {
            cluster.notes().len() == 1 && cluster.notes_of("NodeProgramFailed").len() == 4
        })
        .await;
    assert_eq!(cluster.notes()[0][0], "zz-last");
    assert_eq!(cluster.failed_platforms("hooked", "team"), "");
    let notes = cluster.notes_of("NodeProgramFailed");
    let names: Vec<&str> = notes.iter().map(|[name, _]| &**name).collect();
    assert_eq!(
        names,
        ["arm64", "first", "second", "second"],
        "each Pod and its node"
    );
    for (at, node) in [(0, "arm64"), (1, "arm64"), (2, "second")] {
        let begin = format!("the node {node} (arm64) has a program for another architecture");
        let note = &notes[at][1];
        assert!(note.starts_with(&begin), "{note}");
        assert!(note.contains("/usr/bin/nvidia-ctk"), "{note}");
    }
    let events = cluster.objects.all("/apis/events");
    let of_node = events
        .iter()
        .find(|event| event["regarding"]["kind"] == "Node")
        .unwrap();
    assert_eq!(of_node["metadata"]["namespace"], "default");
    assert_eq!(
        of_node["regarding"]["namespace"],
        Value::Null,
        "as the API server requires"
    );
}

#[tokio::test]
async fn record_survives_leaders_and_foreign_changes() {
    let cluster = TestCluster::new().await;
    let names = ["a", "b", "c", "d"];
    let others = ["linux/386", "linux/ppc64le", "linux/riscv64", "linux/s390x"];
    let platforms = others.map(|other| [BOTH[0], BOTH[1], other]);
    let images: Vec<String> = names
        .iter()
        .zip(&platforms)
        .map(|(name, platforms)| cluster.bench.image(name, platforms))
        .collect();
    let fails = |at: usize| {
        cluster.fails(
            names[at],
            &images[at],
            &cluster.digest(names[at]),
            &json!({}),
        );
    };
    let is_recorded = || names.map(|name| !cluster.failed_platforms(name, "team").is_empty());
    fails(0);
    cluster.until(false, || is_recorded()[0]).await;
    // Another leader has not seen the first failure.
    cluster.lists.delete(StoredPod::PATH, "a");
    fails(1);
    cluster.until(false, || is_recorded()[1]).await;
    assert_eq!(is_recorded(), [true, true, false, false]);
    // Foreign content in the ConfigMap, even if it is large, does not affect the record.
    let mut beside = cluster.objects.get(RECORD).unwrap();
    beside["data"]["other"] = "x".repeat(600_000).into();
    cluster.objects.put(RECORD, beside);
    fails(2);
    cluster.until(false, || is_recorded()[2]).await;
    assert_eq!(is_recorded(), [true, true, true, false]);
    // An invalid record counts as empty.
    cluster.objects.put(
        RECORD,
        json!({"metadata": {}, "data": {"record.json": "[{]"}}),
    );
    fails(3);
    cluster.until(false, || is_recorded()[3]).await;
    // A deleted record stays deleted, except for images that still fail.
    cluster.objects.delete(RECORD);
    for name in ["b", "c", "d"] {
        cluster.lists.delete(StoredPod::PATH, name);
    }
    cluster.fails("again", &images[0], &cluster.digest("a"), &json!({}));
    cluster.until(false, || is_recorded()[0]).await;
    assert!(!is_recorded()[1]);
}

#[tokio::test(start_paused = true)]
async fn lesson_is_written_after_the_lease_is_regained() {
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

/// The right may be missing, or another writer may have been first.
#[tokio::test(start_paused = true)]
async fn failed_write_of_lessons_is_retried() {
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
        // Many lessons in a row are written at most once a second.
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
async fn observed_pod_is_not_evicted() {
    let cluster = TestCluster::new().await;
    let image = cluster.bench.image("lies", &THREE);
    cluster.fails("lies", &image, &cluster.digest("lies"), &json!({}));
    let settings = watch::Sender::new(ControllerSettings::default());
    let context = context(&cluster.bench, &cluster.lists, &cluster.objects, &settings);
    for mode in [Mode::Enforce, Mode::Observe] {
        cluster.bench.decide_by(Policy {
            mode,
            ..Policy::default()
        });
        let pod = StoredPod::of_value(&cluster.lists.get(StoredPod::PATH, "lies")).unwrap();
        let (pod, failures) = failing(&context, pod).unwrap();
        let examination = examine(&context, &pod, &failures).await.unwrap();
        assert_eq!(examination.failed.is_some(), mode == Mode::Enforce);
    }
}

/// The node's program would fail for any Pod on the node, and the image would run on other nodes.
#[tokio::test]
async fn failed_program_of_the_node_does_not_evict() {
    let cluster = TestCluster::new().await;
    let image = cluster.bench.image("hooked", &BOTH);
    cluster.fails_on(
        "arm64",
        HOOK,
        "hooked",
        &image,
        &cluster.digest("hooked"),
        &json!({}),
    );
    let settings = watch::Sender::new(ControllerSettings {
        events: false,
        ..ControllerSettings::default()
    });
    let context = context(&cluster.bench, &cluster.lists, &cluster.objects, &settings);
    let pod = StoredPod::of_value(&cluster.lists.get(StoredPod::PATH, "hooked")).unwrap();
    let (pod, failures) = failing(&context, pod).unwrap();
    let examination = examine(&context, &pod, &failures).await.unwrap();
    assert!(examination.is_settled && examination.failed.is_none());
    assert_eq!(
        context.metrics.node_program_failures.get(),
        1,
        "also without events"
    );
    assert!(
        cluster.bench.remote.requests().is_empty(),
        "its image is not looked up"
    );
}

/// Each namespace has more Pods than its concurrent examinations.
#[tokio::test]
async fn hanging_registries_do_not_delay_other_namespaces() {
    let cluster = TestCluster::new().await;
    for tenant in 0..8 {
        let namespace = format!("hanging-{tenant}");
        let path = format!("/api/v1/namespaces/{namespace}");
        cluster
            .objects
            .put(&path, json!({"metadata": {"name": namespace}}));
        let image = cluster.bench.image(&namespace, &BOTH);
        cluster
            .bench
            .remote
            .repo(&namespace)
            .fault(Some(Fault::hang()));
        for at in 0..8 {
            cluster.pod(
                &namespace,
                &format!("hanging-{tenant}-{at}"),
                &image,
                &ended(EXEC),
            );
        }
    }
    let lies = cluster.bench.image("lies", &BOTH);
    cluster.pod("team", "lies", &lies, &ended(EXEC));
    let is_hanging = || cluster.bench.remote.requests().len() > 8;
    cluster
        .at_once(|| is_hanging() && !cluster.notes().is_empty())
        .await;
    assert_eq!(cluster.notes()[0][0], "lies");
}

/// Kubelets write these times, and the clocks of nodes differ.
#[test]
fn container_times_of_any_year_are_compared() {
    let now = SystemTime::now();
    let year = Duration::from_secs(366 * 24 * 3600);
    let now_in_status = tolerarch_kubernetes::cluster::micro_time();
    let times = [
        json!("-009999-01-02T01:59:59Z"),
        json!("1969-12-31T23:59:59Z"),
        json!(now_in_status),
        json!("9999-12-30T22:00:00Z"),
        Value::Null,
    ];
    let mut count = 0;
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
                // Only a container that ended at once, and recently, is a failure.
                let is_evidence = started == finished && !started.is_null();
                count += failures.len();
                assert!(
                    failures.is_empty() || is_evidence,
                    "{started} {finished} {failures:?}"
                );
            }
        }
    }
    assert!(count > 0);
}
