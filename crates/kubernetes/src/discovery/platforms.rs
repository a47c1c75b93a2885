//! Platforms of nodes, and those that the nodes of a NodePool can have.
//!
//! Too many platforms are safe: fewer images qualify then. So only certain facts narrow the set (Karpenter's
//! `requirements.go`); an unknown operator, value or provider never does.

use std::collections::BTreeSet;

use crate::cluster::{Node, NodePool};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{ARCH_KEY, BETA_ARCH_KEY};

const OS: &str = "kubernetes.io/os";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Aliases of labels in Karpenter, and the labels that they mean.
const ALIASES: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    (BETA_ARCH_KEY, ARCH_KEY),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
];
/// Platforms of a NodePool without requirements on them. Karpenter knows no other architectures.
const EVERY: PlatformSet = PlatformSet::AMD64_AND_ARM64;

/// Returns the platform of a node; none for a node that does not run linux, or has not reported its architecture yet.
pub(super) fn of_node(node: &Node) -> PlatformSet {
    let is_linux = node.os.is_empty() || node.os == "linux";
    if is_linux && !node.architecture.is_empty() {
        named(&node.architecture)
    } else {
        PlatformSet::EMPTY
    }
}

/// Returns the platforms of an architecture. An unknown one may be any: no image is known to run there.
fn named(architecture: &str) -> PlatformSet {
    format!("linux/{architecture}")
        .parse()
        .unwrap_or(PlatformSet::ALL)
}

/// Returns the platforms that the nodes of a NodePool can have; none for one that never runs linux.
pub(super) fn of_node_pool(pool: &NodePool) -> PlatformSet {
    if !Allowed::of(pool, OS).has("linux") {
        return PlatformSet::EMPTY;
    }
    let platforms = match Allowed::of(pool, ARCH_KEY) {
        Allowed::Only(names) => names
            .iter()
            .fold(PlatformSet::EMPTY, |all, name| all.union(named(name))),
        Allowed::AllBut(names) => {
            let but = |all: PlatformSet| {
                names
                    .iter()
                    .fold(all, |left, name| left.difference(named(name)))
            };
            Some(but(EVERY))
                .filter(|left| !left.is_empty())
                .unwrap_or_else(|| but(PlatformSet::ALL))
        }
    };
    // Contradictory requirements make no nodes, and must not give an empty set, which every image covers.
    if platforms.is_empty() {
        EVERY
    } else {
        platforms
    }
}

/// Returns whether a label of all instance types has no value left, so no nodes (`filterInstanceTypesByRequirements`).
pub(super) fn contradicts_itself(pool: &NodePool) -> bool {
    // Each node has these labels, and none of their values is a number, except perhaps a zone.
    let rules_out_all = |key: &str, operator: &str| match operator {
        "DoesNotExist" => true,
        "Gt" | "Gte" | "Lt" | "Lte" => key != ZONE,
        _ => false,
    };
    [ARCH_KEY, OS, INSTANCE_TYPE, ZONE, CAPACITY_TYPE]
        .into_iter()
        .any(|key| {
            let mut own = pool
                .requirements
                .iter()
                .filter(|own| is_same(&own.key, key));
            own.any(|own| rules_out_all(key, &own.operator))
                || matches!(Allowed::of(pool, key), Allowed::Only(values) if values.is_empty())
        })
}

/// Returns whether Karpenter takes this name of a label for this key.
fn is_same(name: &str, key: &str) -> bool {
    name == key || ALIASES.contains(&(name, key))
}

/// Values that a label of a node may have, as far as that is certain.
enum Allowed<'a> {
    Only(BTreeSet<&'a str>),
    AllBut(BTreeSet<&'a str>),
}

impl<'a> Allowed<'a> {
    fn of(pool: &'a NodePool, key: &str) -> Self {
        let values = |operator: &str| {
            let own = pool
                .requirements
                .iter()
                .filter(|own| own.operator == operator && is_same(&own.key, key));
            own.map(|own| {
                own.values
                    .iter()
                    .flatten()
                    .map(String::as_str)
                    .collect::<BTreeSet<&str>>()
            })
            .collect::<Vec<_>>()
        };
        let labels = pool
            .template_labels
            .iter()
            .filter(|(own, _)| is_same(own, key));
        let labels = labels.map(|(_, value)| BTreeSet::from([value.as_str()]));
        let listed = values("In")
            .into_iter()
            .filter(|values| !values.is_empty())
            .chain(labels);
        let excluded: BTreeSet<&str> = values("NotIn").into_iter().flatten().collect();
        match listed.reduce(|all, own| &all & &own) {
            Some(listed) => Self::Only(&listed - &excluded),
            None => Self::AllBut(excluded),
        }
    }

    fn has(&self, value: &str) -> bool {
        match self {
            Self::Only(known) => known.contains(value),
            Self::AllBut(known) => !known.contains(value),
        }
    }
}
