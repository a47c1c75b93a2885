use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplate as TypedPodTemplate;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::decide::testing::TestEngine;
use tokio::time::Instant;
use tolerarch_core::review::{self, Subject};

fn policy(keys: Value) -> Policy {
    let mut config = json!({"daemonSets": true});
    config
        .as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    tolerarch_core::testing::policy(&config)
}

/// A DaemonSet with this template, as it is in a review.
fn daemon_set(template: &Value) -> Value {
    json!({"metadata": {"name": "agent"}, "spec": {"template": template}})
}

/// A PodTemplate with this template, as it is in a review.
fn pod_template(template: &Value) -> Value {
    json!({"metadata": {"name": "buffer"}, "template": template})
}

fn body(after: &Value, before: Option<&Value>) -> String {
    let (group, kind, resource) = if after.get("template").is_some() {
        ("", "PodTemplate", "podtemplates")
    } else {
        ("apps", "DaemonSet", "daemonsets")
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": if before.is_some() { "UPDATE" } else { "CREATE" }, "namespace": "ops",
            "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "object": after, "oldObject": before,
        },
    });
    review.to_string()
}

/// The reason, and the DaemonSet's template as it is stored after the review.
async fn decide(
    engine: &TestEngine,
    policy: &Policy,
    after: &Value,
    before: Option<&Value>,
) -> (String, Value) {
    decide_object(
        engine,
        policy,
        &daemon_set(after),
        before.map(daemon_set).as_ref(),
    )
    .await
}

/// The same as [`decide`] for whole objects.
async fn decide_object(
    engine: &TestEngine,
    policy: &Policy,
    after: &Value,
    before: Option<&Value>,
) -> (String, Value) {
    let body = body(after, before);
    let review = review::decode(body.as_bytes()).unwrap();
    let Subject::Template(change) = &review.subject else {
        panic!("{body}")
    };
    let snapshot = engine.current.load_full();
    let wait = Wait::Until {
        deadline: Instant::now() + snapshot.budget,
        review: None,
    };
    let decision = snapshot.decide_template(policy, "ops", change, wait).await;
    let pod = &change.template.pod;
    let patch = patch::build(change.kind.template_pointer(), pod, &decision.edits);
    let mut stored = after.clone();
    if !patch.is_empty() {
        let patch: json_patch::Patch = serde_json::from_str(&patch).unwrap();
        json_patch::patch(&mut stored, &patch).unwrap();
    }
    if change.kind == TemplateKind::PodTemplate {
        // The stored object decodes as Kubernetes' type.
        TypedPodTemplate::deserialize(&stored).unwrap();
    }
    let stored = stored.pointer_mut(change.kind.template_pointer()).unwrap();
    (decision.reason.to_string(), stored.take())
}

/// The same as [`decide`] for PodTemplates.
async fn decide_pod_template(
    engine: &TestEngine,
    policy: &Policy,
    after: &Value,
    before: Option<&Value>,
) -> (String, Value) {
    decide_object(
        engine,
        policy,
        &pod_template(after),
        before.map(pod_template).as_ref(),
    )
    .await
}

fn own() -> Value {
    json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"})
}

fn template(image: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "agent", "image": image}]);
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": spec})
}

#[tokio::test]
async fn new_template_gets_the_additions_of_its_pods() {
    let engine = TestEngine::new().await;
    let both = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let policy = policy(
        json!({"placement": {"require": "affinity", "prefer": [{"platform": "linux/arm64", "weight": 9}]}}),
    );

    let (reason, stored) = decide(&engine, &policy, &template(&both, json!({})), None).await;
    assert_eq!(reason, "tolerated");
    assert_eq!(stored["spec"]["tolerations"], json!([own()]));
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({"tolerarch.io/pools": "multi-arch"}),
        "no preference"
    );
    assert!(stored["spec"].get("affinity").is_none());

    let (reason, stored) = decide(&engine, &policy, &template(&amd64, json!({})), None).await;
    assert_eq!(reason, "placed");
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({"tolerarch.io/required": "amd64"})
    );

    let off = Policy {
        daemon_sets: false,
        ..policy
    };
    let (reason, stored) = decide(&engine, &off, &template(&both, json!({})), None).await;
    assert_eq!(
        (reason.as_str(), stored),
        ("not-applicable", template(&both, json!({})))
    );
}

