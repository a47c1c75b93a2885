//! The NodePool of the next node: Karpenter takes the first one that fits, by weight, then by name, the later in the
//! alphabet first, and compares prices only within it (`OrderByWeight`, `addToNewNodeClaim`).

use std::fmt;

use super::platforms::contradicts_itself;
use super::taints::{is_tolerated, is_wish};
use crate::cluster::{NodePool, Quantity, Taint};
use tolerarch_core::pod::Toleration;

/// Resources that every machine has. A NodePool that has reached its limit of GPUs can still make other nodes.
const OF_EVERY_NODE: [&str; 5] = ["cpu", "memory", "nodes", "pods", "ephemeral-storage"];

/// Origin of new nodes for Pods to which a pool is opened.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<'a> {
    NoNodePool,
    /// New nodes come from this NodePool, which the pool opens.
    Own(&'a NodePool),
    /// New nodes come from `first`, which needs no toleration of the pool, although `own` could make them as well.
    Behind {
        first: &'a NodePool,
        own: &'a NodePool,
    },
    /// No NodePool of the pool can make nodes now, so that they come from `first`, if from any.
    Unusable {
        first: Option<&'a NodePool>,
        own: &'a NodePool,
        obstacle: Obstacle,
    },
}

/// Reason why a NodePool makes no nodes for Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    Deleted,
    Static,
    NotReady,
    Limits,
    /// No instance type meets the NodePool's requirements: Karpenter drops the NodePool.
    Contradiction,
}

impl Obstacle {
    /// Returns why a NodePool makes no nodes; `None` if it can make some.
    pub fn of(pool: &NodePool) -> Option<Self> {
        if pool.metadata.deletion_timestamp.is_some() {
            Some(Self::Deleted)
        } else if pool.is_static {
            Some(Self::Static)
        } else if pool.is_ready == Some(false) {
            Some(Self::NotReady)
        } else if has_reached_limits(pool) {
            Some(Self::Limits)
        } else if contradicts_itself(pool) {
            Some(Self::Contradiction)
        } else {
            None
        }
    }

    /// Returns what there is to do in a few words; empty if the sentence says it.
    const fn advice(self) -> &'static str {
        match self {
            Self::Deleted | Self::Static => "",
            Self::NotReady => "; see its status",
            Self::Limits => "; raise them",
            Self::Contradiction => "; see its requirements",
        }
    }
}

/// Writes a sentence whose subject is the NodePool.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "is being deleted",
            Self::Static => "has a fixed number of nodes",
            Self::NotReady => "is not ready",
            Self::Limits => "has reached its limits",
            Self::Contradiction => "requires what contradicts itself",
        })
    }
}

/// Returns whether no machine fits (`filterByRemainingResources` of Karpenter). No cloud has one with less than a core.
fn has_reached_limits(pool: &NodePool) -> bool {
    let reached = |name: &str| {
        let limit = *pool.limits.get(name)?;
        let used = pool.resources.get(name).copied().unwrap_or_default();
        Some(match name {
            "cpu" | "nodes" => used + Quantity::ONE > limit,
            _ => used >= limit,
        })
    };
    OF_EVERY_NODE.iter().any(|name| reached(name) == Some(true))
}

/// Returns the NodePool from which Karpenter makes the next node for a Pod with these tolerations.
pub(super) fn next_node_pool<'a>(
    all: &[&'a NodePool],
    tolerations: &[Toleration<'_>],
) -> Option<&'a NodePool> {
    let tolerated = |pool: &NodePool, also: fn(&Taint) -> bool| {
        pool.taints
            .iter()
            .all(|taint| also(taint) || is_tolerated(taint, tolerations))
    };
    let usable = |pool: &&NodePool| Obstacle::of(pool).is_none() && tolerated(pool, is_wish);
    // NodePools with an untolerated PreferNoSchedule taint are the last resort, whatever their weight.
    all.iter()
        .copied()
        .filter(usable)
        .max_by_key(|&pool| (tolerated(pool, |_| false), pool.weight, pool.name()))
}

impl<'a> Verdict<'a> {
    /// Judges for Pods with a pool's tolerations, of all NodePools that these Pods may select. `own` are those that the pool
    /// opens, in Karpenter's order.
    pub(super) fn of(
        all: &[&'a NodePool],
        own: &[&'a NodePool],
        tolerations: &[Toleration<'_>],
    ) -> Self {
        let first = next_node_pool(all, tolerations);
        let usable = own
            .iter()
            .copied()
            .find(|pool| Obstacle::of(pool).is_none());
        let unusable = own
            .iter()
            .find_map(|&pool| Some((pool, Obstacle::of(pool)?)));
        match (first, usable, unusable) {
            (_, None, None) => Self::NoNodePool,
            (Some(first), Some(_), _) if own.contains(&first) => Self::Own(first),
            (Some(first), Some(own), _) => Self::Behind { first, own },
            (None, Some(own), _) => Self::Own(own),
            (first, None, Some((own, obstacle))) => Self::Unusable {
                first,
                own,
                obstacle,
            },
        }
    }
}

/// Writes a sentence, with "come from" only if the nodes come from another NodePool.
impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodePool => f.write_str("it opens no NodePool"),
            Self::Own(own) => write!(
                f,
                "`{}` is the first NodePool that Karpenter takes",
                own.name()
            ),
            Self::Behind { first, own } => {
                let taints = if first.taints.is_empty() {
                    "untainted"
                } else {
                    "its taints are tolerated"
                };
                let name = if first.weight == own.weight {
                    ", later name"
                } else {
                    ""
                };
                let weight = first.weight;
                let first = first.name();
                let own = own.name();
                write!(
                    f,
                    "new nodes come from `{first}` ({taints}, weight {weight}{name}) before `{own}`; "
                )?;
                if weight < NodePool::HEAVIEST {
                    write!(f, "give it a weight of {} or more", weight + 1)
                } else {
                    write!(
                        f,
                        "lower the weight of `{first}`, as no NodePool can have more"
                    )
                }
            }
            Self::Unusable {
                first,
                own,
                obstacle,
            } => {
                match first {
                    Some(first) => write!(f, "new nodes come from `{}`", first.name())?,
                    None => f.write_str("there are no new nodes")?,
                }
                let advice = obstacle.advice();
                write!(f, ", as `{}` {obstacle}{advice}", own.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_reached_when_no_machine_is_small_enough() {
        let pool = |limits: &[(&str, &str)], resources: &[(&str, &str)]| {
            let owned = |pairs: &[(&str, &str)]| {
                pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), Quantity::parse(value).unwrap()))
                    .collect()
            };
            NodePool {
                limits: owned(limits),
                resources: owned(resources),
                ..NodePool::default()
            }
        };
        for (limits, resources, expected) in [
            (&[][..], &[("cpu", "4")][..], false),
            (&[("cpu", "8")], &[("cpu", "4")], false),
            (&[("cpu", "8")], &[("cpu", "7")], false),
            (&[("cpu", "8")], &[("cpu", "7100m")], true),
            (&[("cpu", "8")], &[("cpu", "8000m")], true),
            (
                &[("cpu", "8"), ("memory", "1Gi")],
                &[("cpu", "4"), ("memory", "2Gi")],
                true,
            ),
            (&[("cpu", "0")], &[], true),
            (&[("nodes", "1")], &[("nodes", "1")], true),
            (&[("nvidia.com/gpu", "0")], &[], false),
        ] {
            assert_eq!(
                has_reached_limits(&pool(limits, resources)),
                expected,
                "{limits:?} {resources:?}"
            );
        }
    }
}
