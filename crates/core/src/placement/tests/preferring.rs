//! Examples of preferences, and of Pod labels that nodes must have.

use serde_json::{Value, json};

use super::steering::{AMD64, BOTH, REQUIRED, UNKNOWN, add, arch, decide, pod, policy, runs};
use crate::testing;

const PREFERRED: &str =
    "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";

fn weighted(weight: u8, expressions: &[Value]) -> Value {
    json!({"weight": weight, "preference": {"matchExpressions": expressions}})
}

fn preferred(value: &str) -> Value {
    add(
        "/metadata/annotations/tolerarch.io~1preferred",
        json!(value),
    )
}

fn affinity(preferred: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
}

/// The operations that concern preferences.
fn of_preferences(patch: &Value) -> Vec<Value> {
    let concerns = |operation: &&Value| {
        let path = operation["path"].as_str().unwrap();
        path.starts_with(PREFERRED) || path.ends_with("preferred")
    };
    patch
        .as_array()
        .unwrap()
        .iter()
        .filter(concerns)
        .cloned()
        .collect()
}

#[test]
fn configured_platform_is_preferred_if_every_image_runs_there() {
    let rules = policy(
        json!({"prefer": [{"platform": "linux/arm64", "weight": 80}, {"platform": "linux/amd64", "weight": 7}]}),
    );
    let amd64 = weighted(7, &[arch(&["amd64"])]);
    let arm64 = weighted(80, &[arch(&["arm64"])]);
    let (seen, patch) = decide(&rules, &pod(json!({})), &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    assert_eq!(
        of_preferences(&patch),
        [
            add(PREFERRED, json!([amd64, arm64])),
            preferred("amd64=7,arm64=80")
        ]
    );
    let (seen, patch) = decide(&rules, &pod(json!({})), &[runs(&BOTH), runs(&AMD64)]);
    assert_eq!(seen, "placed placed second");
    let parent = add("/spec/affinity", json!({"nodeAffinity": {}}));
    assert_eq!(
        patch,
        json!([parent, add(PREFERRED, json!([amd64])), preferred("amd64=7")])
    );
    for unknown in [&[runs(&BOTH), UNKNOWN][..], &[runs(&["linux/s390x"])]] {
        assert_eq!(decide(&rules, &pod(json!({})), unknown).1, json!([]));
    }
    // Appended to the user's preferences, unless one of those names the same label.
    let zone = weighted(1, &[json!({"key": "zone", "operator": "Exists"})]);
    let (_, patch) = decide(&rules, &pod(affinity(json!([zone]))), &[runs(&AMD64)]);
    assert_eq!(
        of_preferences(&patch)[0],
        add(PREFERRED, json!([zone, amd64]))
    );
    for key in ["kubernetes.io/arch", "beta.kubernetes.io/arch"] {
        let expression = json!({"key": key, "operator": "In", "values": ["amd64"]});
        let users = pod(affinity(json!([weighted(1, &[expression])])));
        assert_eq!(decide(&rules, &users, &[runs(&AMD64)]).1, json!([]));
        let selected = pod(json!({"nodeSelector": {key: "amd64"}}));
        assert_eq!(decide(&rules, &selected, &[runs(&AMD64)]).1, json!([]));
    }
}

#[test]
fn preference_of_the_pod_overrides_the_configuration() {
    let configured = policy(json!({"prefer": [{"platform": "linux/amd64", "weight": 7}]}));
    let nothing = policy(json!({}));
    let saying = |place: &str, value: &str| {
        let mut pod = pod(json!({}));
        pod["metadata"][place] = json!({"tolerarch.io/prefer": value});
        pod
    };
    let arm64 = add(PREFERRED, json!([weighted(100, &[arch(&["arm64"])])]));
    for rules in [&configured, &nothing] {
        for place in ["labels", "annotations"] {
            let (_, patch) = decide(rules, &saying(place, "arm64"), &[runs(&BOTH)]);
            assert_eq!(
                of_preferences(&patch),
                [arm64.clone(), preferred("arm64=100")]
            );
            for none in [
                decide(rules, &saying(place, "none"), &[runs(&BOTH)]),
                decide(rules, &saying(place, "arm64"), &[runs(&AMD64)]),
            ] {
                assert_eq!(of_preferences(&none.1), [json!(null); 0], "{none:?}");
            }
        }
    }
    let (_, patch) = decide(&configured, &saying("labels", "arm46"), &[runs(&BOTH)]);
    assert_eq!(of_preferences(&patch)[1], preferred("amd64=7"));
}

#[test]
fn nodes_of_an_open_pool_are_preferred() {
    let pools = json!([{"name": "karpenter", "prefer": {"weight": 50, "labels": {"karpenter.sh/nodepool": "multi", "b": "c"}}}]);
    let rules = testing::policy(&json!({"pools": pools}));
    let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let term = weighted(50, &[is("b", "c"), is("karpenter.sh/nodepool", "multi")]);
    let (seen, patch) = decide(&rules, &pod(json!({})), &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    assert_eq!(
        of_preferences(&patch),
        [
            add(PREFERRED, json!([term])),
            preferred("pool/karpenter=50")
        ]
    );
    for closed in [
        (pod(json!({})), runs(&AMD64)),
        (
            pod(json!({"tolerations": [{"operator": "Exists"}]})),
            runs(&BOTH),
        ),
        (
            pod(json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}})),
            runs(&BOTH),
        ),
        (
            pod(affinity(json!([weighted(1, &[is("b", "x")])]))),
            runs(&BOTH),
        ),
    ] {
        assert_eq!(
            of_preferences(&decide(&rules, &closed.0, &[closed.1]).1),
            [json!(null); 0],
            "{}",
            closed.0
        );
    }
    // The preference is removed with the pool, and no other is.
    let other = weighted(50, &[is("b", "c")]);
    let mut placed = pod(affinity(json!([term, other, term])));
    placed["metadata"]["annotations"]["tolerarch.io/preferred"] = "pool/karpenter=50".into();
    let (seen, patch) = decide(&rules, &placed, &[runs(&AMD64)]);
    assert_eq!(seen, "retracted retracted first");
    let remove = |path: &str| json!({"op": "remove", "path": path});
    let annotation = remove("/metadata/annotations/tolerarch.io~1preferred");
    assert_eq!(
        of_preferences(&patch),
        [add(PREFERRED, json!([term, other])), annotation]
    );
    placed["spec"]["affinity"] = affinity(json!([term]))["affinity"].take();
    assert_eq!(
        decide(&rules, &placed, &[runs(&AMD64)]).1[0],
        remove("/spec/affinity")
    );
}

