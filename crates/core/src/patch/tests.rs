//! The law of patches ([`crate::decision::testing`]) for Pods that are likely to break it, and the texts of patches.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::decision::Decision;
use crate::decision::testing::{pass, policy, without_managed};
use crate::image::{LookupError, PlatformSet, Support};
use crate::placement::Edits;
use crate::pod::POOLS_KEY;
use crate::pod::{Pod, Purpose};
use crate::policy::{ImageSupport, Rank};
use crate::testing::{platforms, toleration};

/// The tolerations of the pools.
fn of_pools() -> [Value; 3] {
    [
        json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}),
        json!({"key": "arm", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-zA-Z/~.]{1,6}", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

fn any_toleration() -> impl Strategy<Value = Value> {
    let part = |values: &'static [&'static str]| prop::option::of(prop::sample::select(values));
    let built = (
        part(&[
            "",
            "a",
            "arm",
            "kubernetes.io/arch",
            "tolerarch.io/multi-arch",
        ]),
        part(&["", "Exists", "Equal", "Lt"]),
        part(&["", "arm64", "x"]),
        part(&["", "NoSchedule", "NoExecute", "Future"]),
        prop::option::of(0i64..100),
    );
    let built = built.prop_map(|(key, operator, value, effect, seconds)| {
        let members = [
            ("key", key),
            ("operator", operator),
            ("value", value),
            ("effect", effect),
        ];
        let mut toleration: Value = members
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?))))
            .collect();
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = seconds.into();
        }
        toleration
    });
    prop_oneof![3 => built, 2 => prop::sample::select(of_pools().to_vec()), 1 => Just(json!({"key": "x", "future": {"a": [1]}}))]
}

fn sometimes(
    value: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 6 => value.prop_map(Some)]
}