#[tokio::test]
async fn update_without_change_keeps_managed_additions() {
    let engine = TestEngine::new().await;
    let image = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    for (require, image) in [
        ("off", &image),
        ("affinity", &amd64),
        ("nodeSelector", &amd64),
    ] {
        let policy = policy(json!({"placement": {"require": require}}));
        let users = template(
            image,
            json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
        );
        let (_, before) = decide(&engine, &policy, &users, None).await;
        assert_ne!(before, users);

        let (reason, stored) = decide(&engine, &policy, &before, Some(&before)).await;
        assert_eq!(stored, before, "{require}: sent with the additions");
        assert_eq!(
            reason,
            if require == "off" {
                "already-tolerated"
            } else {
                "placed"
            }
        );

        let (reason, stored) = decide(&engine, &policy, &users, Some(&before)).await;
        assert_eq!(stored, before, "{require}: sent without the additions");
        assert_eq!(
            reason,
            if require == "off" {
                "tolerated"
            } else {
                "placed"
            }
        );

        let mut annotated = users.clone();
        annotated["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
        let (_, stored) = decide(&engine, &policy, &annotated, Some(&before)).await;
        assert_eq!(
            stored, before,
            "{require}: server-side apply keeps annotations, and replaces lists"
        );

        let mut without_annotations = before.clone();
        without_annotations["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        let (_, stored) = decide(&engine, &policy, &without_annotations, Some(&before)).await;
        assert_eq!(
            stored, before,
            "{require}: a tool that manages annotations, and no lists"
        );

        let (reason, stored) = decide(&engine, &policy, &users, Some(&users)).await;
        assert_eq!(
            (reason.as_str(), stored),
            ("not-applicable", users),
            "{require}: nothing was managed, so nothing is rolled out"
        );
    }
}

#[tokio::test]
async fn managed_toleration_keeps_its_place_before_a_later_one() {
    let engine = TestEngine::new().await;
    let image = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let policy = policy(json!({}));
    let gpu = json!({"key": "gpu", "operator": "Exists"});
    let spot = json!({"key": "spot", "operator": "Exists"});
    let mut before = template(&image, json!({"tolerations": [gpu, own(), spot]}));
    before["metadata"]["annotations"] = json!({"a": "b", "tolerarch.io/pools": "multi-arch"});
    let mut users = template(&image, json!({"tolerations": [gpu, spot]}));
    users["metadata"]["annotations"] = json!({"a": "b"});

    let (_, stored) = decide(&engine, &policy, &users, Some(&before)).await;
    assert_eq!(stored, before);
}

#[tokio::test]
async fn changed_template_is_decided_again() {
    let engine = TestEngine::new().await;
    let both = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let policy = policy(json!({}));
    let (_, before) = decide(&engine, &policy, &template(&both, json!({})), None).await;

    let mut after = before.clone();
    after["spec"]["containers"][0]["image"] = json!(amd64);
    let (reason, stored) = decide(&engine, &policy, &after, Some(&before)).await;
    assert_eq!(
        (reason.as_str(), &stored["spec"]["tolerations"]),
        ("retracted", &json!([]))
    );
    assert!(
        stored["metadata"]["annotations"]
            .get("tolerarch.io/pools")
            .is_none()
    );

    let mut restarted = template(&both, json!({}));
    restarted["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/restartedAt": "2026-11-22T10:00:00Z"});
    let (reason, stored) = decide(
        &engine,
        &policy,
        &restarted,
        Some(&template(&both, json!({}))),
    )
    .await;
    assert_eq!(
        (reason.as_str(), &stored["spec"]["tolerations"]),
        ("tolerated", &json!([own()]))
    );
}

#[tokio::test]
async fn unknown_image_keeps_managed_additions() {
    let engine = TestEngine::new().await;
    let both = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let unknown = both.replace("v1", "v2");
    let policy = policy(json!({}));
    let (_, before) = decide(&engine, &policy, &template(&both, json!({})), None).await;

    let mut after = before.clone();
    after["spec"]["containers"][0]["image"] = json!(unknown);
    let (reason, stored) = decide(&engine, &policy, &after, Some(&before)).await;
    assert_eq!(
        (reason.as_str(), stored),
        ("not-found", after.clone()),
        "sent with the additions"
    );

    let (reason, stored) = decide(
        &engine,
        &policy,
        &template(&unknown, json!({})),
        Some(&before),
    )
    .await;
    assert_eq!(
        (reason.as_str(), stored),
        ("tolerated", after),
        "sent without the additions"
    );

    let gpu = json!({"key": "gpu", "operator": "Exists"});
    let users = template(&unknown, json!({"tolerations": [gpu]}));
    let (reason, stored) = decide(&engine, &policy, &users, Some(&before)).await;
    assert_eq!(reason, "tolerated");
    assert_eq!(
        stored["spec"]["tolerations"],
        json!([gpu, own()]),
        "beside what the user has changed"
    );

    let never = template(&unknown, json!({}));
    let (reason, stored) =
        decide(&engine, &policy, &never, Some(&template(&both, json!({})))).await;
    assert_eq!(
        (reason.as_str(), stored),
        ("not-found", never),
        "nothing was managed"
    );
}

/// The way in which a client sends the template `users` in an update of the stored template `before`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    /// By `kubectl edit` or a client-side apply: with lists and annotations.
    Whole,
    /// By a server-side apply: lists are replaced by the user's, annotations stay.
    Applied,
    /// By a tool that manages annotations and no lists.
    WithoutAnnotations,
    /// By a tool that replaces everything.
    Replaced,
}

