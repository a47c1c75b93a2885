//! Examples of steering, as JSON patches, which users see with `tolerarch check -o patch`.

use serde_json::{Value, json};

use crate::decision::Decision;
use crate::image::{LookupError, Support};
use crate::patch;
use crate::pod::{Pod, Purpose};
use crate::policy::{ImageSupport, Policy, Rank};
use crate::testing::{self, platforms};

pub(super) const REQUIRED: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

pub(super) fn policy(placement: Value) -> Policy {
    let mut placement = placement;
    if placement.get("platforms").is_none() {
        placement["platforms"] = json!(["linux/amd64", "linux/arm64", "linux/s390x"]);
    }
    testing::policy(&json!({"placement": placement}))
}

pub(super) fn runs(names: &[&str]) -> Result<Support, LookupError> {
    Ok(Support::Index(platforms(names)))
}

pub(super) const BOTH: [&str; 2] = ["linux/amd64", "linux/arm64"];
pub(super) const AMD64: [&str; 1] = ["linux/amd64"];
pub(super) const UNKNOWN: Result<Support, LookupError> = Err(LookupError::Denied);

/// Outcome, reason and decisive image, and the patch. An affinity is split: the object, then each member of its node
/// affinity.
pub(super) fn decide(
    policy: &Policy,
    pod: &Value,
    images: &[Result<Support, LookupError>],
) -> (String, Value) {
    let (summary, patch) = decide_in_one(policy, pod, images);
    let mut parts = Vec::new();
    for operation in patch.as_array().unwrap() {
        let mut whole = operation.clone();
        let members = whole.pointer_mut("/value/nodeAffinity").map(Value::take);
        let Some(members) = members else {
            parts.push(whole);
            continue;
        };
        whole["value"]["nodeAffinity"] = json!({});
        parts.push(whole);
        // In the order in which the patch has them.
        for (name, value) in members.as_object().unwrap().iter().rev() {
            parts.push(add(
                &format!("/spec/affinity/nodeAffinity/{name}"),
                value.clone(),
            ));
        }
    }
    (summary, parts.into())
}

fn decide_in_one(
    policy: &Policy,
    pod: &Value,
    images: &[Result<Support, LookupError>],
) -> (String, Value) {
    let pod = Pod::of_value(pod).unwrap();
    let names = ["first", "second", "third"];
    let given = |(support, given): (&_, &'static str)| ImageSupport {
        given,
        purpose: Purpose::Run,
        support: *support,
        failure: None,
    };
    let images: Vec<ImageSupport<'_>> = images.iter().zip(names).map(given).collect();
    let decision = Decision::of(policy, &pod, Rank::FIRST, &images);
    let patch = patch::build("", &pod, &decision.edits);
    let patch = if patch.is_empty() {
        json!([])
    } else {
        serde_json::from_str(&patch).unwrap()
    };
    let summary = [
        decision.outcome(),
        decision.reason.as_str(),
        decision.image.unwrap_or_default(),
    ]
    .join(" ");
    (summary.trim_end().to_owned(), patch)
}

pub(super) fn pod(spec: Value) -> Value {
    let mut spec = spec;
    spec["containers"] = json!([{"image": "x"}]);
    json!({"metadata": {"annotations": {"a": "b"}}, "spec": spec})
}

pub(super) fn add(path: &str, value: Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}

pub(super) fn arch(values: &[&str]) -> Value {
    json!({"key": "kubernetes.io/arch", "operator": "In", "values": values})
}

fn required(value: &str) -> Value {
    add("/metadata/annotations/tolerarch.io~1required", json!(value))
}

