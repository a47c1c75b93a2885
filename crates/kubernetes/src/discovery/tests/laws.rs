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
    /// Whatever is in the cluster, an image has to run at least on the configured platforms.
    #[test]
    fn platforms_are_never_fewer_than_configured((node_pools, nodes) in any_cluster()) {
        let inventory = Inventory::of(node_pools, &nodes);
        let discovery = Discovery::of(&configured(), &inventory);
        for (configured, pool) in configured().iter().zip(&discovery.pools) {
            prop_assert!(pool.pool.platforms.contains(configured.platforms));
            prop_assert_eq!(pool.declared, configured.platforms);
            prop_assert_eq!(&pool.pool.tolerations, &configured.tolerations);
        }
        // No image is eligible without a platform, and no pool tolerates everything.
        for ClusterPool { pool, .. } in &discovery.pools {
            prop_assert!(!pool.platforms.is_empty() && !pool.tolerations.is_empty());
            prop_assert!(pool.tolerations.iter().all(|toleration| !toleration.key.is_empty()));
        }
    }

    /// Another node or NodePool never makes more images eligible for a configured pool.
    #[test]
    fn more_of_the_cluster_never_narrows(
        (mut node_pools, mut nodes) in any_cluster(), pool in any_node_pool(), node in any_kind(),
    ) {
        let platforms = |inventory: &Inventory| -> Vec<PlatformSet> {
            let pools = Discovery::of(&configured(), inventory).pools.into_iter().take(2);
            pools.map(|pool| pool.pool.platforms).collect()
        };
        let before = platforms(&Inventory::of(node_pools.clone(), &nodes));
        // The name is new: startup taints belong to the nodes of the NodePool with their name.
        node_pools.push(NodePool { metadata: crate::cluster::Metadata { name: "new".into(), ..pool.metadata.clone() }, ..pool });
        nodes.push(node);
        let after = platforms(&Inventory::of(node_pools, &nodes));
        for (before, after) in before.into_iter().zip(after) {
            prop_assert!(after.contains(before));
        }
    }

    /// An unknown requirement changes nothing.
    #[test]
    fn unknown_requirement_never_narrows(pool in any_node_pool(), mut unknown in requirement()) {
        let before = of_node_pool(&pool);
        if unknown.operator == "In" || unknown.operator == "NotIn" {
            unknown.key = format!("other.example.com/{}", unknown.key.replace('/', "-"));
        }
        let mut pool = pool;
        pool.requirements.push(unknown);
        prop_assert_eq!(of_node_pool(&pool), before);
    }

    /// The platforms include every architecture that the requirements allow.
    #[test]
    fn no_allowed_architecture_is_missing(pool in any_node_pool()) {
        let of_pool = of_node_pool(&pool);
        prop_assume!(!of_pool.is_empty());
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
                prop_assert!(of_pool.contains(platforms(&[&format!("linux/{architecture}")])), "{architecture}");
            }
        }
    }

    /// The next NodePool is the first usable one.
    #[test]
    fn no_usable_node_pool_precedes_the_next(node_pools in prop::collection::vec(any_node_pool(), 0..5)) {
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
