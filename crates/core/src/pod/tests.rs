use super::json::ITEMS;
use super::*;
use serde_json::{Value, json};

fn with_pod<T>(value: &Value, read: impl FnOnce(&Pod<'_>) -> T) -> T {
    let text = value.to_string();
    let pod: Pod<'_> = serde_json::from_str(&text).unwrap();
    read(&pod)
}

fn spec(spec: Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": spec})
}

#[test]
fn images_are_those_of_containers_and_image_volumes() {
    let pod = spec(json!({
        "containers": [{"image": "nginx"}, {"image": ""}, {}, {"image": null}, {"image": "x", "imagePullPolicy": "Never"}],
        "initContainers": [{"image": "busybox:1", "restartPolicy": "Always"}],
        "ephemeralContainers": [{"image": "debug"}],
        "volumes": [{"name": "a"}, {"image": {"reference": "data:1", "pullPolicy": "Always"}}, {"image": {}}, {"image": null}],
    }));
    let seen = with_pod(&pod, |pod| {
        let summary =
            |usage: Usage<'_>| (usage.image.map(|image| image.to_string()), usage.purpose);
        pod.images().into_iter().map(summary).collect::<Vec<_>>()
    });
    let ok = |image: &str| Ok(image.to_owned());
    assert_eq!(
        seen,
        [
            (ok("docker.io/library/busybox:1"), Purpose::Run),
            (ok("docker.io/library/nginx:latest"), Purpose::Run),
            (Err(LookupError::Invalid), Purpose::Run),
            (Err(LookupError::Invalid), Purpose::Run),
            (Err(LookupError::Invalid), Purpose::Run),
            (Err(LookupError::PullNever), Purpose::Run),
            (ok("docker.io/library/data:1"), Purpose::Mount),
            (Err(LookupError::Invalid), Purpose::Mount),
        ]
    );
}

/// Fields that came with Kubernetes 1.35 to 1.37, or became usual then. Only fields with an image count.
#[test]
fn fields_of_newer_versions_change_nothing() {
    let pod = spec(json!({
        "containers": [{
            "image": "nginx", "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}],
            "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}],
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}, "claims": [{"name": "gpu"}]},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}],
            "livenessProbe": {"grpc": {"port": 1, "mode": "TLS"}}, "readinessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2"}},
            "lifecycle": {"stopSignal": "SIGUSR1"}, "securityContext": {"procMount": "Unmasked"},
        }],
        "initContainers": [{"image": "busybox:1", "restartPolicy": "Always", "resizePolicy": []}],
        "volumes": [
            {"name": "v", "emptyDir": {"mode": 448}},
            {"name": "i", "image": {"reference": "data:1", "pullPolicy": "IfNotPresent"}},
            {"name": "p", "projected": {"sources": [{"podCertificate": {
                "signerName": "a.b/c", "keyType": "ED25519", "userAnnotations": {"a.b/c": "d"}}}], "defaultUser": 1000}},
        ],
        "tolerations": [{"key": "sla", "operator": "Gt", "value": "900", "effect": "NoExecute", "tolerationSeconds": 1}],
        "resources": {"requests": {"cpu": "1"}}, "hostUsers": false, "hostnameOverride": "web",
        "workloadRef": {"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"}, "schedulingGroup": {"podGroupName": "g"},
        "schedulingGates": [{"name": "a.b/c"}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "evictionResponders": [{"name": "a.b/c", "priority": 10000}],
    }));
    with_pod(&pod, |pod| {
        assert_eq!(pod.skipped(), None);
        let given: Vec<&str> = pod.images().iter().map(|usage| usage.given).collect();
        assert_eq!(given, ["busybox:1", "nginx", "data:1"]);
        assert_eq!(pod.tolerations()[0].operator.as_str(), "Gt");
    });
}

