//! Laws that hold for every cluster.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::discovery::next_node::next_node_pool;
use crate::discovery::platforms::contradicts_itself;

const ARCHITECTURES: [&str; 5] = ["amd64", "arm64", "s390x", "sparc", ""];

fn requirement() -> impl Strategy<Value = NodeSelectorRequirement> {
    let keys = [
        "kubernetes.io/arch",
        "beta.kubernetes.io/arch",
        "kubernetes.io/os",
        "karpenter.k8s.aws/instance-family",
        "node.kubernetes.io/instance-type",
        "example.com/team",
    ];
    let operators = [
        "In",
        "NotIn",
        "Exists",
        "DoesNotExist",
        "Gt",
        "Lt",
        "Gte",
        "Near",
    ];
    let values = [
        "amd64",
        "arm64",
        "s390x",
        "sparc",
        "linux",
        "windows",
        "m7g",
        "m7g.large",
    ];
    (
        select(keys.to_vec()),
        select(operators.to_vec()),
        subsequence(values.to_vec(), 0..4),
    )
        .prop_map(|(key, operator, values)| NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.into_iter().map(str::to_owned).collect()),
        })
}

fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let one = (
        select(&["a", "b", "gpu", "node.kubernetes.io/not-ready"][..]),
        select(&["NoSchedule", "PreferNoSchedule", "NoExecute"][..]),
    )
        .prop_map(|(key, effect)| Taint {
            key: key.into(),
            value: String::new(),
            effect: effect.into(),
        });
    prop::collection::vec(one, 0..3)
}

fn any_node_pool() -> impl Strategy<Value = NodePool> {
    (
        prop::collection::vec(requirement(), 0..4),
        taints(),
        select(&["", "a", "found", "Bad"][..]),
        0..3u32,
        0..4u8,
    )
        .prop_map(|(requirements, taints, label, weight, name)| {
            let mut pool: NodePool = read(&labelled(
                node_pool(&format!("p{name}"), json!([]), json!([])),
                json!({POOL_LABEL: label}),
            ));
            pool.requirements = requirements;
            pool.taints = taints;
            pool.weight = weight;
            pool
        })
}

fn any_kind() -> impl Strategy<Value = NodeKind> {
    (select(&ARCHITECTURES[..]), taints(), 0..4u8).prop_map(|(architecture, taints, pool)| {
        let mut node: Node = read(&node(architecture, &format!("p{pool}"), json!([])));
        node.taints = taints;
        NodeKind::of(&node, &BTreeSet::new())
    })
}

fn any_cluster() -> impl Strategy<Value = (Vec<NodePool>, Vec<NodeKind>)> {
    (
        prop::collection::vec(any_node_pool(), 0..4),
        prop::collection::vec(any_kind(), 0..4),
    )
}

fn configured() -> Vec<Pool> {
    vec![pool("a", "a", &["linux/amd64"]), pool("b", "b", &[])]
}

proptest! {
    /// Whatever is in the cluster, an image has to run at least where the configuration says.
    #[test]
    fn platforms_are_never_fewer_than_configured((node_pools, nodes) in any_cluster()) {
        let known = Inventory::of(node_pools, &nodes);
        let discovery = Discovery::of(&configured(), &known);
        for (own, found) in configured().iter().zip(&discovery.pools) {
            prop_assert!(found.pool.platforms.contains(own.platforms));
            prop_assert_eq!(found.declared, own.platforms);
            prop_assert_eq!(&found.pool.tolerations, &own.tolerations);
        }
        // No pool can be opened by an image that runs nowhere, and none opens everything.
        for found in &discovery.pools {
            prop_assert!(!found.pool.platforms.is_empty() && !found.pool.tolerations.is_empty());
            prop_assert!(found.pool.tolerations.iter().all(|toleration| !toleration.key.is_empty()));
        }
    }

    /// Another node or NodePool never makes a configured pool fit more images.
    #[test]
    fn more_of_the_cluster_never_narrows(
        (mut node_pools, mut nodes) in any_cluster(), pool in any_node_pool(), node in any_kind(),
    ) {
        let platforms = |known: &Inventory| -> Vec<PlatformSet> {
            Discovery::of(&configured(), known).pools.into_iter().take(2).map(|known| known.pool.platforms).collect()
        };
        let before = platforms(&Inventory::of(node_pools.clone(), &nodes));
        // Names are unique, and a pool's taints of the start belong to its nodes.
        node_pools.push(NodePool { metadata: crate::cluster::Metadata { name: "new".into(), ..pool.metadata.clone() }, ..pool });
        nodes.push(node);
        let after = platforms(&Inventory::of(node_pools, &nodes));
        for (before, after) in before.into_iter().zip(after) {
            prop_assert!(after.contains(before));
        }
    }

    /// An unknown requirement changes nothing.
    #[test]
    fn an_unknown_requirement_never_narrows(pool in any_node_pool(), mut unknown in requirement()) {
        let before = of_node_pool(&pool);
        if unknown.operator == "In" || unknown.operator == "NotIn" {
            unknown.key = format!("other.example.com/{}", unknown.key.replace('/', "-"));
        }
        let mut pool = pool;
        pool.requirements.push(unknown);
        prop_assert_eq!(of_node_pool(&pool), before);
    }

    /// Every node that Karpenter could make by the requirements on its architecture has one of these platforms.
    #[test]
    fn no_architecture_that_is_allowed_is_missing(pool in any_node_pool()) {
        let found = of_node_pool(&pool);
        prop_assume!(!found.is_empty());
        for architecture in ["amd64", "arm64"] {
            let allows = |requirement: &NodeSelectorRequirement| {
                let listed = requirement.values.iter().flatten().any(|value| value == architecture);
                match (requirement.key.as_str(), requirement.operator.as_str()) {
                    ("kubernetes.io/arch" | "beta.kubernetes.io/arch", "In") => listed,
                    ("kubernetes.io/arch" | "beta.kubernetes.io/arch", "NotIn") => !listed,
                    _ => true,
                }
            };
            if pool.requirements.iter().all(allows) {
                prop_assert!(found.contains(platforms(&[&format!("linux/{architecture}")])), "{architecture}");
            }
        }
    }

    /// The verdict names the first of all NodePools that could be the next.
    #[test]
    fn no_usable_node_pool_comes_before_the_next(node_pools in prop::collection::vec(any_node_pool(), 0..5)) {
        let tolerations = &configured()[0].tolerations;
        let fits = |pool: &&NodePool| pool.taints.iter().all(|taint| taints::is_tolerated(taint, tolerations));
        let all: Vec<&NodePool> = node_pools.iter().collect();
        let next = next_node_pool(&all, tolerations);
        let usable = || node_pools.iter().filter(|pool| !contradicts_itself(pool)).filter(fits);
        if let Some(next) = next {
            prop_assert!(!contradicts_itself(next));
            for other in usable() {
                prop_assert!((other.weight, other.name()) <= (next.weight, next.name()) || !fits(&next));
            }
            prop_assert!(fits(&next) || usable().next().is_none());
        } else {
            prop_assert!(usable().next().is_none());
        }
    }
}
