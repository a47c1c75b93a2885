//! The NodePool of the next node. Karpenter takes the first NodePool that fits, ordered by descending weight, then by
//! descending name. It compares prices only within this NodePool (`OrderByWeight`, `addToNewNodeClaim`).

use std::fmt;

use super::platforms::contradicts_itself;
use super::taints::{is_preference, is_tolerated};
use crate::cluster::{NodePool, Quantity, Taint};
use tolerarch_core::pod::Toleration;

/// Resources that every node has. A NodePool that has reached its limit of GPUs can still make other nodes.
const OF_EVERY_NODE: [&str; 5] = ["cpu", "memory", "nodes", "pods", "ephemeral-storage"];

/// Origin of new nodes for Pods with a pool's tolerations.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<'a> {
    NoNodePool,
    /// New nodes come from this NodePool of the pool.
    OfPool(&'a NodePool),
    /// New nodes come from `first`, which is open to all Pods, although the pool's NodePool `node_pool` could make them.
    Behind {
        first: &'a NodePool,
        node_pool: &'a NodePool,
    },
    /// No NodePool of the pool can make nodes at present. New nodes come from `first`, if there are any.
    Unusable {
        first: Option<&'a NodePool>,
        node_pool: &'a NodePool,
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

    /// Returns what to do about it; empty if the sentence about the NodePool suffices.
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

/// Returns whether every further node would exceed the limits (`filterByRemainingResources` of Karpenter). No cloud has
/// machines with less than one core.
fn has_reached_limits(pool: &NodePool) -> bool {
    for name in OF_EVERY_NODE {
        let Some(limit) = pool.limits.get(name) else {
            continue;
        };
        let used = pool.resources.get(name).copied().unwrap_or_default();
        let is_reached = match name {
            "cpu" | "nodes" => used + Quantity::ONE > *limit,
            _ => used >= *limit,
        };
        if is_reached {
            return true;
        }
    }
    false
}

/// Returns the NodePool from which Karpenter makes the next node for a Pod with these tolerations.
pub(super) fn next_node_pool<'a>(
    all: &[&'a NodePool],
    tolerations: &[Toleration<'_>],
) -> Option<&'a NodePool> {
    let is_tolerated = |taint: &&Taint| is_tolerated(taint, tolerations);
    let mut usable = Vec::new();
    for &pool in all {
        let mut untolerated = pool.taints.iter().filter(|taint| !is_tolerated(taint));
        if untolerated.all(is_preference) && Obstacle::of(pool).is_none() {
            usable.push(pool);
        }
    }
    usable.into_iter().max_by_key(|pool| {
        // A NodePool with an untolerated PreferNoSchedule taint is the last resort, whatever its weight.
        let is_preferred = pool.taints.iter().all(|taint| is_tolerated(&taint));
        (is_preferred, pool.weight, pool.name())
    })
}

impl<'a> Verdict<'a> {
    /// Judges for Pods with a pool's tolerations. `all` are the NodePools that these Pods may select; `of_pool` are the
    /// NodePools of the pool, in Karpenter's order.
    pub(super) fn of(
        all: &[&'a NodePool],
        of_pool: &[&'a NodePool],
        tolerations: &[Toleration<'_>],
    ) -> Self {
        let first = next_node_pool(all, tolerations);
        let mut usable = None;
        let mut unusable = None;
        for &pool in of_pool {
            match Obstacle::of(pool) {
                Some(obstacle) => unusable = unusable.or(Some((pool, obstacle))),
                None => usable = usable.or(Some(pool)),
            }
        }
        match (first, usable, unusable) {
            (_, None, None) => Self::NoNodePool,
            (Some(first), Some(_), _) if of_pool.contains(&first) => Self::OfPool(first),
            (Some(first), Some(node_pool), _) => Self::Behind { first, node_pool },
            (None, Some(node_pool), _) => Self::OfPool(node_pool),
            (first, None, Some((node_pool, obstacle))) => Self::Unusable {
                first,
                node_pool,
                obstacle,
            },
        }
    }
}

/// Writes a sentence. It contains "come from" only if the nodes come from another NodePool.
impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodePool => f.write_str("it opens no NodePool"),
            Self::OfPool(node_pool) => write!(
                f,
                "`{}` is the first NodePool that Karpenter takes",
                node_pool.name()
            ),
            Self::Behind { first, node_pool } => {
                let taints = if first.taints.is_empty() {
                    "untainted"
                } else {
                    "its taints are tolerated"
                };
                let name = if first.weight == node_pool.weight {
                    ", later name"
                } else {
                    ""
                };
                let weight = first.weight;
                let first = first.name();
                let node_pool = node_pool.name();
                write!(
                    f,
                    "new nodes come from `{first}` ({taints}, weight {weight}{name}) before `{node_pool}`; "
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
                node_pool,
                obstacle,
            } => {
                match first {
                    Some(first) => write!(f, "new nodes come from `{}`", first.name())?,
                    None => f.write_str("there are no new nodes")?,
                }
                let advice = obstacle.advice();
                write!(f, ", as `{}` {obstacle}{advice}", node_pool.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_without_room_for_one_node_are_reached() {
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
