//! A Pod on its node: where the Pod may run, and what it costs.

use std::collections::BTreeSet;

use super::coverage::Coverage;
use super::indexed_pod::IndexedPod;
use super::money::{Costs, Prices};
use crate::decide::{Examined, PoolState};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::reason::Reason;

/// A Pod, its node's platform, and the decision on its shape.
#[derive(Clone, Copy)]
pub struct PlacedPod<'p> {
    pub pod: &'p IndexedPod,
    /// Platform of the node; `None` without a node, or if the platform is unknown.
    pub node: Option<PlatformSet>,
    /// The decision on the Pod's shape.
    pub examined: &'p Examined,
    /// Platforms that the Pod's own node selector and required affinity allow.
    pub selected: PlatformSet,
}

/// The inputs of a census beside the Pods.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// Without prices, all costs are 0.
    pub prices: Prices,
    /// Time of tolerarch's installation, in seconds since 1970; `None` if it is unknown.
    pub installed: Option<i64>,
}

impl<'p> PlacedPod<'p> {
    pub(super) fn coverage(self) -> Coverage {
        Coverage::of(self.examined).0
    }

    /// Returns whether every image runs on every platform of a pool.
    pub(super) fn is_supported(self) -> bool {
        let mut pools = self.examined.pools.iter();
        self.coverage() == Coverage::All && pools.any(is_eligible)
    }

    /// Returns the platforms of the pools for which the Pod is eligible; empty if its own node selector or affinity leaves
    /// the Pod no choice.
    pub(super) fn targets(self) -> PlatformSet {
        if self.coverage() != Coverage::All {
            return PlatformSet::EMPTY;
        }
        let pools = self.examined.pools.iter();
        self.allowed(pools.filter(|pool| is_eligible(pool)))
    }

    /// Returns the platforms of pools on which the Pod could run if all images supported all of them.
    fn possible_targets(self) -> PlatformSet {
        self.allowed(self.examined.pools.iter())
    }

    /// Returns the platforms of these pools that the Pod's own node selector and affinity allow. A pool with several
    /// architectures does not count if only one of them is allowed.
    fn allowed<'a>(self, pools: impl Iterator<Item = &'a PoolState>) -> PlatformSet {
        let mut allowed = PlatformSet::EMPTY;
        for pool in pools {
            let platforms = pool.platforms.intersection(self.selected);
            if platforms == pool.platforms || platforms.architectures().len() > 1 {
                allowed |= platforms;
            }
        }
        allowed
    }

    /// Returns whether the Pod's own node selector or affinity leaves the Pod no choice, even if all images ran everywhere.
    pub(super) fn is_bound(self) -> bool {
        self.possible_targets().is_empty()
    }

    /// Returns the pools that are open to the Pod, and that the Pod does not tolerate. Observed decisions count as well.
    pub(super) fn missed_pools(self) -> Vec<&'p str> {
        let reason = self.examined.reason;
        let would_open = matches!(reason, Reason::Tolerated | Reason::Observed);
        let mut missed = Vec::new();
        if self.coverage() == Coverage::Skipped || !would_open {
            return missed;
        }
        for pool in &self.examined.pools {
            if pool.is_open && !pool.is_tolerated {
                missed.push(pool.name.as_str());
            }
        }
        missed
    }

    /// Returns the images that certainly do not run on the node.
    pub(super) fn misplaced_images(self) -> BTreeSet<&'p str> {
        let mut misplaced = BTreeSet::new();
        let Some(node) = self.node else {
            return misplaced;
        };
        for state in &self.examined.images {
            if let Some(platforms) = state.platforms
                && !platforms.contains(node)
            {
                misplaced.insert(state.image.as_str());
            }
        }
        misplaced
    }

    /// Returns the costs of the Pod where it runs, and where it may run.
    pub(super) fn costs(self, prices: &Prices) -> Costs {
        let mut costs = Costs::default();
        let requests = self.pod.requests;
        let node = self.node.unwrap_or_default();
        let Some(today) = prices.cheapest(node, requests) else {
            costs.uncounted = 1;
            return costs;
        };
        costs.today = today;
        costs.after = today;
        let least = |platforms: PlatformSet| match prices.cheapest(platforms, requests) {
            Some(cost) => cost.min(today),
            None => today,
        };
        match self.coverage() {
            Coverage::All => costs.after = least(self.targets()),
            Coverage::Partial | Coverage::Unknown => {
                costs.kept = today.less(least(self.possible_targets()));
            }
            Coverage::Skipped => {}
        }
        costs
    }
}

/// Returns whether every image runs on every platform of the pool.
fn is_eligible(pool: &PoolState) -> bool {
    pool.lacks == Some(PlatformSet::EMPTY)
}
