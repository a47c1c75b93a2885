//! A Pod on its node: where it may run, and what it costs.

use std::collections::BTreeSet;

use super::coverage::Coverage;
use super::indexed_pod::IndexedPod;
use super::money::{Costs, Money, Prices};
use crate::decide::Examined;
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

    /// Returns whether every image runs on every platform of a pool, and nothing but a node selector or affinity keeps
    /// the Pod from it: no share of the pool, no owner, no size.
    pub(super) fn is_admitted(self) -> bool {
        let is_unhindered = matches!(
            self.examined.reason,
            Reason::Tolerated | Reason::Placed | Reason::Observed | Reason::AlreadyTolerated
        );
        self.coverage() == Coverage::All && is_unhindered
    }

    /// Returns whether the Pod could run on every platform of an open pool.
    pub(super) fn is_eligible(self) -> bool {
        let mut open = self.examined.pools.iter().filter(|pool| pool.is_open);
        self.is_admitted() && open.any(|pool| self.selected.contains(pool.platforms))
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
            let platforms = platforms.intersection(self.selected);
            let cheapest = prices.cheapest(platforms, requests);
            cheapest.map_or(today, |cost| cost.min(today))
        };
        let pools = &self.examined.pools;
        let mut costs = Costs {
            today,
            after: today,
            kept: Money::default(),
            uncounted: 0,
        };
        match self.coverage() {
            Coverage::All if self.is_admitted() => {
                let open = pools.iter().filter(|pool| pool.is_open);
                costs.after = least(open.map(|pool| pool.platforms).collect());
            }
            Coverage::Partial | Coverage::Unknown => {
                let all = pools.iter().map(|pool| pool.platforms).collect();
                costs.kept = today.less(least(all));
            }
            Coverage::All | Coverage::Skipped => {}
        }
        costs
    }
}
