use serde_json::{Value, json};

use super::*;
use crate::autoscaler::{Flags, IgnoredTaints, Status};
use crate::cluster::Node;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::Pool;

const POOL: &str = "tolerarch.io/multi-arch";

fn node(group: &str, keys: &[&str]) -> Node {
    let taints: Vec<Value> = keys
        .iter()
        .map(|key| json!({"key": key, "value": "true", "effect": "NoSchedule"}))
        .collect();
    let node = json!({"metadata": {"name": format!("{group}-x7k2p")}, "spec": {"taints": taints}});
    serde_json::from_value(node).unwrap()
}

fn tolerations() -> Vec<Toleration<'static>> {
    vec![Toleration {
        key: POOL.into(),
        operator: "Exists".into(),
        value: "".into(),
        effect: "NoSchedule".into(),
        toleration_seconds: None,
    }]
}

/// Returns a cluster-autoscaler with these groups, each of at most nine nodes.
fn autoscaler(expanders: Expanders, priorities: KnownPriorities, groups: &[&str]) -> Autoscaler {
    let group = |name: &&str| json!({"name": name, "health": {"maxSize": 9}});
    let status = json!({"nodeGroups": groups.iter().map(group).collect::<Vec<Value>>()});
    let groups = Some(Status::parse(&status.to_string()).unwrap().groups);
    Autoscaler {
        namespace: "kube-system".to_owned(),
        expanders,
        priorities,
        groups,
        ignored_taints: IgnoredTaints::default(),
        balances: false,
    }
}

fn named(expanders: &[&str]) -> Expanders {
    Expanders::Named(expanders.iter().map(|name| (*name).to_owned()).collect())
}

fn priorities(text: &str) -> KnownPriorities {
    KnownPriorities::Read(Priorities::parse(text).unwrap())
}

fn pool_with(tolerations: &[Toleration<'_>]) -> Pool {
    let owned = |toleration: &Toleration<'_>| {
        let json = serde_json::to_value(toleration).unwrap();
        tolerarch_core::testing::toleration(&json)
    };
    Pool {
        tolerations: tolerations.iter().map(owned).collect(),
        ..Pool::default()
    }
}