const SENT: [Sent; 4] = [
    Sent::Whole,
    Sent::Applied,
    Sent::WithoutAnnotations,
    Sent::Replaced,
];

impl Sent {
    fn template(self, users: &Value, before: &Value) -> Value {
        let mut sent = users.clone();
        if matches!(self, Self::Whole | Self::Applied)
            && !before["metadata"]["annotations"].is_null()
        {
            sent["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
        }
        if matches!(self, Self::Whole | Self::WithoutAnnotations) {
            for name in MEMBERS {
                if !before["spec"][name].is_null() {
                    sent["spec"][name] = before["spec"][name].clone();
                }
            }
        }
        sent
    }
}

/// The managed additions of a template: whether it has the pool's toleration, and the required architectures.
fn managed(template: &Value) -> (bool, Vec<&str>) {
    let is_open = template["spec"]["tolerations"]
        .as_array()
        .is_some_and(|all| all.contains(&own()));
    let values = template.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values",
    );
    let required: Vec<&str> = values
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|value| value.as_str().unwrap())
        .collect();
    let annotations = &template["metadata"]["annotations"];
    let is_recorded = annotations["tolerarch.io/pools"] == "multi-arch";
    assert_eq!(is_recorded, is_open, "{template}");
    let recorded = annotations["tolerarch.io/required"].as_str();
    assert_eq!(
        recorded.unwrap_or_default(),
        required.join(","),
        "{template}"
    );
    (is_open, required)
}

