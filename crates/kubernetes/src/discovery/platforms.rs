//! Platforms of nodes, and those that the nodes of a NodePool can have.
//!
//! Too many platforms are safe: fewer images qualify then. So only certain facts narrow the set (Karpenter's
//! `requirements.go`); an unknown operator, value or provider never does.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use crate::cluster::{Node, NodePool};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{ARCH_KEY, BETA_ARCH_KEY};

pub(super) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const OS: &str = "kubernetes.io/os";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
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
    let all_of = |names: BTreeSet<&str>| {
        let platforms = names.into_iter().map(named);
        platforms.fold(PlatformSet::EMPTY, PlatformSet::union)
    };
    let platforms = match Allowed::of(pool, ARCH_KEY) {
        Allowed::Only(names) => all_of(names),
        Allowed::AllBut(names) => {
            let excluded = all_of(names);
            let left = EVERY.difference(excluded);
            if left.is_empty() {
                PlatformSet::ALL.difference(excluded)
            } else {
                left
            }
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
    for key in [ARCH_KEY, OS, INSTANCE_TYPE, ZONE, CAPACITY_TYPE] {
        for requirement in &pool.requirements {
            if is_same(&requirement.key, key) && rules_out_all(key, &requirement.operator) {
                return true;
            }
        }
        if let Allowed::Only(values) = Allowed::of(pool, key)
            && values.is_empty()
        {
            return true;
        }
    }
    false
}

/// Returns whether Karpenter takes this name of a label for this key.
fn is_same(name: &str, key: &str) -> bool {
    name == key || ALIASES.contains(&(name, key))
}

/// Leaves of the listed values those that are in another list as well.
fn narrow<'a>(listed: &mut Option<BTreeSet<&'a str>>, values: BTreeSet<&'a str>) {
    *listed = match listed {
        Some(listed) => Some(&*listed & &values),
        None => Some(values),
    };
}

/// Values that a label of a node may have, as far as that is certain.
pub(super) enum Allowed<'a> {
    Only(BTreeSet<&'a str>),
    AllBut(BTreeSet<&'a str>),
}

impl<'a> Allowed<'a> {
    pub(super) fn of(pool: &'a NodePool, key: &str) -> Self {
        Self::by(&pool.requirements, &pool.template_labels, key)
    }

    /// Returns the values by requirements and labels of which each node has all.
    pub(super) fn by(
        requirements: &'a [NodeSelectorRequirement],
        labels: &'a BTreeMap<String, String>,
        key: &str,
    ) -> Self {
        let mut listed = None;
        let mut excluded = BTreeSet::new();
        for requirement in requirements {
            if !is_same(&requirement.key, key) {
                continue;
            }
            let values = requirement.values.iter().flatten().map(String::as_str);
            let values: BTreeSet<&str> = values.collect();
            match requirement.operator.as_str() {
                "In" if !values.is_empty() => narrow(&mut listed, values),
                "NotIn" => excluded.extend(values),
                _ => {}
            }
        }
        for (label, value) in labels {
            if is_same(label, key) {
                narrow(&mut listed, BTreeSet::from([value.as_str()]));
            }
        }
        match listed {
            Some(listed) => Self::Only(&listed - &excluded),
            None => Self::AllBut(excluded),
        }
    }

    pub(super) fn has(&self, value: &str) -> bool {
        match self {
            Self::Only(values) => values.contains(value),
            Self::AllBut(values) => !values.contains(value),
        }
    }
}