fn judged(autoscaler: &Autoscaler, nodes: &[Node], tolerations: &[Toleration<'_>]) -> Choice {
    autoscaler
        .grouped(nodes)
        .outlook(&pool_with(tolerations))
        .choice
}

const ALL: [&str; 2] = ["multi", "plain"];

fn nodes_of_both() -> Vec<Node> {
    vec![node("multi", &[POOL]), node("plain", &[])]
}

fn text(expanders: Expanders, priorities: KnownPriorities, nodes: &[Node]) -> String {
    let autoscaler = autoscaler(expanders, priorities, &ALL);
    judged(&autoscaler, nodes, &tolerations()).to_string()
}

#[test]
fn expander_without_an_order_is_wrong() {
    for (expanders, by) in [
        (named(&[]), "its default expander"),
        (named(&["least-waste"]), "its expander `least-waste`"),
        (named(&["random"]), "its expander `random`"),
        (
            named(&["most-pods", "priority"]),
            "its expander `most-pods`",
        ),
    ] {
        // With nodes or scaled to zero; these expanders do not read the ConfigMap.
        for nodes in [Vec::new(), nodes_of_both(), vec![node("multi", &[POOL])]] {
            for priorities in [KnownPriorities::Missing, priorities("{10: [multi]}")] {
                let autoscaler = autoscaler(expanders.clone(), priorities, &ALL);
                let choice = judged(&autoscaler, &nodes, &tolerations());
                assert!(
                    choice.is_wrong() && choice.to_string().contains(by),
                    "{choice}"
                );
            }
        }
    }
}

#[test]
fn unpredictable_expander_is_neither_right_nor_wrong() {
    for expanders in [
        named(&["price"]),
        named(&["grpc", "priority"]),
        Expanders::Gke,
    ] {
        let choice = judged(
            &autoscaler(expanders, KnownPriorities::Missing, &ALL),
            &nodes_of_both(),
            &tolerations(),
        );
        assert!(!choice.is_wrong() && !choice.is_right(), "{choice}");
    }
}

#[test]
fn highest_priority_decides() {
    let of = |written: &str| {
        let choice = judged(
            &autoscaler(
                named(&["priority", "least-waste"]),
                priorities(written),
                &ALL,
            ),
            &nodes_of_both(),
            &tolerations(),
        );
        (choice.is_right(), choice.is_wrong(), choice.to_string())
    };
    let first = "the cluster-autoscaler takes `multi` first (priority 100)".to_owned();
    assert_eq!(
        of("{100: ['.*multi.*'], 10: ['.*']}"),
        (true, false, first.clone())
    );
    assert_eq!(of("{100: [multi]}"), (true, false, first));
    for (written, expected) in [
        (
            "{100: [plain], 10: ['.*']}",
            "takes `plain` (priority 100) before `multi`",
        ),
        ("{10: ['.*']}", "have the same priority (10)"),
        (
            "{100: [plain]}",
            "name no node group of it (`multi`): new nodes come from other groups first",
        ),
        (
            "{100: [other]}",
            "name no node group of it (`multi`), and no other one: new nodes come from the pool by chance",
        ),
    ] {
        let (is_right, is_wrong, text) = of(written);
        assert!(
            !is_right && is_wrong && text.contains(expected),
            "{written}: {text}"
        );
    }
}

#[test]
fn missing_or_refused_priorities_are_wrong() {
    for (priorities, expected) in [
        (
            KnownPriorities::Missing,
            "the ConfigMap kube-system/cluster-autoscaler-priority-expander is missing",
        ),
        (
            KnownPriorities::Ignored("no numbers".to_owned()),
            "does not count: no numbers",
        ),
    ] {
        let choice = judged(
            &autoscaler(named(&["priority"]), priorities, &ALL),
            &nodes_of_both(),
            &tolerations(),
        );
        assert!(
            choice.is_wrong() && choice.to_string().contains(expected),
            "{choice}"
        );
    }
    let unknown = KnownPriorities::Unknown("forbidden".to_owned());
    let choice = judged(
        &autoscaler(named(&["priority"]), unknown, &ALL),
        &nodes_of_both(),
        &tolerations(),
    );
    assert!(!choice.is_wrong() && !choice.is_right(), "{choice}");
}

#[test]
fn group_without_a_node_may_be_of_the_pool_or_open() {
    let of = |written: &str, nodes: &[Node]| {
        let autoscaler = autoscaler(named(&["priority"]), priorities(written), &ALL);
        let choice = judged(&autoscaler, nodes, &tolerations());
        (choice.is_right(), choice.is_wrong(), choice.to_string())
    };
    let multi = [node("multi", &[POOL])];
    let plain = [node("plain", &[])];
    // The group without a node has a lower priority, so its taints do not matter.
    assert!(of("{100: [multi], 10: ['.*']}", &multi).0);
    // Its priority is higher or equal, and it may belong to the pool as well.
    for (written, nodes) in [
        ("{100: [plain], 10: [multi]}", &multi),
        ("{10: ['.*']}", &multi),
    ] {
        let (is_right, is_wrong, text) = of(written, nodes);
        assert!(
            !is_right && !is_wrong && text.contains("the taints of `plain` are not known"),
            "{text}"
        );
    }
    // No group is known to belong to the pool; a group without a node has the highest priority.
    let (is_right, is_wrong, text) = of("{100: [multi], 10: ['.*']}", &plain);
    assert!(
        !is_right && !is_wrong && text.contains("the taints of `multi` are not known"),
        "{text}"
    );
    // An open group precedes or equals whichever group belongs to the pool.
    assert!(of("{100: [plain], 10: ['.*']}", &plain).1);
    assert!(of("{10: ['.*']}", &plain).1);
    assert!(of("{10: [plain]}", &plain).1);
    assert!(of("{10: [other]}", &plain).1);
    let (is_right, is_wrong, text) = of("{100: [multi], 10: ['.*']}", &[]);
    assert!(!is_right && !is_wrong, "{text}");
}

#[test]
fn only_fitting_group_is_right_with_any_expander() {
    let closed = [node("multi", &[POOL]), node("plain", &["nvidia.com/gpu"])];
    let expected = "`multi` is the only node group of the cluster-autoscaler that its Pods fit";
    assert_eq!(
        text(named(&[]), KnownPriorities::Missing, &closed),
        expected
    );
    let alone = autoscaler(named(&[]), KnownPriorities::Missing, &["multi"]);
    assert_eq!(
        judged(&alone, &[node("multi", &[POOL])], &tolerations()).to_string(),
        expected
    );
    let unseen = judged(&alone, &[], &tolerations());
    assert!(!unseen.is_right() && !unseen.is_wrong(), "{unseen}");
    // A group of a fixed size gets no new node.
    let mut fixed = autoscaler(named(&[]), KnownPriorities::Missing, &ALL);
    let sizes = json!({"nodeGroups": [{"name": "multi", "health": {"maxSize": 9}}, {"name": "plain", "health": {"minSize": 3, "maxSize": 3}}]});
    fixed.groups = Some(Status::parse(&sizes.to_string()).unwrap().groups);
    assert_eq!(
        judged(&fixed, &nodes_of_both(), &tolerations()).to_string(),
        expected
    );
    // Taints that come and go, or only express a preference, do not keep Pods away.
    let passing = [
        node("multi", &[POOL]),
        node("plain", &["node.kubernetes.io/not-ready"]),
    ];
    assert!(
        judged(
            &autoscaler(named(&[]), KnownPriorities::Missing, &ALL),
            &passing,
            &tolerations()
        )
        .is_wrong()
    );
}

#[test]
fn pool_without_a_scaled_group_has_no_group() {
    let plain = [
        node("multi", &[]),
        node("plain", &[]),
        node("fixed", &[POOL]),
    ];
    assert_eq!(
        judged(
            &autoscaler(named(&[]), KnownPriorities::Missing, &ALL),
            &plain,
            &tolerations()
        ),
        Choice::NoGroup
    );
}

#[test]
fn unknown_flags_leave_the_priorities_to_judge() {
    let of = |priorities| {
        judged(
            &autoscaler(Expanders::Unseen, priorities, &ALL),
            &nodes_of_both(),
            &tolerations(),
        )
    };
    assert!(of(KnownPriorities::Missing).is_wrong());
    assert!(of(priorities("{10: ['.*']}")).is_wrong());
    let first = of(priorities("{100: [multi], 10: ['.*']}"));
    assert!(!first.is_right() && !first.is_wrong(), "{first}");
    assert!(first.to_string().contains("--expander=priority"), "{first}");
}

#[test]
fn missing_status_is_neither_right_nor_wrong() {
    for (expanders, priorities) in [
        (named(&[]), KnownPriorities::Missing),
        (named(&["priority"]), priorities("{100: [multi]}")),
    ] {
        let autoscaler = Autoscaler {
            groups: None,
            ..autoscaler(expanders, priorities, &[])
        };
        let unseen = judged(&autoscaler, &nodes_of_both(), &tolerations());
        assert!(!unseen.is_right() && !unseen.is_wrong(), "{unseen}");
    }
}

/// A group without a node may belong to the pool, and precede the groups whose nodes are known.
#[test]
fn first_group_without_a_node_is_neither_right_nor_wrong() {
    let of = |written: &str, nodes: &[Node]| {
        let autoscaler = autoscaler(
            named(&["priority"]),
            priorities(written),
            &["multi", "plain", "arm"],
        );
        judged(&autoscaler, nodes, &tolerations())
    };
    for (written, nodes) in [
        ("{100: [arm], 50: [plain], 10: [multi]}", nodes_of_both()),
        ("{100: [arm], 50: [plain]}", nodes_of_both()),
        ("{100: [arm]}", nodes_of_both()),
        ("{100: [arm], 10: ['.*']}", vec![node("plain", &[])]),
    ] {
        let choice = of(written, &nodes);
        assert!(
            !choice.is_right() && !choice.is_wrong(),
            "{written}: {choice}"
        );
        assert!(
            choice
                .to_string()
                .contains("the taints of `arm` are not known"),
            "{choice}"
        );
    }
    assert!(of("{100: [plain], 50: [arm], 10: [multi]}", &nodes_of_both()).is_wrong());
    let behind = of("{100: [plain], 10: ['.*']}", &[node("plain", &[])]).to_string();
    assert!(
        behind.contains("takes `plain` (priority 100) before any node group that may be of it"),
        "{behind}"
    );
}

/// The cluster-autoscaler takes any one of a group's nodes as the template of the next.
#[test]
fn group_with_differing_nodes_is_unknown() {
    let mut nodes = nodes_of_both();
    nodes.push(node("multi", &[]));
    nodes[2].metadata.name = "multi-b8c9d".to_owned();
    let autoscaler = autoscaler(
        named(&["priority"]),
        priorities("{100: [multi], 10: ['.*']}"),
        &ALL,
    );
    let choice = judged(&autoscaler, &nodes, &tolerations());
    assert!(!choice.is_right() && !choice.is_wrong(), "{choice}");
}

#[test]
fn ignored_taint_is_wrong_despite_priorities() {
    let mut autoscaler = autoscaler(named(&["priority"]), priorities("{100: [multi]}"), &ALL);
    let words = [format!("--startup-taint={POOL}")];
    autoscaler.ignored_taints = Flags::of("cluster-autoscaler", &words)
        .unwrap()
        .ignored_taints;
    let choice = judged(&autoscaler, &nodes_of_both(), &tolerations());
    assert!(
        choice.is_wrong()
            && choice
                .to_string()
                .contains("ignores the taint tolerarch.io/multi-arch"),
        "{choice}"
    );
}

/// In the autoscaler's simulation an ignored taint does not keep Pods away, but the pool's other taint does.
#[test]
fn only_taints_that_are_not_ignored_count() {
    let mut autoscaler = autoscaler(
        named(&["priority"]),
        priorities("{100: [multi], 10: ['.*']}"),
        &ALL,
    );
    let words = [
        "--startup-taint=agent".to_owned(),
        "--status-taint=gpu".to_owned(),
    ];
    autoscaler.ignored_taints = Flags::of("cluster-autoscaler", &words)
        .unwrap()
        .ignored_taints;
    let mut two = tolerations();
    two.insert(
        0,
        Toleration {
            key: "agent".into(),
            ..tolerations().remove(0)
        },
    );
    let nodes = [node("multi", &[POOL, "agent"]), node("plain", &["gpu"])];
    assert_eq!(
        judged(&autoscaler, &nodes, &two).to_string(),
        "the cluster-autoscaler takes `multi` first (priority 100)"
    );
    autoscaler.expanders = named(&[]);
    assert!(
        judged(&autoscaler, &nodes, &two).is_wrong(),
        "plain is open"
    );
    let prefixed = [Toleration {
        key: "startup-taint.cluster-autoscaler.kubernetes.io/a".into(),
        ..tolerations().remove(0)
    }];
    assert!(matches!(
        judged(&autoscaler, &nodes, &prefixed),
        Choice::Ignored { .. }
    ));
}

/// Similar groups have one architecture; the cluster-autoscaler does not compare their taints.
#[test]
fn only_groups_of_one_architecture_are_balanced() {
    let labelled = |name: &str, keys: &[&str], architecture: &str| {
        let mut node = node(name, keys);
        node.architecture = architecture.to_owned();
        node
    };
    let mut autoscaler = autoscaler(named(&["priority"]), priorities("{100: [multi]}"), &ALL);
    let alike = [
        labelled("multi", &[POOL], "amd64"),
        labelled("plain", &[], "amd64"),
    ];
    let different = [
        labelled("multi", &[POOL], "arm64"),
        labelled("plain", &[], "amd64"),
    ];
    assert_eq!(
        autoscaler
            .grouped(&alike)
            .outlook(&pool_with(&tolerations()))
            .balanced,
        None
    );
    autoscaler.balances = true;
    assert_eq!(
        autoscaler
            .grouped(&different)
            .outlook(&pool_with(&tolerations()))
            .balanced,
        None
    );
    let (of_pool, other) = autoscaler
        .grouped(&alike)
        .outlook(&pool_with(&tolerations()))
        .balanced
        .unwrap();
    assert_eq!(
        (of_pool.name.as_str(), other.name.as_str()),
        ("multi", "plain")
    );
}

/// Pods of a selected pool fit no other group, so the expander does not matter.
#[test]
fn selected_pool_is_right_with_any_expander() {
    let autoscaler = autoscaler(
        named(&["least-waste"]),
        KnownPriorities::Missing,
        &["multi", "plain"],
    );
    let mut selected = node("multi", &[POOL]);
    let labels = &mut selected.metadata.labels;
    labels.insert("group".to_owned(), "multi".to_owned());
    let nodes = [selected, node("plain", &[])];
    let mut pool = pool_with(&tolerations());
    let choice = autoscaler.grouped(&nodes).outlook(&pool).choice;
    assert!(choice.is_wrong(), "{choice}");
    pool.select.insert("group".to_owned(), "multi".to_owned());
    let outlook = autoscaler.grouped(&nodes).outlook(&pool);
    assert!(outlook.choice.is_right(), "{}", outlook.choice);
    assert_eq!(outlook.groups[0].name, "multi");
}
