use serde_json::{Value, json};

use super::*;
use tolerarch_core::reason::Reason;

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1", "namespace": "team", "uid": "u-1", "resourceVersion": "42",
            "labels": {"app": "web"}, "managedFields": [{"manager": "x"}],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "o-0"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o-1", "controller": true},
            ],
        },
        "spec": {
            "containers": [{"name": "app", "image": "nginx"}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]},
    })
}

fn read(value: &Value) -> StoredPod {
    // Watches and lists read Pods from text, too.
    serde_json::from_str(&value.to_string()).unwrap()
}

#[test]
fn facts_of_a_pod_are_read() {
    let pod = read(&pod());
    let facts = pod.facts.as_ref().unwrap();
    assert_eq!(facts.images()[0].given, "nginx");
    assert_eq!(facts.tolerations()[0].key.as_str(), "a");
    assert_eq!(facts.workload(), ("ReplicaSet", "web"));
    assert_eq!(facts.skipped(), None);
    assert_eq!(
        (pod.namespace(), pod.name(), pod.uid()),
        ("team", "web-1", "u-1")
    );
    assert_eq!(pod.metadata.resource_version, "42");
    assert_eq!(pod.controller().unwrap().kind, "ReplicaSet");
    assert!(pod.is_waiting_for_a_node);
    assert_eq!(pod.phase, Phase::Pending);
}

