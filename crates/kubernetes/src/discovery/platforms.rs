//! Platforms of nodes, and platforms that the nodes of a NodePool may have.
//!
//! Too many platforms are safe: fewer images are then eligible. So only certain facts narrow the set (Karpenter's
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
/// Karpenter's aliases of labels, and the labels that they stand for.
const ALIASES: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    (BETA_ARCH_KEY, ARCH_KEY),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
];
/// Platforms of a NodePool without requirements on platforms. Karpenter supports no other architectures.
const EVERY: PlatformSet = PlatformSet::AMD64_AND_ARM64;

/// Returns the platform of a node; empty for a node that does not run linux, or has not reported its architecture yet.
pub(super) fn of_node(node: &Node) -> PlatformSet {
    let is_linux = node.os.is_empty() || node.os == "linux";
    if is_linux && !node.architecture.is_empty() {
        named(&node.architecture)
    } else {
        PlatformSet::EMPTY
    }
}

/// Returns the platforms of an architecture. An unknown one counts as all platforms: no image is known to run there.
fn named(architecture: &str) -> PlatformSet {
    let platform = format!("linux/{architecture}");
    platform.parse().unwrap_or(PlatformSet::ALL)
}

fn all_of(architectures: BTreeSet<&str>) -> PlatformSet {
    let platforms = architectures.into_iter().map(named);
    platforms.fold(PlatformSet::EMPTY, PlatformSet::union)
}

/// Returns the platforms that the nodes of a NodePool may have; empty for one that never runs linux.
pub(super) fn of_node_pool(pool: &NodePool) -> PlatformSet {
    if !Allowed::of(pool, OS).has("linux") {
        return PlatformSet::EMPTY;
    }
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
    // Contradictory requirements allow no node. The result must not be empty: every image covers the empty set.
    if platforms.is_empty() {
        EVERY
    } else {
        platforms
    }
}

/// Returns whether a label that all instance types have is left without a value, so that Karpenter makes no nodes
/// (`filterInstanceTypesByRequirements`).
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

/// Returns whether this name of a label means this key to Karpenter.
fn is_same(name: &str, key: &str) -> bool {
    name == key || ALIASES.contains(&(name, key))
}

/// Keeps the listed values that are in another list as well.
fn narrow<'a>(listed: &mut Option<BTreeSet<&'a str>>, values: BTreeSet<&'a str>) {
    *listed = match listed {
        Some(listed) => Some(&*listed & &values),
        None => Some(values),
    };
}

/// Values that a label of a node may have, narrowed by certain requirements only.
pub(super) enum Allowed<'a> {
    Only(BTreeSet<&'a str>),
    AllBut(BTreeSet<&'a str>),
}

impl<'a> Allowed<'a> {
    pub(super) fn of(pool: &'a NodePool, key: &str) -> Self {
        Self::by(&pool.requirements, &pool.template_labels, key)
    }

    /// Returns the values that requirements and labels allow. Each node meets all requirements and has all labels.
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