#[test]
fn labels_of_the_pod_are_required_of_its_nodes() {
    let rules = policy(json!({"require": "affinity", "podLabels": ["team", "size", "absent"]}));
    let labelled = |spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["labels"] = json!({"team": "blue", "size": "", "app": "x"});
        pod
    };
    let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let required = |value: &str| add("/metadata/annotations/tolerarch.io~1required", json!(value));
    let whole = |expressions: &[Value]| {
        add(
            REQUIRED,
            json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]}),
        )
    };
    let (seen, patch) = decide(&rules, &labelled(json!({})), &[runs(&AMD64)]);
    assert_eq!(seen, "placed placed first");
    assert_eq!(
        patch[1],
        whole(&[arch(&["amd64"]), is("size", ""), is("team", "blue")])
    );
    assert_eq!(patch[2], required("amd64,size=,team=blue"));

    let off = policy(json!({"podLabels": ["team"]}));
    let (seen, patch) = decide(&off, &labelled(json!({})), &[runs(&AMD64)]);
    assert_eq!(
        (&*seen, &patch[1]),
        ("placed placed first", &whole(&[is("team", "blue")]))
    );
    for untouched in [
        json!({"nodeSelector": {"team": "red"}}),
        json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
    ] {
        assert_eq!(
            decide(&off, &labelled(untouched), &[runs(&AMD64)]).1,
            json!([])
        );
    }
    assert_eq!(decide(&off, &labelled(json!({})), &[UNKNOWN]).1, json!([]));
}