#[tokio::test]
async fn unknown_image_keeps_additions_that_known_images_allow() {
    let engine = TestEngine::new().await;
    let both = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let arm64 = engine.image("edge", &["linux/arm64"]);
    let unknown = both.replace("v1", "v2");
    let nothing = || template(&both, json!({}));
    let policy = policy(json!({"placement": {"require": "affinity"}}));
    let (_, opened) = decide(&engine, &policy, &nothing(), None).await;
    let (_, required) = decide(&engine, &policy, &template(&amd64, json!({})), None).await;
    let open = (true, vec![]);
    let only = |arch| (false, vec![arch]);
    let closed = (false, vec![]);
    assert_eq!(
        (managed(&opened), managed(&required)),
        (open.clone(), only("amd64"))
    );
    for (images, of_nothing, of_opened, of_required) in [
        (vec![&both], &open, &open, &open),
        (vec![&amd64], &only("amd64"), &only("amd64"), &only("amd64")),
        (
            vec![&both, &amd64],
            &only("amd64"),
            &only("amd64"),
            &only("amd64"),
        ),
        (vec![&unknown], &closed, &open, &only("amd64")),
        (vec![&both, &unknown], &closed, &open, &only("amd64")),
        // An image that lacks an architecture of the pool closes the pool, even beside an unknown image.
        (vec![&amd64, &unknown], &closed, &closed, &only("amd64")),
        (vec![&unknown, &amd64], &closed, &closed, &only("amd64")),
        // The recorded requirement would leave the Pod no node.
        (vec![&arm64, &unknown], &closed, &closed, &closed),
    ] {
        let mut users = template(images[0], json!({}));
        let container =
            |(at, image): (usize, &&String)| json!({"name": format!("c{at}"), "image": image});
        users["spec"]["containers"] = images.iter().enumerate().map(container).collect();
        for (before, expected) in [
            (&nothing(), of_nothing),
            (&opened, of_opened),
            (&required, of_required),
        ] {
            for sent in SENT {
                let after = sent.template(&users, before);
                let (_, stored) = decide(&engine, &policy, &after, Some(before)).await;
                assert_eq!(
                    managed(&stored),
                    *expected,
                    "{images:?} {sent:?} after {before}"
                );
                let (_, again) = decide(&engine, &policy, &stored, Some(&stored)).await;
                assert_eq!(again, stored, "a second pass");
            }
        }
    }
}

/// The pool has two tolerations, and the user has one of them, written in another form.
#[tokio::test]
async fn equal_toleration_of_the_user_stays() {
    let engine = TestEngine::new().await;
    let both = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let arch = json!({"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"});
    let team = json!({"key": "team", "operator": "Exists"});
    let policy = policy(json!({"pools": [
        {"name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": [arch, team]},
    ]}));
    let users_own = json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"});
    let users = template(&both, json!({"tolerations": [users_own]}));
    let (_, before) = decide(&engine, &policy, &users, None).await;
    assert_eq!(
        before["spec"]["tolerations"],
        json!([users_own, arch, team])
    );
    for sent in SENT {
        let after = sent.template(&users, &before);
        let (_, stored) = decide(&engine, &policy, &after, Some(&before)).await;
        assert_eq!(stored, before, "{sent:?}: nothing is rolled out");

        let mut other = after.clone();
        other["spec"]["containers"][0]["image"] = json!(amd64);
        let (_, stored) = decide(&engine, &policy, &other, Some(&before)).await;
        assert_eq!(
            stored["spec"]["tolerations"],
            json!([users_own]),
            "{sent:?}: only managed tolerations are removed"
        );

        let mut other = after.clone();
        other["spec"]["priorityClassName"] = json!("high");
        let (_, stored) = decide(&engine, &policy, &other, Some(&before)).await;
        assert_eq!(
            stored["spec"]["tolerations"], before["spec"]["tolerations"],
            "{sent:?}"
        );
    }
}