fn object(members: Vec<(&str, Option<Value>)>) -> Value {
    members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn any_pod() -> impl Strategy<Value = Value> {
    let annotations = (
        prop::option::of(prop::sample::select(
            &["", "multi-arch", "arm", "multi-arch,arm", "old, arm", "old"][..],
        )),
        prop::collection::hash_map("[a-z/~\"\\\\é]{0,6}", "\\PC{0,6}", 0..3),
    );
    let annotations = annotations.prop_map(|(pools, others)| {
        let mut map = Value::from_iter(
            others
                .into_iter()
                .map(|(key, value)| (key, Value::from(value))),
        );
        if let Some(pools) = pools {
            map["tolerarch.io/pools"] = pools.into();
        }
        map
    });
    let metadata =
        (sometimes(annotations), sometimes(any_json())).prop_map(|(annotations, other)| {
            object(vec![
                ("annotations", annotations),
                ("managedFields", other),
                ("name", Some("web".into())),
            ])
        });
    let tolerations = prop::collection::vec(any_toleration(), 0..5).prop_map(Value::from);
    let spec = (sometimes(tolerations), sometimes(any_json())).prop_map(|(tolerations, other)| {
        object(vec![
            ("containers", Some(json!([{"image": "x"}]))),
            ("tolerations", tolerations),
            ("future", other),
        ])
    });
    (sometimes(metadata), spec, sometimes(any_json())).prop_map(|(metadata, spec, status)| {
        object(vec![
            ("metadata", metadata),
            ("spec", Some(spec)),
            ("status", status),
        ])
    })
}

fn any_support() -> impl Strategy<Value = Result<Support, LookupError>> {
    let both = Support::Index(platforms(&["linux/amd64", "linux/arm64"]));
    prop_oneof![
        4 => Just(Ok(both)),
        1 => Just(Ok(Support::Single(platforms(&["linux/amd64"])))),
        1 => Just(Ok(Support::Index(platforms(&["linux/arm64"])))),
        1 => Just(Ok(Support::Artifact)),
        1 => Just(Err(LookupError::Timeout)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn patch_applies_and_changes_only_managed_parts(
        pod in any_pod(),
        first in prop::collection::vec(any_support(), 0..3),
        then in prop::collection::vec(any_support(), 0..3),
    ) {
        let policy = policy();
        let (once, _) = pass(&policy, &pod, &first).expect("a Pod");
        prop_assert_eq!(without_managed(&policy, &once), without_managed(&policy, &pod));
        let (again, operations) = pass(&policy, &once, &first).expect("a Pod still");
        prop_assert_eq!(operations, 0, "a second pass changed {} into {}", once, again);

        // A later pass with other images has the same result as a first pass with them.
        let (later, _) = pass(&policy, &once, &then).expect("a Pod still");
        prop_assert_eq!(without_managed(&policy, &later), without_managed(&policy, &pod));
        let (direct, _) = pass(&policy, &pod, &then).expect("a Pod");
        prop_assert_eq!(tolerations(&later), tolerations(&direct));
    }

    #[test]
    fn never_panics_on_any_json(pod in any_json(), support in any_support()) {
        pass(&policy(), &pod, &[support]);
    }
}

/// A toleration with its default operator, and without members that are empty or do not matter.
fn normal(toleration: &Value) -> Value {
    let mut toleration = toleration.clone();
    let members = toleration.as_object_mut().expect("a toleration");
    members.retain(|_, value| *value != json!("") && !value.is_null());
    members.entry("operator").or_insert("Equal".into());
    // `Toleration::same` ignores the value here, so the Pod keeps the first of the two.
    if members["operator"] == json!("Exists") {
        members.remove("value");
    }
    toleration
}

/// The tolerations of a Pod, sorted.
fn tolerations(pod: &Value) -> Vec<String> {
    let list = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    let mut list: Vec<String> = list
        .into_iter()
        .flatten()
        .map(|t| normal(t).to_string())
        .collect();
    list.sort();
    list
}

fn patch_of(pod: Value, support: Support) -> Value {
    let text = pod.to_string();
    let decoded: Pod<'_> = serde_json::from_str(&text).unwrap();
    let mut policy = policy();
    policy.pools.truncate(1);
    let images = [ImageSupport {
        given: "image",
        purpose: Purpose::Run,
        support: Ok(support),
        failure: None,
    }];
    let decision = Decision::of(&policy, &decoded, Rank::FIRST, &images);
    serde_json::from_str(&super::build("", &decoded, &decision.edits)).unwrap()
}

#[test]
fn missing_parents_are_created_and_existing_lists_appended_to() {
    let [managed, ..] = of_pools();
    let both = Support::Index(PlatformSet::ALL);
    let containers = json!([{"image": "x"}]);
    let whole = json!({"op": "add", "path": "/spec/tolerations", "value": [managed]});
    for spec in [
        json!({"containers": containers}),
        json!({"containers": containers, "tolerations": null}),
        json!({"containers": containers, "tolerations": []}),
    ] {
        assert_eq!(
            patch_of(json!({"metadata": {}, "spec": spec}), both)[0],
            whole
        );
    }
    let spec =
        json!({"containers": containers, "tolerations": [{"key": "a", "operator": "Exists"}]});
    let append = json!({"op": "add", "path": "/spec/tolerations/-", "value": managed});
    assert_eq!(
        patch_of(json!({"metadata": {}, "spec": spec}), both)[0],
        append
    );

    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let pools = json!({"tolerarch.io/pools": "multi-arch"});
    for (pod, operation) in [
        (json!({}), add("/metadata", json!({"annotations": pools}))),
        (
            json!({"metadata": null}),
            add("/metadata", json!({"annotations": pools})),
        ),
        (
            json!({"metadata": {}}),
            add("/metadata/annotations", pools.clone()),
        ),
        (
            json!({"metadata": {"annotations": null}}),
            add("/metadata/annotations", pools.clone()),
        ),
        (
            json!({"metadata": {"annotations": {}}}),
            add("/metadata/annotations", pools.clone()),
        ),
        (
            json!({"metadata": {"annotations": {"a": "b"}}}),
            add(
                "/metadata/annotations/tolerarch.io~1pools",
                json!("multi-arch"),
            ),
        ),
    ] {
        let mut pod = pod;
        pod["spec"] = json!({"containers": containers});
        assert_eq!(patch_of(pod, both)[1], operation);
    }
}

#[test]
fn tolerations_are_removed_by_index() {
    let [managed, ..] = of_pools();
    let pod = json!({
        "metadata": {"annotations": {"tolerarch.io/pools": "multi-arch"}},
        "spec": {"containers": [{"image": "x"}], "tolerations": [{"key": "a"}, managed, {"key": "b"}]},
    });
    assert_eq!(
        patch_of(pod, Support::Index(PlatformSet::EMPTY)),
        json!([
            {"op": "remove", "path": "/spec/tolerations/1"},
            {"op": "remove", "path": "/metadata/annotations/tolerarch.io~1pools"},
        ])
    );
}

#[test]
fn toleration_is_written_without_empty_members() {
    let pod = Pod::default();
    for written in [
        json!({}),
        json!({"tolerationSeconds": 5}),
        json!({"key": "a", "operator": "Exists"}),
        json!({"operator": "Exists", "effect": "\"\\\u{1}é"}),
        json!({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": -60}),
    ] {
        let added = toleration(&written);
        let annotations = BTreeMap::from([(POOLS_KEY, "\"\n".to_owned())]);
        let edits = Edits {
            add: vec![&added, &added],
            annotations,
            ..Edits::default()
        };
        let patch: Value = serde_json::from_str(&super::build("", &pod, &edits)).unwrap();
        let annotations = json!({"annotations": {"tolerarch.io/pools": "\"\n"}});
        assert_eq!(
            patch,
            json!([
                {"op": "add", "path": "/spec/tolerations", "value": [written, written]},
                {"op": "add", "path": "/metadata", "value": annotations},
            ])
        );
    }
}
