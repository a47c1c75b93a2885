use proptest::prelude::*;
use serde::Deserialize;

use super::*;

fn node(labels: &Value, taints: &Value, own: &str) -> Node {
    let annotations = json!({TAINTS_KEY: own, "example.com/own": "x"});
    let metadata =
        json!({"name": "n", "resourceVersion": "7", "labels": labels, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap()
}

fn entry(label: (&str, &str), key: &str, value: &str) -> NodeTaint {
    let taint = Taint {
        key: key.into(),
        value: value.into(),
        effect: "NoSchedule".into(),
    };
    NodeTaint {
        selector: [(label.0.to_owned(), label.1.to_owned())].into(),
        taint,
    }
}

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

/// Returns the node after this change.
fn changed(mut node: Node, patch: &Value) -> Node {
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    node.own_taints = patch["metadata"]["annotations"][TAINTS_KEY]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if let Some(taints) = patch.pointer("/spec/taints") {
        node.raw_taints = taints.as_array().unwrap().clone();
        node.taints = serde_json::from_value(taints.clone()).unwrap();
    }
    node
}

fn settled(node: Node, entries: &[NodeTaint]) -> Node {
    match plan(&node, entries).patch {
        Some(patch) => changed(node, &patch),
        None => node,
    }
}

#[test]
fn node_gets_its_taints_beside_foreign_ones() {
    let arm = json!({"arch": "arm64"});
    let entries = [
        entry(("arch", "arm64"), "arch", "arm64"),
        entry(("arch", "amd64"), "arch", "amd64"),
    ];
    let startup = json!({"key": "s", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z", "future": 1});
    let before = node(&arm, &json!([startup]), "");
    let after = settled(before, &entries);
    assert_eq!(after.raw_taints, [startup.clone(), taint("arch", "arm64")]);
    assert_eq!(after.own_taints, "arch=arm64:NoSchedule");
    assert_eq!(
        plan(&after, &entries),
        Plan::default(),
        "the second time nothing changes"
    );

    let gone = settled(after.clone(), &[]);
    assert_eq!(
        (gone.raw_taints.as_slice(), gone.own_taints.as_str()),
        ([startup.clone()].as_slice(), "")
    );
    let mut other = after;
    other.metadata.labels = [("arch".to_owned(), "riscv64".to_owned())].into();
    assert_eq!(
        settled(other, &entries).raw_taints,
        [startup],
        "no entry selects it any more"
    );
}

#[test]
fn foreign_taint_stays() {
    let arm = json!({"arch": "arm64"});
    let entries = [entry(("arch", "arm64"), "arch", "arm64")];
    // An equal taint that another owner has set is not managed, now or later.
    let same = node(&arm, &json!([taint("arch", "arm64")]), "");
    assert_eq!(plan(&same, &entries), Plan::default());
    assert_eq!(plan(&same, &[]), Plan::default());
    // A taint with another value is in the way, even if it has replaced a managed one.
    for annotation in ["", "arch=arm64:NoSchedule"] {
        let other = node(&arm, &json!([taint("arch", "team-a")]), annotation);
        assert!(plan(&other, &entries).is_in_the_way);
        let after = settled(other, &entries);
        assert_eq!(
            (after.raw_taints, after.own_taints.as_str()),
            (vec![taint("arch", "team-a")], "")
        );
    }
    // An annotation that names absent or replaced taints removes nothing.
    let forged = node(
        &arm,
        &json!([taint("team", "a")]),
        "team=b:NoSchedule,,:,team:NoSchedule,x=y:NoExecute",
    );
    assert_eq!(settled(forged, &[]).raw_taints, [taint("team", "a")]);
}

/// Holds without entries, and with an entry for the same key and effect.
#[test]
fn reserved_taint_is_never_managed() {
    let reserved = json!([
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
        taint("node.cloudprovider.kubernetes.io/x", "y"),
        taint("ToBeDeletedByClusterAutoscaler", "1764357843"),
        taint("startup-taint.cluster-autoscaler.kubernetes.io/x", "y"),
    ]);
    let annotation = "node.kubernetes.io/unschedulable:NoSchedule,karpenter.sh/disrupted:NoSchedule,\
        node.cloudprovider.kubernetes.io/x=y:NoSchedule,ToBeDeletedByClusterAutoscaler=1764357843:NoSchedule,\
        startup-taint.cluster-autoscaler.kubernetes.io/x=y:NoSchedule";
    let entries = [entry(
        ("arch", "arm64"),
        "node.kubernetes.io/unschedulable",
        "x",
    )];
    for entries in [&[][..], &entries] {
        let before = node(&json!({"arch": "arm64"}), &reserved, annotation);
        let after = settled(before, entries);
        assert_eq!(Value::from(after.raw_taints), reserved);
        assert_eq!(after.own_taints, "");
    }
}

#[test]
fn new_value_replaces_the_managed_taint() {
    let arm = json!({"arch": "arm64"});
    let others = json!([taint("arch", "old"), taint("team", "a")]);
    let after = settled(
        node(&arm, &others, "arch=old:NoSchedule"),
        &[entry(("arch", "arm64"), "arch", "")],
    );
    assert_eq!(
        after.raw_taints,
        [
            json!({"key": "arch", "effect": "NoSchedule"}),
            taint("team", "a")
        ]
    );
    assert_eq!(after.own_taints, "arch:NoSchedule");
}

#[test]
fn deleted_or_unlabelled_nodes_are_unchanged() {
    let entries = [entry(("arch", "arm64"), "arch", "arm64")];
    let mut going = node(&json!({"arch": "arm64"}), &json!([]), "");
    going.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let mut unversioned = node(&json!({"arch": "arm64"}), &json!([]), "");
    unversioned.metadata.resource_version.clear();
    assert_eq!(plan(&unversioned, &entries), Plan::default());
    let bare: Node = serde_json::from_value(json!({"metadata": {"labels": null}})).unwrap();
    let all = NodeTaint::default();
    for (node, entries) in [
        (&going, &entries[..]),
        (&bare, &entries),
        (&bare, std::slice::from_ref(&all)),
    ] {
        assert_eq!(plan(node, entries), Plan::default());
    }
}

/// Returns taints with few names, so that many are equal.
fn some_taints() -> impl Strategy<Value = Vec<Taint>> {
    let taint = (
        "[ab]",
        "[xy]?",
        prop_oneof![Just("NoSchedule"), Just("NoExecute")],
    );
    let taint = taint.prop_map(|(key, value, effect)| Taint {
        key,
        value,
        effect: effect.to_owned(),
    });
    proptest::collection::vec(taint, 0..5)
}

/// Returns the taints with each key and effect once, as in the API server.
fn distinct(taints: Vec<Taint>) -> Vec<Taint> {
    let mut distinct: Vec<Taint> = Vec::new();
    for taint in taints {
        if !distinct
            .iter()
            .any(|other| other.has_same_key_and_effect(&taint))
        {
            distinct.push(taint);
        }
    }
    distinct
}

proptest! {
    #[test]
    fn foreign_taints_are_never_changed(existing in some_taints(), annotated in some_taints(), wanted in some_taints()) {
        let existing = distinct(existing);
        let annotation: Vec<String> = annotated.iter().map(Taint::to_string).collect();
        let raw: Vec<Value> = existing.iter().map(|taint| json!(taint)).collect();
        let before = node(&json!({"l": "v"}), &raw.into(), &annotation.join(","));
        let entries: Vec<NodeTaint> = wanted.iter().map(|taint| NodeTaint {
            selector: [("l".to_owned(), "v".to_owned())].into(), taint: taint.clone(),
        }).collect();
        let foreign: Vec<&Taint> = existing.iter().filter(|taint| !annotated.contains(taint)).collect();
        let read = |node: &Node| -> Vec<Taint> {
            node.raw_taints.iter().map(|raw| Taint::deserialize(raw).unwrap()).collect()
        };

        let after = settled(before, &entries);
        prop_assert_eq!(plan(&after, &entries).patch, None, "settled at once");
        let now = read(&after);
        let kept: Vec<&Taint> = now.iter().filter(|taint| foreign.contains(taint)).collect();
        prop_assert_eq!(&kept, &foreign, "in their order");
        for wanted in distinct(wanted) {
            prop_assert!(now.iter().any(|taint| taint.has_same_key_and_effect(&wanted)));
        }
        prop_assert_eq!(distinct(now.clone()), now, "each key and effect once");

        // Without entries only foreign taints are left.
        let bare = settled(after, &[]);
        let left = read(&bare);
        prop_assert_eq!(left.iter().collect::<Vec<_>>(), foreign);
        prop_assert_eq!(bare.own_taints, "");
    }
}