fn terms(terms: Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn architectures_that_all_images_share_are_required() {
    let policy = policy(json!({"require": "affinity"}));
    let term = |archs: &[&str]| json!({"nodeSelectorTerms": [{"matchExpressions": [arch(archs)]}]});
    let whole = add("/spec/affinity", json!({"nodeAffinity": {}}));
    let (seen, patch) = decide(&policy, &pod(json!({})), &[runs(&BOTH), runs(&AMD64)]);
    assert_eq!(seen, "placed placed second");
    assert_eq!(
        patch,
        json!([whole, add(REQUIRED, term(&["amd64"])), required("amd64")])
    );

    // A pool is open as well: the outcome is that of the toleration.
    let (seen, patch) = decide(&policy, &pod(json!({})), &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    assert_eq!(patch[2], add(REQUIRED, term(&["amd64", "arm64"])));

    for (affinity, expected) in [
        (
            json!({"podAffinity": {"future": [1]}}),
            json!({"podAffinity": {"future": [1]}, "nodeAffinity": {}}),
        ),
        (json!({"nodeAffinity": null}), json!({"nodeAffinity": {}})),
        (
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": null}}),
            json!({"nodeAffinity": {}}),
        ),
    ] {
        let (_, patch) = decide(
            &policy,
            &pod(json!({"affinity": affinity})),
            &[runs(&AMD64)],
        );
        let whole = add("/spec/affinity", expected);
        assert_eq!(
            patch,
            json!([whole, add(REQUIRED, term(&["amd64"])), required("amd64")])
        );
    }
}

#[test]
fn node_affinity_is_created_in_one_operation() {
    let policy = policy(
        json!({"require": "affinity", "prefer": [{"platform": "linux/amd64", "weight": 7}]}),
    );
    let created = json!({
        "requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [arch(&["amd64"])]}]},
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 7, "preference": {"matchExpressions": [arch(&["amd64"])]}}],
    });
    for (affinity, expected) in [
        (Value::Null, json!({"nodeAffinity": created})),
        (
            json!({"podAffinity": {}}),
            json!({"podAffinity": {}, "nodeAffinity": created}),
        ),
    ] {
        let (_, patch) = decide_in_one(
            &policy,
            &pod(json!({"affinity": affinity})),
            &[runs(&AMD64)],
        );
        assert_eq!(patch[0], add("/spec/affinity", expected));
    }
}

#[test]
fn each_term_that_is_not_empty_gets_the_requirement() {
    let policy = policy(json!({"require": "affinity"}));
    let zone = json!({"key": "zone", "operator": "Exists"});
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
    let given = terms(json!([
        {"matchExpressions": [zone]}, {}, {"matchExpressions": null, "matchFields": [name]}, {"matchExpressions": []},
    ]));
    let (seen, patch) = decide(&policy, &pod(json!({"affinity": given})), &[runs(&AMD64)]);
    assert_eq!(seen, "placed placed first");
    let expected = json!({"nodeSelectorTerms": [
        {"matchExpressions": [zone, arch(&["amd64"])]}, {},
        {"matchExpressions": [arch(&["amd64"])], "matchFields": [name]}, {},
    ]});
    let whole = add("/spec/affinity", json!({"nodeAffinity": {}}));
    assert_eq!(
        patch,
        json!([whole, add(REQUIRED, expected), required("amd64")])
    );

    for empty in [
        json!([{}]),
        json!([{}, {"matchExpressions": [], "matchFields": []}]),
        json!([]),
        json!(null),
    ] {
        let given = pod(json!({"affinity": terms(empty)}));
        assert_eq!(
            decide(&policy, &given, &[runs(&AMD64)]),
            ("unchanged platform-missing first".into(), json!([]))
        );
    }
}

#[test]
fn single_architecture_is_required_by_the_node_selector() {
    let policy = policy(json!({"require": "nodeSelector"}));
    let of = |selector: Value| pod(json!({"nodeSelector": selector}));
    for none in [pod(json!({})), of(json!(null))] {
        let (_, patch) = decide(&policy, &none, &[runs(&AMD64)]);
        assert_eq!(
            patch[0],
            add("/spec/nodeSelector", json!({"kubernetes.io/arch": "amd64"}))
        );
    }
    for some in [json!({}), json!({"zone": "a"})] {
        let (seen, patch) = decide(&policy, &of(some.clone()), &[runs(&AMD64)]);
        assert_eq!(seen, "placed placed first");
        let mut expected = some;
        expected["kubernetes.io/arch"] = json!("amd64");
        assert_eq!(patch[0], add("/spec/nodeSelector", expected));
    }
    let (_, patch) = decide(
        &policy,
        &of(json!({"zone": "a"})),
        &[runs(&["linux/amd64", "linux/s390x"])],
    );
    assert_eq!(patch[1]["path"], REQUIRED);
    assert_eq!(patch[2], required("amd64,s390x"));
}