#[test]
fn skipped_pods_have_a_reason() {
    let owner = |kind: &str, controller: Value| json!({"ownerReferences": [{"kind": kind, "controller": controller}]});
    let pod = |metadata: Value, spec: Value| json!({"metadata": metadata, "spec": spec});
    for (pod, expected) in [
        (pod(json!({}), json!({})), None),
        (pod(Value::Null, Value::Null), None),
        (json!({}), None),
        (
            pod(
                json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
                json!({}),
            ),
            Some(Reason::MirrorPod),
        ),
        (
            pod(
                json!({"annotations": {"tolerarch.io/mode": "off"}}),
                json!({}),
            ),
            Some(Reason::OptedOut),
        ),
        (
            pod(json!({"labels": {"tolerarch.io/mode": "off"}}), json!({})),
            Some(Reason::OptedOut),
        ),
        (
            pod(json!({"labels": {"tolerarch.io/mode": "on"}}), json!({})),
            Some(Reason::OptedOut),
        ),
        (
            pod(json!({"labels": {"tolerarch.io/mode": null}}), json!({})),
            Some(Reason::OptedOut),
        ),
        (
            pod(
                json!({"annotations": {"tolerarch.io/mode": null}}),
                json!({}),
            ),
            Some(Reason::OptedOut),
        ),
        (
            pod(json!({"annotations": {"tolerarch.io/mode": ""}}), json!({})),
            Some(Reason::OptedOut),
        ),
        (
            pod(
                json!({"labels": {"tolerarch.io/mode": "enforce"}}),
                json!({}),
            ),
            None,
        ),
        (
            pod(
                json!({"annotations": {"tolerarch.io/mode": "observe"}}),
                json!({}),
            ),
            None,
        ),
        (
            pod(
                json!({"labels": {"tolerarch.io/mode": "enforce"}, "annotations": {"tolerarch.io/mode": "off"}}),
                json!({}),
            ),
            Some(Reason::OptedOut),
        ),
        (
            pod(json!({"labels": null, "annotations": null}), json!({})),
            None,
        ),
        (
            pod(json!({}), json!({"nodeName": "node-1"})),
            Some(Reason::NodeAssigned),
        ),
        (pod(json!({}), json!({"nodeName": ""})), None),
        (
            pod(owner("DaemonSet", json!(true)), json!({})),
            Some(Reason::DaemonSet),
        ),
        (pod(owner("DaemonSet", json!(false)), json!({})), None),
        (pod(owner("DaemonSet", Value::Null), json!({})), None),
        (pod(owner("ReplicaSet", json!(true)), json!({})), None),
        (
            pod(json!({}), json!({"os": {"name": "windows"}})),
            Some(Reason::Windows),
        ),
        (pod(json!({}), json!({"os": {"name": "linux"}})), None),
        (
            pod(
                json!({}),
                json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
            ),
            Some(Reason::Windows),
        ),
        (
            pod(
                json!({}),
                json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
            ),
            None,
        ),
    ] {
        assert_eq!(with_pod(&pod, |pod| pod.skipped()), expected, "{pod}");
    }
}

#[test]
fn first_pull_secrets_are_named() {
    let names = |secrets: Value| {
        with_pod(&spec(json!({"imagePullSecrets": secrets})), |pod| {
            pod.pull_secrets().map(str::to_owned).collect::<Vec<_>>()
        })
    };
    assert_eq!(names(Value::Null), [""; 0]);
    assert_eq!(
        names(json!([{"name": "b"}, {"name": "a.x-1"}, {}, {"name": null}])),
        ["b", "a.x-1"]
    );
    let many: Vec<Value> = (0..10_000)
        .map(|i| json!({"name": format!("s{i}")}))
        .collect();
    assert_eq!(names(Value::from(many)).len(), PULL_SECRETS);
}

