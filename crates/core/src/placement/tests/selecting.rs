//! Examples of pools whose nodes are selected by labels.

use serde_json::{Value, json};

use super::steering::{AMD64, BOTH, UNKNOWN, add, decide, pod, runs};
use crate::decision::testing::pass;
use crate::pod::Pod;
use crate::policy::Policy;
use crate::testing;

const CLASS: &str = "cloud.google.com/compute-class";

fn toleration(class: &str) -> Value {
    json!({"key": CLASS, "operator": "Equal", "value": class, "effect": "NoSchedule"})
}

fn pool(class: &str) -> Value {
    json!({"name": class, "tolerations": [toleration(class)], "select": {CLASS: class}})
}

fn policy() -> Policy {
    testing::policy(&json!({"pools": [pool("multi-arch")]}))
}

fn opened(pools: &str) -> Value {
    add("/metadata/annotations/tolerarch.io~1pools", json!(pools))
}

fn remove(path: &str) -> Value {
    json!({"op": "remove", "path": path})
}

#[test]
fn selector_and_tolerations_are_added_and_removed_together() {
    let tolerations = add("/spec/tolerations", json!([toleration("multi-arch")]));
    let alone = add("/spec/nodeSelector", json!({CLASS: "multi-arch"}));
    let (seen, patch) = decide(&policy(), &pod(json!({})), &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    assert_eq!(patch, json!([tolerations, alone, opened("multi-arch")]));

    // The user's labels stay.
    let users = json!({"nodeSelector": {"disk": "ssd"}});
    let both = json!({"disk": "ssd", CLASS: "multi-arch"});
    let (_, patch) = decide(&policy(), &pod(users), &[runs(&BOTH)]);
    assert_eq!(patch[1], add("/spec/nodeSelector", both.clone()));

    for (image, expected) in [
        (runs(&AMD64), "unchanged platform-missing first"),
        (UNKNOWN, "unchanged denied first"),
    ] {
        let (seen, patch) = decide(&policy(), &pod(json!({})), &[runs(&BOTH), image]);
        assert_eq!(seen, expected.replace("first", "second"));
        assert_eq!(patch, json!([]));
    }

    // A sidecar has been injected since.
    let mut opened = pod(json!({"nodeSelector": both, "tolerations": [toleration("multi-arch")]}));
    opened["metadata"]["annotations"]["tolerarch.io/pools"] = json!("multi-arch");
    let (seen, patch) = decide(&policy(), &opened, &[runs(&BOTH)]);
    assert_eq!(seen, "unchanged already-tolerated");
    assert_eq!(patch, json!([]));
    for image in [runs(&AMD64), UNKNOWN] {
        let (seen, patch) = decide(&policy(), &opened, &[runs(&BOTH), image]);
        assert_eq!(seen, "retracted retracted second");
        let expected = json!([
            remove("/spec/tolerations/0"),
            add("/spec/nodeSelector", json!({"disk": "ssd"})),
            remove("/metadata/annotations/tolerarch.io~1pools"),
        ]);
        assert_eq!(patch, expected);
    }
    opened["spec"]["nodeSelector"] = json!({CLASS: "multi-arch"});
    let (_, patch) = decide(&policy(), &opened, &[runs(&AMD64)]);
    assert_eq!(patch[1], remove("/spec/nodeSelector"));
}

#[test]
fn pod_that_names_the_pools_labels_stays_unchanged() {
    let expression = |key: &str| json!({"key": key, "operator": "Exists"});
    let term = |key: &str| json!({"matchExpressions": [expression(key)]});
    let of_nodes =
        |member: &str, value: Value| json!({"affinity": {"nodeAffinity": {member: value}}});
    let required = |key: &str| {
        let terms = json!({"nodeSelectorTerms": [term("zone"), term(key)]});
        of_nodes("requiredDuringSchedulingIgnoredDuringExecution", terms)
    };
    let preferred = |key: &str| {
        let weighted = json!([{"weight": 1, "preference": term(key)}]);
        of_nodes("preferredDuringSchedulingIgnoredDuringExecution", weighted)
    };
    for spec in [
        json!({"nodeSelector": {CLASS: "gpu"}}),
        json!({"nodeSelector": {CLASS: "multi-arch"}}),
        // GKE rejects Pods that select a ComputeClass and these.
        json!({"nodeSelector": {"cloud.google.com/gke-spot": "true"}}),
        required("cloud.google.com/machine-family"),
        required(CLASS),
        preferred(CLASS),
        // Larger than the selectors that are read.
        json!({"nodeSelector": {"disk": "x".repeat(64 << 10)}}),
        // A field of a later version of Kubernetes.
        of_nodes("future", json!([])),
    ] {
        let (seen, patch) = decide(&policy(), &pod(spec.clone()), &[runs(&BOTH)]);
        assert_eq!(seen, "unchanged own-selector", "{spec}");
        assert_eq!(patch, json!([]), "{spec}");
    }
    for spec in [
        json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
        required("topology.kubernetes.io/zone"),
    ] {
        let (seen, _) = decide(&policy(), &pod(spec.clone()), &[runs(&BOTH)]);
        assert_eq!(seen, "tolerated tolerated", "{spec}");
    }

    // A Pod that also tolerates the pool needs no additions.
    let users = pod(
        json!({"nodeSelector": {CLASS: "multi-arch"}, "tolerations": [{"operator": "Exists"}]}),
    );
    let (seen, _) = decide(&policy(), &users, &[runs(&BOTH)]);
    assert_eq!(seen, "unchanged own-selector");
    let users = Pod::of_value(&users).unwrap();
    assert!(super::is_needless(&users, &policy()));
}

#[test]
fn only_one_pool_with_a_selector_is_opened() {
    let plain = json!({"name": "plain", "tolerations": [toleration("plain")]});
    let pools = json!([pool("first"), plain, pool("second")]);
    let policy = testing::policy(&json!({ "pools": pools }));
    let (_, patch) = decide(&policy, &pod(json!({})), &[runs(&BOTH)]);
    let expected = json!([
        add(
            "/spec/tolerations",
            json!([toleration("first"), toleration("plain")])
        ),
        add("/spec/nodeSelector", json!({CLASS: "first"})),
        opened("first,plain"),
    ]);
    assert_eq!(patch, expected);
    // The pool that needs no selector is open all the same.
    let users = pod(json!({"nodeSelector": {CLASS: "own"}}));
    let (seen, patch) = decide(&policy, &users, &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    assert_eq!(patch[1], opened("plain"));
}

#[test]
fn managed_preference_of_another_pool_is_not_the_users() {
    let mut plain = json!({"name": "plain", "tolerations": [toleration("plain")]});
    plain["prefer"] = json!({"weight": 5, "labels": {CLASS: "plain"}});
    let policy = testing::policy(&json!({"pools": [pool("first"), plain]}));
    let (once, operations) = pass(&policy, &pod(json!({})), &[runs(&BOTH)]).unwrap();
    assert!(operations > 0);
    let preferred = &once["metadata"]["annotations"]["tolerarch.io/preferred"];
    assert_eq!(preferred, "pool/plain=5");
    let (again, operations) = pass(&policy, &once, &[runs(&BOTH)]).unwrap();
    assert_eq!(operations, 0, "{once} became {again}");
}

#[test]
fn pool_without_taints_is_opened_by_its_selector() {
    let pool = json!({"name": "multi", "tolerations": [], "select": {"group": "multi"}});
    let policy = testing::policy(&json!({ "pools": [pool] }));
    let (seen, patch) = decide(&policy, &pod(json!({})), &[runs(&BOTH)]);
    assert_eq!(seen, "tolerated tolerated");
    let selector = add("/spec/nodeSelector", json!({"group": "multi"}));
    assert_eq!(patch, json!([selector, opened("multi")]));

    let mut opened = pod(json!({"nodeSelector": {"group": "multi"}}));
    opened["metadata"]["annotations"]["tolerarch.io/pools"] = json!("multi");
    let (seen, _) = decide(&policy, &opened, &[runs(&BOTH)]);
    assert_eq!(seen, "unchanged already-tolerated");
    let (seen, patch) = decide(&policy, &opened, &[runs(&AMD64)]);
    assert_eq!(seen, "retracted retracted first");
    let annotation = "/metadata/annotations/tolerarch.io~1pools";
    assert_eq!(
        patch,
        json!([remove("/spec/nodeSelector"), remove(annotation)])
    );
}

#[test]
fn additions_are_removed_beside_an_unreadable_affinity() {
    let affinity = json!({"nodeAffinity": {"future": [1]}});
    let mut pod = pod(json!({
        "nodeSelector": {CLASS: "multi-arch"},
        "tolerations": [toleration("multi-arch")],
        "affinity": affinity,
    }));
    pod["metadata"]["annotations"]["tolerarch.io/pools"] = json!("multi-arch");
    let (seen, patch) = decide(&policy(), &pod, &[runs(&BOTH)]);
    assert_eq!(seen, "retracted retracted");
    assert_eq!(patch[0], remove("/spec/tolerations/0"));
    assert_eq!(patch[1], remove("/spec/nodeSelector"));
}

#[test]
fn selector_has_the_pools_label_and_the_architecture() {
    let placement = json!({"require": "nodeSelector", "platforms": ["linux/amd64", "linux/arm64", "linux/s390x"]});
    let mut pool = pool("multi-arch");
    pool["platforms"] = json!(["linux/arm64"]);
    let policy = testing::policy(&json!({"pools": [pool], "placement": placement}));
    let (_, patch) = decide(&policy, &pod(json!({})), &[runs(&["linux/arm64"])]);
    let both = json!({"kubernetes.io/arch": "arm64", CLASS: "multi-arch"});
    assert_eq!(patch[1], add("/spec/nodeSelector", both));
}

#[test]
fn annotation_names_the_selected_labels() {
    let policy = testing::policy(&json!({"pools": [pool("multi-arch")], "explain": true}));
    let users = pod(json!({"nodeSelector": {CLASS: "own"}}));
    let (_, patch) = decide(&policy, &users, &[runs(&BOTH)]);
    let text = "own-selector: the Pod itself says which nodes it wants, and the pool multi-arch is selected by cloud.google.com/compute-class";
    assert_eq!(patch[0]["value"], text);
}