#[test]
fn pod_that_names_an_architecture_is_not_steered() {
    for require in ["affinity", "nodeSelector"] {
        let policy = policy(json!({"require": require}));
        for key in ["kubernetes.io/arch", "beta.kubernetes.io/arch"] {
            let one_of_two = terms(
                json!([{"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["arm64"]}]},
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
            );
            for spec in [
                json!({"nodeSelector": {key: "arm64"}}),
                json!({"affinity": one_of_two}),
            ] {
                let seen = decide(&policy, &pod(spec.clone()), &[runs(&AMD64)]);
                assert_eq!(
                    seen,
                    ("unchanged platform-missing first".into(), json!([])),
                    "{spec}"
                );
                assert_eq!(
                    decide(&policy, &pod(spec), &[runs(&BOTH)]).0,
                    "tolerated tolerated"
                );
            }
        }
    }
}

#[test]
fn images_without_a_common_platform_leave_the_pod_unchanged() {
    let rules = policy(json!({"require": "affinity"}));
    let none = (
        String::from("unchanged no-common-platform first"),
        json!([]),
    );
    assert_eq!(
        decide(
            &rules,
            &pod(json!({})),
            &[runs(&AMD64), runs(&["linux/arm64"])]
        ),
        none
    );
    assert_eq!(
        decide(&rules, &pod(json!({})), &[runs(&["linux/riscv64"])]),
        none
    );
    let off = policy(json!({}));
    assert_eq!(
        decide(&off, &pod(json!({})), &[runs(&["linux/riscv64"])]).0,
        "unchanged platform-missing first"
    );
    // An architecture counts only with all variants that the cluster has.
    let arm = policy(
        json!({"require": "affinity", "platforms": ["linux/amd64", "linux/arm/v6", "linux/arm/v7"]}),
    );
    let (_, patch) = decide(
        &arm,
        &pod(json!({})),
        &[runs(&["linux/amd64", "linux/arm/v7"])],
    );
    assert_eq!(patch[2], required("amd64"));
    assert_eq!(
        decide(&arm, &pod(json!({})), &[runs(&["linux/arm/v7"])]),
        none
    );
}

/// The order may differ after a rollback, or after an edit by hand.
#[test]
fn annotation_in_another_order_keeps_the_requirement() {
    let arm = runs(&["linux/arm64", "linux/s390x"]);
    let terms = terms(json!([{"matchExpressions":
        [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64", "s390x"]}]}]));
    let mut steered = pod(json!({"affinity": terms}));
    steered["metadata"]["annotations"]["tolerarch.io/required"] = json!("s390x,arm64");
    let (seen, patch) = decide(&policy(json!({"require": "affinity"})), &steered, &[arm]);
    assert_eq!(seen, "unchanged placed first");
    assert_eq!(
        patch,
        json!([add(
            "/metadata/annotations/tolerarch.io~1required",
            json!("arm64,s390x")
        )])
    );
}

#[test]
fn unknown_image_requires_the_configured_platforms() {
    let rules = policy(json!({"require": "affinity", "whenUnknown": ["linux/amd64"]}));
    let (seen, patch) = decide(&rules, &pod(json!({})), &[runs(&BOTH), UNKNOWN]);
    assert_eq!(
        (&*seen, &patch[2]),
        ("placed placed second", &required("amd64"))
    );
    let arm = [UNKNOWN, runs(&["linux/arm64"])];
    assert_eq!(
        decide(&rules, &pod(json!({})), &arm),
        ("unchanged platform-missing second".into(), json!([]))
    );
    let unsaid = policy(json!({"require": "affinity"}));
    assert_eq!(
        decide(&unsaid, &pod(json!({})), &[UNKNOWN, runs(&BOTH)]),
        ("unchanged denied first".into(), json!([]))
    );
}

#[test]
fn later_pass_adapts_the_requirement_to_an_injected_sidecar() {
    let policy = policy(json!({"require": "affinity"}));
    let with = |archs: &[&str]| {
        let expressions = json!([{"key": "zone", "operator": "Exists"}, arch(archs), {"key": "b", "operator": "Exists"}]);
        let mut pod = pod(json!({"affinity": terms(json!([{"matchExpressions": expressions}]))}));
        pod["metadata"]["annotations"]["tolerarch.io/required"] = archs.join(",").into();
        pod
    };
    let whole = add("/spec/affinity", json!({"nodeAffinity": {}}));
    let becomes = |managed: Option<Value>| {
        let zone = json!({"key": "zone", "operator": "Exists"});
        let b = json!({"key": "b", "operator": "Exists"});
        let mut expressions = vec![zone, b];
        expressions.extend(managed);
        add(
            REQUIRED,
            json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]}),
        )
    };
    let amd64_s390x = ["linux/amd64", "linux/s390x"];
    // The requirement is narrowed, widened, removed, and kept.
    let seen = decide(
        &policy,
        &with(&["amd64", "s390x"]),
        &[runs(&amd64_s390x), runs(&AMD64)],
    );
    let narrowed = json!([whole, becomes(Some(arch(&["amd64"]))), required("amd64")]);
    assert_eq!(seen, ("placed placed first".into(), narrowed));
    let seen = decide(&policy, &with(&["amd64"]), &[runs(&amd64_s390x)]);
    let widened = json!([
        whole,
        becomes(Some(arch(&["amd64", "s390x"]))),
        required("amd64,s390x")
    ]);
    assert_eq!(seen, ("placed placed first".into(), widened));
    let annotation =
        json!({"op": "remove", "path": "/metadata/annotations/tolerarch.io~1required"});
    let removed = json!([whole, becomes(None), annotation]);
    for images in [
        [runs(&AMD64), runs(&["linux/arm64"])],
        [runs(&AMD64), UNKNOWN],
    ] {
        let (seen, patch) = decide(&policy, &with(&["amd64"]), &images);
        assert!(seen.starts_with("retracted retracted"), "{seen}");
        assert_eq!(patch, removed);
    }
    let seen = decide(&policy, &with(&["amd64"]), &[runs(&AMD64)]);
    assert_eq!(seen, ("unchanged placed first".into(), json!([])));
}

#[test]
fn member_with_only_managed_parts_is_removed() {
    let affinity = policy(json!({"require": "affinity"}));
    let selector = policy(json!({"require": "nodeSelector"}));
    let managed = json!([{"matchExpressions": [arch(&["amd64"])]}]);
    let annotated = |spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["annotations"]["tolerarch.io/required"] = "amd64".into();
        pod
    };
    let mut beside = terms(managed.clone());
    beside["podAntiAffinity"] = json!({"x": []});
    let mut preferring = terms(managed.clone());
    preferring["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([]);
    let others = json!([{"matchExpressions": [arch(&["amd64"])]}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]);
    let remove = |path: &str| json!({"op": "remove", "path": path});
    let remaining = terms(json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]));
    for (policy, spec, operation) in [
        (
            &affinity,
            json!({"affinity": terms(managed.clone())}),
            remove("/spec/affinity"),
        ),
        (
            &affinity,
            json!({"affinity": beside}),
            add("/spec/affinity", json!({"podAntiAffinity": {"x": []}})),
        ),
        // An empty list means the same as an absent one.
        (
            &affinity,
            json!({"affinity": preferring}),
            remove("/spec/affinity"),
        ),
        (
            &affinity,
            json!({"affinity": terms(others)}),
            add("/spec/affinity", remaining),
        ),
        (
            &selector,
            json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
            remove("/spec/nodeSelector"),
        ),
        (
            &selector,
            json!({"nodeSelector": {"kubernetes.io/arch": "amd64", "a": "b"}}),
            add("/spec/nodeSelector", json!({"a": "b"})),
        ),
        // `require` has changed since the constraint was added.
        (
            &affinity,
            json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
            remove("/spec/nodeSelector"),
        ),
        (
            &selector,
            json!({"affinity": terms(managed)}),
            remove("/spec/affinity"),
        ),
    ] {
        let (seen, patch) = decide_in_one(policy, &annotated(spec.clone()), &[UNKNOWN]);
        assert_eq!(seen, "retracted retracted first", "{spec}");
        assert_eq!(patch[0], operation, "{spec}");
        assert_eq!(patch.as_array().unwrap().len(), 2, "{spec}");
    }
}

#[test]
fn unreadable_constraints_are_not_edited() {
    let policy = policy(json!({"require": "affinity"}));
    let term = |term: Value| json!({"affinity": terms(json!([term]))});
    for spec in [
        json!({"affinity": []}),
        json!({"affinity": {"nodeAffinity": []}}),
        json!({"affinity": {"future": {}}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingRequiredDuringExecution": {}}}}),
        term(json!({"matchLabels": {}})),
        term(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "future": 1}]})),
        json!({"affinity": terms(json!([null]))}),
        json!({"affinity": terms(json!(vec![json!({"matchFields": [{}]}); 200]))}),
        json!({"nodeSelector": {"a": "b".repeat(1 << 17)}}),
        json!({"nodeSelector": {"a": 7}}),
    ] {
        let seen = decide(&policy, &pod(spec.clone()), &[runs(&AMD64)]);
        assert_eq!(
            seen,
            ("unchanged platform-missing first".into(), json!([])),
            "{spec}"
        );
    }
}

#[test]
fn pod_that_tolerates_every_pool_is_still_steered() {
    let tolerant = pod(json!({"tolerations": [{"operator": "Exists"}]}));
    let tolerant = Pod::of_value(&tolerant).unwrap();
    assert!(Decision::without_images(&policy(json!({})), &tolerant).is_some());
    assert!(Decision::without_images(&policy(json!({"require": "affinity"})), &tolerant).is_none());
}
