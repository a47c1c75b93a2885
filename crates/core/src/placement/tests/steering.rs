//! What a Pod gets, by example: as JSON patches, which users see with `tolerarch check -o patch`.

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
    let platforms = placement.get("platforms").is_none();
    let mut placement = placement;
    if platforms {
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

/// The reason, what was done, and the patch, with an affinity in its parts: the object, then each member of its node affinity.
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
        decision.done(),
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
fn requires_the_architectures_that_all_images_share() {
    let policy = policy(json!({"require": "affinity"}));
    let term = |archs: &[&str]| json!({"nodeSelectorTerms": [{"matchExpressions": [arch(archs)]}]});
    let whole = add("/spec/affinity", json!({"nodeAffinity": {}}));
    let (seen, patch) = decide(&policy, &pod(json!({})), &[runs(&BOTH), runs(&AMD64)]);
    assert_eq!(seen, "placed placed second");
    assert_eq!(
        patch,
        json!([whole, add(REQUIRED, term(&["amd64"])), required("amd64")])
    );

    // A pool that is open as well: the toleration has the word.
    let (seen, patch) = decide(&policy, &pod(json!({})), &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    assert_eq!(patch[2], add(REQUIRED, term(&["amd64", "arm64"])));

    for (affinity, kept) in [
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
        let whole = add("/spec/affinity", kept);
        assert_eq!(
            patch,
            json!([whole, add(REQUIRED, term(&["amd64"])), required("amd64")])
        );
    }
}

#[test]
fn a_node_affinity_is_created_in_one_operation() {
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
fn requires_it_in_each_term_that_matches_something() {
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
fn selects_the_one_architecture_that_is_left() {
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
fn a_pod_that_names_its_architecture_keeps_its_own_way() {
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
fn images_that_share_no_platform_leave_the_pod_as_it_is() {
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
    // Of an architecture all variants that the cluster has.
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

/// As after a rollback, or by hand.
#[test]
fn what_is_written_down_in_another_way_is_not_taken_back() {
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
fn an_image_that_is_not_known_leaves_what_is_configured() {
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

/// What an earlier pass required, as it follows what became of the Pod's images.
#[test]
fn a_later_pass_follows_an_injected_sidecar() {
    let policy = policy(json!({"require": "affinity"}));
    let with = |archs: &[&str]| {
        let expressions = json!([{"key": "zone", "operator": "Exists"}, arch(archs), {"key": "b", "operator": "Exists"}]);
        let mut pod = pod(json!({"affinity": terms(json!([{"matchExpressions": expressions}]))}));
        pod["metadata"]["annotations"]["tolerarch.io/required"] = archs.join(",").into();
        pod
    };
    let whole = add("/spec/affinity", json!({"nodeAffinity": {}}));
    let becomes = |there: Option<Value>| {
        let (zone, b) = (
            json!({"key": "zone", "operator": "Exists"}),
            json!({"key": "b", "operator": "Exists"}),
        );
        let expressions: Vec<_> = [Some(zone), Some(b), there].into_iter().flatten().collect();
        add(
            REQUIRED,
            json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]}),
        )
    };
    let amd64_s390x = ["linux/amd64", "linux/s390x"];
    // Narrowed, widened, broken, and as it was.
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
    let gone = json!([whole, becomes(None), annotation]);
    for images in [
        [runs(&AMD64), runs(&["linux/arm64"])],
        [runs(&AMD64), UNKNOWN],
    ] {
        let (seen, patch) = decide(&policy, &with(&["amd64"]), &images);
        assert!(seen.starts_with("retracted retracted"), "{seen}");
        assert_eq!(patch, gone);
    }
    let seen = decide(&policy, &with(&["amd64"]), &[runs(&AMD64)]);
    assert_eq!(seen, ("unchanged placed first".into(), json!([])));
}

#[test]
fn what_is_all_its_own_goes_as_a_whole() {
    let affinity = policy(json!({"require": "affinity"}));
    let selector = policy(json!({"require": "nodeSelector"}));
    let own = json!([{"matchExpressions": [arch(&["amd64"])]}]);
    let marked = |spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["annotations"]["tolerarch.io/required"] = "amd64".into();
        pod
    };
    let mut beside = terms(own.clone());
    beside["podAntiAffinity"] = json!({"x": []});
    let mut preferring = terms(own.clone());
    preferring["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([]);
    let others = json!([{"matchExpressions": [arch(&["amd64"])]}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]);
    let gone = |path: &str| json!({"op": "remove", "path": path});
    let left = terms(json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]));
    for (policy, spec, operation) in [
        (
            &affinity,
            json!({"affinity": terms(own.clone())}),
            gone("/spec/affinity"),
        ),
        (
            &affinity,
            json!({"affinity": beside}),
            add("/spec/affinity", json!({"podAntiAffinity": {"x": []}})),
        ),
        // A list that is empty says as much as none.
        (
            &affinity,
            json!({"affinity": preferring}),
            gone("/spec/affinity"),
        ),
        (
            &affinity,
            json!({"affinity": terms(others)}),
            add("/spec/affinity", left),
        ),
        (
            &selector,
            json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
            gone("/spec/nodeSelector"),
        ),
        (
            &selector,
            json!({"nodeSelector": {"kubernetes.io/arch": "amd64", "a": "b"}}),
            add("/spec/nodeSelector", json!({"a": "b"})),
        ),
        // Under another form than the one it was added by.
        (
            &affinity,
            json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
            gone("/spec/nodeSelector"),
        ),
        (
            &selector,
            json!({"affinity": terms(own)}),
            gone("/spec/affinity"),
        ),
    ] {
        let (seen, patch) = decide_in_one(policy, &marked(spec.clone()), &[UNKNOWN]);
        assert_eq!(seen, "retracted retracted first", "{spec}");
        assert_eq!(patch[0], operation, "{spec}");
        assert_eq!(patch.as_array().unwrap().len(), 2, "{spec}");
    }
}

#[test]
fn what_is_not_understood_is_not_edited() {
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
fn a_pod_that_tolerates_everything_is_steered_all_the_same() {
    let tolerant = pod(json!({"tolerations": [{"operator": "Exists"}]}));
    let tolerant = Pod::of_value(&tolerant).unwrap();
    assert!(Decision::without_images(&policy(json!({})), &tolerant).is_some());
    assert!(Decision::without_images(&policy(json!({"require": "affinity"})), &tolerant).is_none());
}
