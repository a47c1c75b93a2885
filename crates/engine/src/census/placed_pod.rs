//! A Pod on its node: where it may run, and what it costs.

use std::collections::BTreeSet;

use super::coverage::Coverage;
use super::indexed_pod::IndexedPod;
use super::money::{Costs, Money, Prices};
use crate::decide::{Examined, PoolState};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::reason::Reason;

/// A Pod and what is known of it.
#[derive(Clone, Copy)]
pub struct PlacedPod<'p> {
    pub pod: &'p IndexedPod,
    /// Platform of the node; `None` without a node, or if the platform is not known.
    pub node: Option<PlatformSet>,
    /// Decision on the Pod's shape.
    pub examined: &'p Examined,
    /// Platforms that the Pod's own nodeSelector and required affinity allow.
    pub selected: PlatformSet,
}

/// What the sums depend on besides the Pods.
#[derive(Clone, Debug, Default)]
pub struct Basis {
    /// Without prices all costs are 0.
    pub prices: Prices,
    /// When tolerarch was installed, in seconds since 1970; `None` if that is not known.
    pub installed: Option<i64>,
}

impl<'p> PlacedPod<'p> {
    pub(super) fn coverage(self) -> Coverage {
        Coverage::of(self.examined).0
    }

    /// Returns whether every image runs on every platform of a pool.
    pub(super) fn is_supported(self) -> bool {
        let mut pools = self.examined.pools.iter();
        self.coverage() == Coverage::All && pools.any(supports)
    }

    /// Returns the platforms of pools on which the Pod may run: those whose platforms all images support. Empty if its own
    /// node selector or affinity leaves it no choice.
    pub(super) fn targets(self) -> PlatformSet {
        if self.coverage() != Coverage::All {
            return PlatformSet::EMPTY;
        }
        let pools = self.examined.pools.iter().filter(|pool| supports(pool));
        self.allowed(pools)
    }

    /// Returns the platforms of pools on which the Pod could run if all images supported all of them.
    fn possible_targets(self) -> PlatformSet {
        self.allowed(self.examined.pools.iter())
    }

    /// Returns the platforms of these pools that the Pod's own node selector and affinity allow, without those of pools
    /// of which only one architecture of several is left.
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

    /// Returns whether nothing could move the Pod, whatever its images support.
    pub(super) fn is_bound(self) -> bool {
        self.possible_targets().is_empty()
    }

    /// Returns the pools that the Pod could use, and does not tolerate. A decision that is only observed counts, too.
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

    /// Returns what the Pod costs where it runs, and would cost where it may run.
    pub(super) fn costs(self, prices: &Prices) -> Costs {
        let requests = self.pod.requests;
        let today = self.node.and_then(|node| prices.cheapest(node, requests));
        let Some(today) = today else {
            return Costs {
                uncounted: 1,
                ..Costs::default()
            };
        };
        let least = |platforms: PlatformSet| {
            let cheapest = prices.cheapest(platforms, requests);
            cheapest.map_or(today, |cost| cost.min(today))
        };
        let mut costs = Costs {
            today,
            after: today,
            kept: Money::default(),
            uncounted: 0,
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

/// Returns whether all images support all platforms of a pool.
fn supports(pool: &PoolState) -> bool {
    pool.lacks == Some(PlatformSet::EMPTY)
}