/// docs/uninstall.md removes managed additions in this way.
#[tokio::test]
async fn share_of_zero_removes_additions_with_the_next_rollout() {
    let engine = TestEngine::new().await;
    let users = template(
        &engine.image("agent", &["linux/amd64", "linux/arm64"]),
        json!({}),
    );
    let (_, before) = decide(&engine, &policy(json!({})), &users, None).await;
    assert_eq!(managed(&before), (true, vec![]));
    let closed = policy(json!({"pools": [{
        "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": [own()], "share": 0,
    }]}));
    let (_, stored) = decide(&engine, &closed, &before, Some(&before)).await;
    assert_eq!(stored, before, "nothing is rolled out");
    let mut restarted = before.clone();
    restarted["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = json!("now");
    let (reason, stored) = decide(&engine, &closed, &restarted, Some(&before)).await;
    assert_eq!(
        (reason.as_str(), managed(&stored)),
        ("retracted", (false, vec![]))
    );
}

#[tokio::test]
async fn opted_out_observed_or_large_template_stays_unchanged() {
    let engine = TestEngine::new().await;
    let image = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let policy = policy(json!({}));
    let users = template(&image, json!({}));
    let (_, before) = decide(&engine, &policy, &users, None).await;

    let mut out = users.clone();
    out["metadata"]["labels"]["tolerarch.io/mode"] = json!("off");
    assert_eq!(
        decide(&engine, &policy, &out, Some(&before)).await,
        ("opted-out".to_owned(), out)
    );

    let observing = Policy {
        mode: Mode::Observe,
        ..policy.clone()
    };
    assert_eq!(
        decide(&engine, &observing, &users, Some(&before)).await,
        ("observed".to_owned(), users.clone())
    );

    let mut large = users.clone();
    large["metadata"]["annotations"] = json!({"a": "x".repeat(300 << 10)});
    let (_, stored) = decide(&engine, &policy, &large, Some(&large)).await;
    assert_eq!(stored, large);
}

#[tokio::test]
async fn long_annotations_cost_little() {
    let engine = TestEngine::new().await;
    let policy = policy(json!({}));
    let pools = |from: u32| {
        let names: Vec<String> = (from..from + 30_000).map(|name| name.to_string()).collect();
        names.join(",")
    };
    let long = |from: u32| {
        let mut template = template(&engine.image("agent", &["linux/amd64"]), json!({}));
        template["metadata"]["annotations"] = json!({"tolerarch.io/pools": pools(from)});
        template
    };
    // A quadratic comparison would take minutes.
    let (_, stored) = decide(&engine, &policy, &long(50_000), Some(&long(10_000))).await;
    assert!(
        stored["metadata"]["annotations"]["tolerarch.io/pools"]
            .as_str()
            .unwrap()
            .starts_with("50000")
    );
}

fn users_spec() -> impl Strategy<Value = Value> {
    let toleration = prop_oneof![
        Just(json!({"key": "gpu", "operator": "Exists"})),
        Just(json!({"key": "spot", "value": "true", "effect": "NoSchedule"})),
        Just(json!({"key": "tolerarch.io/other", "operator": "Exists", "effect": "NoSchedule"})),
        Just(
            json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"})
        ),
        Just(json!({"key": "team", "operator": "Exists", "value": ""})),
    ];
    let tolerations = proptest::option::of(proptest::collection::vec(toleration, 0..4));
    let expression = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let affinity = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({"podAffinity": {}})),
        Just(
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [expression]}, {"matchExpressions": []}]}}})
        ),
    ];
    let selector = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({"disk": "ssd"}))
    ];
    (tolerations, affinity, selector).prop_map(|(tolerations, affinity, selector)| {
        let mut spec = json!({});
        for (name, value) in [
            ("tolerations", json!(tolerations)),
            ("affinity", affinity),
            ("nodeSelector", selector),
        ] {
            if !value.is_null() {
                spec[name] = value;
            }
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn update_without_change_restores_the_template_exactly(
        spec in users_spec(),
        is_small in any::<bool>(),
        require in proptest::sample::select(vec!["off", "affinity", "nodeSelector"]),
        sent in proptest::sample::select(SENT.to_vec()),
    ) {
        let pool = json!({
            "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"],
            "tolerations": [
                {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
                {"key": "team", "operator": "Exists"},
            ],
        });
        let policy = policy(json!({"placement": {"require": require}, "pools": [pool]}));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (before, stored, users, less) = runtime.block_on(async {
            let engine = TestEngine::new().await;
            let platforms: &[&str] = if is_small { &["linux/amd64"] } else { &["linux/amd64", "linux/arm64"] };
            let users = template(&engine.image("agent", platforms), spec);
            let (_, before) = decide(&engine, &policy, &users, None).await;
            let after = sent.template(&users, &before);
            let (_, stored) = decide(&engine, &policy, &after, Some(&before)).await;
            let mut other = after;
            other["spec"]["containers"][0]["image"] = json!(engine.image("none", &["linux/s390x"]));
            let (_, less) = decide(&engine, &policy, &other, Some(&before)).await;
            (before, stored, users, less)
        });
        prop_assert_eq!(before, stored);
        let tolerations = |template: &Value| template["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(tolerations(&less), tolerations(&users), "all of the user's, and nothing else");
    }
}

/// A DaemonSet with this template, after its owner has applied a template with this spec.
fn applied(template: &Value, spec: &Value, time: &str) -> Value {
    let mut fields = json!({});
    for name in ["nodeSelector", "tolerations"]
        .into_iter()
        .filter(|name| !spec[name].is_null())
    {
        fields[format!("f:{name}")] = json!({});
    }
    if !spec["affinity"].is_null() {
        fields["f:affinity"] =
            json!({"f:nodeAffinity": {"f:requiredDuringSchedulingIgnoredDuringExecution": {}}});
    }
    let mut set = daemon_set(template);
    set["metadata"]["managedFields"] = json!([{
        "manager": "flux", "operation": "Apply", "time": time,
        "fieldsV1": {"f:spec": {"f:template": {"f:spec": fields}}},
    }]);
    set
}

/// Whether the template has no managed additions: its constraints and tolerations are the owner's.
fn is_of_owner(template: &Value, users: &Value) -> bool {
    let annotations = &template["metadata"]["annotations"];
    let is_managed = ANNOTATIONS.iter().any(|key| !annotations[*key].is_null());
    let mut members = MEMBERS.iter();
    !is_managed && members.all(|name| template["spec"][name] == users["spec"][name])
}

#[tokio::test]
async fn applied_constraints_are_the_owners_even_if_they_look_managed() {
    let engine = TestEngine::new().await;
    let amd64 = engine.image("old", &["linux/amd64"]);
    let arm64 = engine.image("edge", &["linux/arm64"]);
    let arch = || json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
    let zone = || json!({"key": "zone", "operator": "In", "values": ["a"]});
    let affinity = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}})
    };
    let free = [
        json!({}),
        json!({"nodeSelector": {"zone": "a"}}),
        affinity(json!([{"matchExpressions": [zone()]}])),
    ];
    let bound = [
        json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
        json!({"nodeSelector": {"kubernetes.io/arch": "amd64", "zone": "a"}}),
        affinity(json!([{"matchExpressions": [arch()]}])),
        affinity(json!([{"matchExpressions": [zone(), arch()]}])),
        affinity(json!([{"matchExpressions": [arch()]}, {"matchExpressions": [zone(), arch()]}])),
    ];
    for require in ["affinity", "nodeSelector"] {
        let policy = policy(json!({"placement": {"require": require}}));
        for (users, names) in free
            .iter()
            .flat_map(|users| bound.iter().map(move |names| (users, names)))
        {
            let case = format!("{require}: {users}, then {names}");
            let (_, before) =
                decide(&engine, &policy, &template(&amd64, users.clone()), None).await;
            assert_eq!(
                before["metadata"]["annotations"],
                json!({"tolerarch.io/required": "amd64"})
            );
            let owners = template(&amd64, names.clone());
            let others = template(&arm64, names.clone());
            let sent = |users| Sent::Applied.template(users, &before);

            // The API server sends no review for an update that changes nothing.
            let mut stored = sent(&owners);
            if stored != before {
                let (old, new) = (applied(&before, users, "1"), applied(&stored, names, "2"));
                stored = decide_object(&engine, &policy, &new, Some(&old)).await.1;
                assert!(is_of_owner(&stored, &owners), "{case}: {stored}");
            }
            let old = applied(&stored, names, "2");
            let (_, next) = decide_object(
                &engine,
                &policy,
                &applied(&sent(&others), names, "3"),
                Some(&old),
            )
            .await;
            assert!(
                is_of_owner(&next, &others),
                "{case}, then another image: {next}"
            );
            // tolerarch may have added to terms that an earlier request applied, except to terms that were complete.
            if stored != before || names == &bound[2] {
                let mut edited = old.clone();
                edited["spec"]["template"]["spec"]["containers"] =
                    others["spec"]["containers"].clone();
                let (_, next) = decide_object(&engine, &policy, &edited, Some(&old)).await;
                assert!(
                    is_of_owner(&next, &others),
                    "{case}, then another image from another client: {next}"
                );
            }
        }
    }
}

