//! The platforms that nodes have, and those that the nodes of a NodePool can have.
//!
//! To say too many is safe: fewer images qualify then. So only what is certain narrows (Karpenter's `requirements.go`); an
//! operator, a value or a provider that is not known never does.

use std::collections::BTreeSet;

use crate::cluster::{Node, NodePool, Requirement};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{ARCH_KEY, BETA_ARCH_KEY};

const OS: &str = "kubernetes.io/os";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Names that Karpenter takes for others.
const ALIASES: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    (BETA_ARCH_KEY, ARCH_KEY),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
];
/// What a NodePool makes that does not say more. Karpenter knows no other architectures.
const EVERY: PlatformSet = PlatformSet::AMD64_AND_ARM64;

/// The platform of a node; none for one that does not run linux, or says nothing of itself yet.
pub(super) fn of_node(node: &Node) -> PlatformSet {
    let is_linux = node.os.is_empty() || node.os == "linux";
    if is_linux && !node.architecture.is_empty() { named(&node.architecture) } else { PlatformSet::EMPTY }
}

/// Those of an architecture. One that is not known may be any: no image is known to run there.
fn named(architecture: &str) -> PlatformSet {
    format!("linux/{architecture}").parse().unwrap_or(PlatformSet::ALL)
}

/// Those that the nodes of a NodePool can have; none for one that never runs linux.
pub(super) fn of_node_pool(pool: &NodePool) -> PlatformSet {
    if !Allowed::of(pool, OS).has("linux") {
        return PlatformSet::EMPTY;
    }
    of_architectures(&Allowed::of(pool, ARCH_KEY))
}

/// Whether no value is left for a label of every instance type: no nodes (`filterInstanceTypesByRequirements`).
pub(super) fn contradicts_itself(pool: &NodePool) -> bool {
    // Each node has these labels, and none of them is a number, but perhaps a zone.
    let rules_out_all = |key: &str, operator: &str| match operator {
        "DoesNotExist" => true,
        "Gt" | "Gte" | "Lt" | "Lte" => key != ZONE,
        _ => false,
    };
    [ARCH_KEY, OS, INSTANCE_TYPE, ZONE, CAPACITY_TYPE].into_iter().any(|key| {
        let mut own = pool.requirements.iter().filter(|own| is_same(&own.key, key));
        own.any(|own| rules_out_all(key, &own.operator)) || Allowed::of(pool, key).is_empty()
    })
}

/// Whether Karpenter takes this name of a label for this key.
fn is_same(name: &str, key: &str) -> bool {
    name == key || ALIASES.contains(&(name, key))
}

fn of_architectures(allowed: &Allowed<'_>) -> PlatformSet {
    let platforms = match allowed {
        Allowed::Only(names) => names.iter().fold(PlatformSet::EMPTY, |all, name| all.union(named(name))),
        Allowed::AllBut(names) => {
            let but = |all: PlatformSet| names.iter().fold(all, |left, name| left.difference(named(name)));
            Some(but(EVERY)).filter(|left| !left.is_empty()).unwrap_or_else(|| but(PlatformSet::ALL))
        }
    };
    // What contradicts itself makes no nodes, and must not be a set that every image covers.
    if platforms.is_empty() { EVERY } else { platforms }
}

/// The values that the label of a node may have, as far as that is certain.
enum Allowed<'a> {
    Only(BTreeSet<&'a str>),
    AllBut(BTreeSet<&'a str>),
}

impl<'a> Allowed<'a> {
    fn of(pool: &'a NodePool, key: &str) -> Self {
        let is_key = |name: &str| is_same(name, key);
        let mut allowed = Self::AllBut(BTreeSet::new());
        for Requirement { key, operator, values } in &pool.requirements {
            let values = || values.iter().map(String::as_str);
            match operator.as_str() {
                "In" if is_key(key) && !values().eq([""; 0]) => allowed.keep(values().collect()),
                "NotIn" if is_key(key) => allowed.remove(values().collect()),
                _ => {}
            }
        }
        for (_, value) in pool.template_labels.iter().filter(|(key, _)| is_key(key)) {
            allowed.keep([value.as_str()].into());
        }
        allowed
    }

    fn keep(&mut self, values: BTreeSet<&'a str>) {
        *self = Self::Only(values.into_iter().filter(|value| self.has(value)).collect());
    }

    fn remove(&mut self, values: BTreeSet<&'a str>) {
        match self {
            Self::Only(known) => known.retain(|value| !values.contains(value)),
            Self::AllBut(known) => known.extend(values),
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Only(known) if known.is_empty())
    }

    fn has(&self, value: &str) -> bool {
        match self {
            Self::Only(known) => known.contains(value),
            Self::AllBut(known) => !known.contains(value),
        }
    }
}
