//! Whether a NodePool may have no more nodes.

use crate::cluster::{NodePool, Quantity};

/// Resources of which every machine has some. A NodePool that has reached its limit of GPUs can still make other nodes.
const OF_EVERY_NODE: [&str; 5] = ["cpu", "memory", "nodes", "pods", "ephemeral-storage"];

/// Whether no machine fits into what is left, however small it is (`filterByRemainingResources` of Karpenter). No cloud has
/// one with less than a core.
pub(super) fn are_reached(pool: &NodePool) -> bool {
    let reached = |name: &str| {
        let limit: Quantity = pool.limits.get(name)?.parse().ok()?;
        let used: Quantity =
            pool.resources.get(name).map_or(Ok(Quantity::default()), |used| used.parse()).ok()?;
        Some(match name {
            "cpu" | "nodes" => used + Quantity::ONE > limit,
            _ => used >= limit,
        })
    };
    OF_EVERY_NODE.iter().any(|name| reached(name) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_reached_when_no_machine_is_small_enough() {
        let pool = |limits: &[(&str, &str)], resources: &[(&str, &str)]| {
            let owned = |pairs: &[(&str, &str)]| {
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
            };
            NodePool { limits: owned(limits), resources: owned(resources), ..NodePool::default() }
        };
        for (limits, resources, expected) in [
            (&[][..], &[("cpu", "4")][..], false),
            (&[("cpu", "8")], &[("cpu", "4")], false),
            (&[("cpu", "8")], &[("cpu", "7")], false),
            (&[("cpu", "8")], &[("cpu", "7100m")], true),
            (&[("cpu", "8")], &[("cpu", "8000m")], true),
            (&[("cpu", "8"), ("memory", "1Gi")], &[("cpu", "4"), ("memory", "2Gi")], true),
            (&[("cpu", "0")], &[], true),
            (&[("nodes", "1")], &[("nodes", "1")], true),
            (&[("nvidia.com/gpu", "0")], &[], false),
            (&[("cpu", "many")], &[("cpu", "4")], false),
        ] {
            assert_eq!(are_reached(&pool(limits, resources)), expected, "{limits:?} {resources:?}");
        }
    }
}