#[test]
fn pod_is_described_by_its_controller_or_name() {
    let owned = json!({"metadata": {"generateName": "web-", "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}]}});
    for (pod, expected) in [
        (owned, "ReplicaSet/web"),
        (
            json!({"metadata": {"name": "web", "generateName": "x-"}}),
            "web",
        ),
        (
            json!({"metadata": {"name": "", "generateName": "web-"}}),
            "web-",
        ),
        (json!({}), ""),
    ] {
        assert_eq!(with_pod(&pod, |pod| pod.described()), expected, "{pod}");
    }
}

#[test]
fn texts_without_escapes_are_borrowed() {
    let text = r#"{"spec":{"containers":[{"image":"nginx"},{"image":"ng\u0069nx"}]}}"#;
    let pod: Pod<'_> = serde_json::from_str(text).unwrap();
    let json = text.as_bytes().as_ptr_range();
    let images = pod.images();
    let is_borrowed = |usage: &Usage<'_>| json.contains(&usage.given.as_ptr());
    let borrowed: Vec<bool> = images.iter().map(is_borrowed).collect();
    assert_eq!(borrowed, [true, false]);
    assert!(pod.images().iter().all(|usage| usage.given == "nginx"));
}

#[test]
fn value_that_is_no_pod_is_refused() {
    for pod in [
        json!([]),
        json!({"spec": 1}),
        json!({"spec": []}),
        json!({"metadata": ["name"]}),
        json!({"spec": {"containers": {}}}),
        json!({"spec": {"containers": [{"image": 7}]}}),
        json!({"spec": {"tolerations": [null]}}),
        json!({"spec": {"imagePullSecrets": [{"name": 7}]}}),
        json!({"spec": {"tolerations": vec![json!({}); ITEMS + 1]}}),
        json!({"metadata": {"annotations": []}}),
    ] {
        assert!(
            serde_json::from_str::<Object<Pod<'_>>>(&pod.to_string()).is_err(),
            "{pod}"
        );
    }
}

/// The copy without the JSON is equal, and the bytes that the Pod holds are counted.
#[test]
fn owned_pod_is_equal_and_held_bytes_are_counted() {
    let text = r#"{
        "metadata": {
            "name": "a\u0062", "generateName": "g-", "labels": {"tolerarch.io/mode": "on"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}, {}],
            "annotations": {"tolerarch.io/pools": "a", "tolerarch.io/mode": "off", "kubernetes.io/config.mirror": "", "x": null}
        },
        "spec": {
            "nodeName": "n", "os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{"image": "nginx", "imagePullPolicy": "Never"}, {"image": "r\u002fapp"}],
            "initContainers": [{"image": "busybox:1"}],
            "volumes": [{}, {"image": {"reference": "data", "pullPolicy": "Always"}}],
            "imagePullSecrets": [{"name": "a"}, {}],
            "tolerations": [{"key": "a", "operator": "Exists", "value": "", "effect": "NoExecute", "tolerationSeconds": 3}]
        }
    }"#;
    let pod: Pod<'_> = serde_json::from_str(text).unwrap();
    let held = pod.held_bytes();
    let before = format!("{pod:?}");
    assert_eq!(format!("{:?}", pod.into_owned()), before);
    assert!((1000..3000).contains(&held), "{held}");

    for (field, members, each) in [
        ("tolerations", "{}", size_of::<Toleration<'_>>()),
        (
            "containers",
            "{}",
            size_of::<Container<'_>>() + size_of::<Usage<'_>>(),
        ),
        ("volumes", "{}", size_of::<Volume<'_>>()),
        (
            "tolerations",
            r#"{"key": "0123456789012345678901234567890123456789012345678901234567890"}"#,
            60,
        ),
    ] {
        let text = format!(
            r#"{{"spec": {{"{field}": [{}]}}}}"#,
            [members; 1000].join(",")
        );
        let held = serde_json::from_str::<Pod<'_>>(&text).unwrap().held_bytes();
        assert!(held >= 1000 * each, "{field}: {held}");
    }
    let null: Pod<'_> = serde_json::from_str(r#"{"spec": null}"#).unwrap();
    assert!(!null.has_metadata() && null.held_bytes() == 0);
}