#[test]
fn only_unscheduled_pod_waits_for_a_node() {
    let changed = |pointer: &str, value: Value| {
        let mut pod = pod();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value;
        read(&pod)
    };
    assert!(!changed("/spec/nodeName", json!("node-1")).is_waiting_for_a_node);
    assert_eq!(
        changed("/spec/nodeName", json!("node-1"))
            .facts
            .unwrap()
            .skipped(),
        Some(Reason::NodeAssigned)
    );
    assert!(
        !changed("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))
            .is_waiting_for_a_node
    );
    let conditions = json!([{"type": "PodScheduled", "status": "True"}]);
    assert!(!changed("/status/conditions", conditions).is_waiting_for_a_node);
    assert!(!changed("/status", json!({})).is_waiting_for_a_node);
    assert!(!changed("/status/nominatedNodeName", json!("node-1")).is_waiting_for_a_node);
    assert_eq!(
        changed("/status/phase", json!("Later")).phase,
        Phase::Unknown
    );
}

#[test]
fn states_of_containers_are_read() {
    let mut pod = pod();
    pod["status"]["initContainerStatuses"] = json!([
        {"name": "init", "image": "i", "state": {"terminated": {"exitCode": 255, "reason": "Error", "message": "m"}}},
    ]);
    pod["status"]["containerStatuses"] = json!([
        {"name": "pull", "image": "p", "state": {"waiting": {"reason": "ErrImagePull", "message": "no match"}}},
        {"name": "crash", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}},
        {"name": "fine", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
    ]);
    let [init, pull, crash, fine] = read(&pod).containers.try_into().unwrap();
    let init = init.state.terminated.unwrap();
    assert_eq!((init.exit_code, init.message.as_deref()), (255, Some("m")));
    assert_eq!(
        pull.state.waiting.unwrap().message.as_deref(),
        Some("no match")
    );
    assert_eq!(
        (
            crash.state.terminated,
            crash.last_state.terminated.unwrap().exit_code
        ),
        (None, 1)
    );
    assert_eq!(
        (
            fine.state.waiting,
            fine.state.terminated,
            fine.last_state.terminated
        ),
        (None, None, None)
    );
}

/// A Pod that exceeds the limits must not make a list unreadable.
#[test]
fn pod_over_the_limits_is_read_without_facts() {
    let mut pod = pod();
    pod["spec"]["tolerations"] = json!(vec![json!({"operator": "Exists"}); 5000]);
    let pod = read(&pod);
    assert!(pod.facts.is_none());
    assert_eq!(pod.name(), "web-1");
}

#[test]
fn requests_agree_with_the_scheduler() {
    let container = |cpu: &str, memory: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let sidecar = |cpu: &str, memory: &str| {
        let mut container = container(cpu, memory);
        container["restartPolicy"] = "Always".into();
        container
    };
    for (spec, cpu, memory) in [
        (json!({"containers": [{}]}), 0, 0),
        (
            json!({"containers": [container("100m", "1Ki"), container("1", "1k")]}),
            1100,
            2024,
        ),
        (
            json!({"containers": [container("1", "1k")], "initContainers": [container("2", "1")]}),
            2000,
            1000,
        ),
        (
            json!({"containers": [container("1", "1")],
                "initContainers": [container("500m", "5"), sidecar("1", "1"), container("3", "1")]}),
            4000,
            5,
        ),
        (
            json!({"containers": [container("1", "1")], "overhead": {"cpu": "250m", "memory": "9"},
                "resources": {"requests": {"cpu": "3"}}}),
            3250,
            10,
        ),
    ] {
        let mut pod = pod();
        pod["spec"] = spec;
        let requests = read(&pod).requests;
        assert_eq!(
            (requests.cpu.millis(), requests.memory.units()),
            (cpu, memory),
            "{}",
            pod["spec"]
        );
    }
}

/// The API server stores the `managedFields` that a client sends, however deeply they are nested.
#[test]
fn deeply_nested_fields_are_skipped() {
    for levels in [200, 10_000] {
        let deep = format!(
            "{}{}{}",
            r#"{"f:a":"#.repeat(levels),
            "{}",
            "}".repeat(levels)
        );
        let fields = format!(r#""managedFields":[{{"manager":"x","fieldsV1":{deep}}}]"#);
        let text = pod()
            .to_string()
            .replace(r#""managedFields":[{"manager":"x"}]"#, &fields);
        assert!(text.len() > 7 * levels);
        let pod: StoredPod = serde_json::from_str(&text).unwrap();
        assert_eq!((pod.name(), pod.uid()), ("web-1", "u-1"));
        assert_eq!(pod.facts.unwrap().images()[0].given, "nginx");
    }
}

/// Neither long lists of a Pod nor repetitions in its status stay in memory.
#[test]
fn lists_of_a_pod_are_bounded() {
    let mut large = pod();
    large["spec"]["containers"][0]["image"] = "x".repeat(1 << 20).into();
    large["status"]["containerStatuses"] = vec![json!({"name": "app"}); 10_000].into();
    let read_pod = read(&large);
    assert!(read_pod.containers.len() <= 4097);
    assert!(
        read_pod
            .containers
            .iter()
            .all(|container| container.image.is_empty())
    );
    let mut labelled = pod();
    let labels: serde_json::Map<String, Value> = (0..10_000)
        .map(|at| (format!("l-{at}"), "".into()))
        .collect();
    labelled["metadata"]["labels"] = labels.into();
    assert!(serde_json::from_str::<StoredPod>(&labelled.to_string()).is_err());
}

/// Returns whether a container is plain after this change of its Pod.
fn is_plain(pointer: &str, key: &str, value: &Value) -> bool {
    let mut pod = pod();
    pod["status"]["containerStatuses"] = json!([{"name": "app"}]);
    pod.pointer_mut(pointer).unwrap()[key] = value.clone();
    read(&pod).containers[0].is_plain
}

#[test]
fn pod_with_mounts_or_hooks_of_the_node_is_not_plain() {
    assert!(is_plain("/metadata", "annotations", &Value::Null));
    for (key, is_harmless) in [
        ("checksum/config", true),
        ("kubectl.kubernetes.io/restartedAt", true),
        ("prometheus.io/scrape", true),
        ("tolerarch.io/pools", true),
        ("cdi.k8s.io/gpu", false),
        ("devices.nri.io/container.app", false),
        ("mounts.nri.containerd.io/container.app", false),
        ("hooks.nri.io/pod", false),
        ("run.oci.handler", false),
        ("module.wasm.image/variant", false),
        ("dev.gvisor.spec.mount.v.source", false),
        ("io.kubernetes.cri-o.Devices", false),
        ("com.example/any-hook-of-cri-o", false),
        ("kubernetes.io.example.com/x", false),
        ("prometheus.iox/y", false),
    ] {
        let annotations = json!({"kubernetes.io/config.source": "api", key: "x"});
        assert_eq!(
            is_plain("/metadata", "annotations", &annotations),
            is_harmless,
            "{key}"
        );
    }
    for (resources, is_usual) in [
        (
            json!({"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"}}),
            true,
        ),
        (
            json!({"limits": null, "claims": null, "requests": {"cpu": "1"}}),
            true,
        ),
        (json!({"claims": []}), true),
        (json!({"claims": [{"name": "gpu"}]}), false),
        // A device by the name of its DeviceClass, without a claim: on by default since Kubernetes 1.36.
        (
            json!({"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}),
            false,
        ),
        (
            json!({"limits": {"cpu": "1", "nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}),
            false,
        ),
    ] {
        assert_eq!(
            is_plain("/spec/containers/0", "resources", &resources),
            is_usual,
            "{resources}"
        );
    }
}