#[tokio::test]
async fn constraint_in_another_place_is_the_users() {
    let engine = TestEngine::new().await;
    let image = engine.image("old", &["linux/amd64"]);
    let arch = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
    let terms = json!([{"matchExpressions": [arch]}]);
    let affinity = json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}});
    let selector = json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}});
    for (require, elsewhere) in [("affinity", &selector), ("nodeSelector", &affinity)] {
        let policy = policy(json!({"placement": {"require": require}}));
        let (_, before) = decide(&engine, &policy, &template(&image, json!({})), None).await;
        let users = template(&image, elsewhere.clone());
        for sent in [Sent::Applied, Sent::Replaced] {
            let (_, stored) = decide(
                &engine,
                &policy,
                &sent.template(&users, &before),
                Some(&before),
            )
            .await;
            assert!(
                is_of_owner(&stored, &users),
                "{require}, {sent:?}: {stored}"
            );
        }
    }
}

#[tokio::test]
async fn applied_toleration_is_the_owners() {
    let engine = TestEngine::new().await;
    let both = engine.image("agent", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let policy = policy(json!({}));
    let gpu = json!({"key": "gpu", "operator": "Exists"});
    for (first, then) in [
        (json!({}), json!([own()])),
        (json!({"tolerations": [gpu]}), json!([gpu, own()])),
    ] {
        let then = json!({"tolerations": then});
        let (_, before) = decide(&engine, &policy, &template(&both, first.clone()), None).await;
        // An update that changes nothing, and then one to an image for one architecture.
        let old = applied(&before, &then, "2");
        let others = template(&amd64, then.clone());
        let mut edited = old.clone();
        edited["spec"]["template"]["spec"]["containers"] = others["spec"]["containers"].clone();
        let (_, next) = decide_object(&engine, &policy, &edited, Some(&old)).await;
        assert_eq!(
            managed(&next),
            (false, vec![]),
            "by another client: the owner may have applied an empty list"
        );
        let mut sent = edited;
        sent["metadata"]["managedFields"][0]["time"] = json!("3");
        let (_, next) = decide_object(&engine, &policy, &sent, Some(&old)).await;
        assert!(is_of_owner(&next, &others), "by the owner: {next}");
    }
}

fn pod_template_policy(mut keys: Value) -> Policy {
    keys["podTemplates"] = json!(true);
    tolerarch_core::testing::policy(&keys)
}

#[tokio::test]
async fn pod_template_gets_the_additions_of_its_pods() {
    let engine = TestEngine::new().await;
    let both = engine.image("web", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let policy = pod_template_policy(
        json!({"placement": {"require": "affinity", "prefer": [{"platform": "linux/arm64", "weight": 9}]}}),
    );

    let users = template(&both, json!({}));
    let (reason, stored) = decide_pod_template(&engine, &policy, &users, None).await;
    assert_eq!(reason, "tolerated");
    assert_eq!(stored["spec"]["tolerations"], json!([own()]));
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({"tolerarch.io/pools": "multi-arch", "tolerarch.io/preferred": "arm64=9"}),
        "the scheduler heeds preferences"
    );

    let bound = template(&amd64, json!({}));
    let (reason, stored) = decide_pod_template(&engine, &policy, &bound, None).await;
    assert_eq!(reason, "placed");
    assert_eq!(managed(&stored), (false, vec!["amd64"]));

    let off = Policy {
        daemon_sets: true,
        pod_templates: false,
        ..policy
    };
    let decided = decide_pod_template(&engine, &off, &users, None).await;
    assert_eq!(decided, ("not-applicable".to_owned(), users));
}

#[tokio::test]
async fn preferences_of_a_pod_template_stay() {
    let engine = TestEngine::new().await;
    let both = engine.image("web", &["linux/amd64", "linux/arm64"]);
    let amd64 = engine.image("old", &["linux/amd64"]);
    let unknown = both.replace("v1", "v2");
    let pool = json!({
        "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": [own()],
        "prefer": {"weight": 5, "labels": {"pool": "multi"}},
    });
    let prefer = json!([{"platform": "linux/arm64", "weight": 9}]);
    let policy = pod_template_policy(json!({"pools": [pool], "placement": {"prefer": prefer}}));
    let zone = json!({"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}});
    let affinity =
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [zone]}});
    for spec in [json!({}), json!({"affinity": affinity})] {
        let users = template(&both, spec);
        let (_, before) = decide_pod_template(&engine, &policy, &users, None).await;
        assert_eq!(
            before["metadata"]["annotations"]["tolerarch.io/preferred"],
            "arm64=9,pool/multi-arch=5"
        );
        for sent in SENT {
            let after = sent.template(&users, &before);
            let (_, stored) = decide_pod_template(&engine, &policy, &after, Some(&before)).await;
            assert_eq!(stored, before, "{sent:?}: nothing has changed");

            let mut other = after.clone();
            other["spec"]["containers"][0]["image"] = json!(unknown);
            let (_, mut stored) =
                decide_pod_template(&engine, &policy, &other, Some(&before)).await;
            assert_eq!(stored["spec"]["containers"][0]["image"], json!(unknown));
            stored["spec"]["containers"] = before["spec"]["containers"].clone();
            assert_eq!(stored, before, "{sent:?}: an unknown image keeps all");

            other["metadata"]["labels"]["tolerarch.io/prefer"] = json!("none");
            let (_, stored) = decide_pod_template(&engine, &policy, &other, Some(&before)).await;
            assert_eq!(
                stored["metadata"]["annotations"]["tolerarch.io/preferred"], "pool/multi-arch=5",
                "{sent:?}"
            );

            let mut other = after;
            other["spec"]["containers"][0]["image"] = json!(amd64);
            let (_, stored) = decide_pod_template(&engine, &policy, &other, Some(&before)).await;
            assert_eq!(managed(&stored), (false, vec![]), "{sent:?}");
            let affinity = stored["spec"].get("affinity").unwrap_or(&Value::Null);
            let users_affinity = users["spec"].get("affinity").unwrap_or(&Value::Null);
            assert_eq!(affinity, users_affinity, "{sent:?}: the user's stays");
        }
    }
}

/// A share counts a PodTemplate by its name, and not by its owner.
#[tokio::test]
async fn pod_template_is_its_own_workload_for_a_share() {
    let engine = TestEngine::new().await;
    let image = engine.image("web", &["linux/amd64", "linux/arm64"]);
    let pool = json!({
        "name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": [own()], "share": 50,
    });
    let policy = pod_template_policy(json!({"pools": [pool]}));
    let mut reasons = BTreeMap::new();
    for at in 0..40 {
        let name = format!("buffer-{at}");
        let mut object = pod_template(&template(&image, json!({})));
        object["metadata"]["name"] = json!(name);
        let (first, _) = decide_object(&engine, &policy, &object, None).await;
        object["metadata"] = json!({"generateName": name, "ownerReferences": [
            {"kind": "CapacityBuffer", "name": at.to_string(), "controller": true},
        ]});
        let (second, _) = decide_object(&engine, &policy, &object, None).await;
        assert_eq!(first, second, "{name}");
        *reasons.entry(first).or_insert(0) += 1;
    }
    assert_eq!(
        reasons.keys().collect::<Vec<_>>(),
        ["not-in-share", "tolerated"]
    );
}
