//! Progress towards several architectures: where eligible Pods run, and why some do not tolerate a pool yet.

use std::collections::BTreeMap;

use super::amount::Amount;
use super::money::Money;
use super::placed_pod::PlacedPod;
use tolerarch_core::reason::Reason;

/// Requests of eligible Pods. Eligible here means that a Pod could run on several architectures of a pool, or on the only
/// one that the pool has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub eligible: Amount,
    /// Requests by the architecture of the node.
    pub architectures: BTreeMap<&'static str, Amount>,
    /// Requests of the Pods without a node, or with a node whose architecture is unknown.
    pub elsewhere: Amount,
    /// The Pods that do not tolerate a pool, by the reason.
    pub untolerated: BTreeMap<Untolerated, Gain>,
    /// The Pods that tolerate a pool, and run where they cost more than on the pool.
    pub movable: Gain,
    /// Requests of the Pods that are not eligible because their own node selector or affinity leaves one architecture.
    pub bound: Amount,
}

/// Requests of Pods, and the savings a month if the Pods ran where they cost least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gain {
    /// The savings: 0 without prices. Gains are ordered by them first.
    pub money: Money,
    pub requests: Amount,
}

impl Gain {
    pub fn add(&mut self, other: Self) {
        self.money.add(other.money);
        self.requests.add(other.requests);
    }
}

/// Reason why an eligible Pod does not tolerate a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Untolerated {
    /// The Pod is older than the installation, and gets the toleration when it is created again.
    Older,
    /// The Pod was created after the installation.
    Younger,
    /// Decisions on the Pod are only observed (`mode: observe`).
    Observed,
    /// No webhook of tolerarch selects the Pod.
    NotCalled,
    /// The Pod does not get the toleration because of the pool's share, its owner or its size.
    Closed,
}

impl Progress {
    pub fn untolerated(&self, reason: Untolerated) -> Gain {
        match self.untolerated.get(&reason) {
            Some(gain) => *gain,
            None => Gain::default(),
        }
    }

    /// Adds a Pod that could save this money. `installed`: the time of tolerarch's installation, in seconds since 1970.
    pub(super) fn add(&mut self, placed: PlacedPod<'_>, money: Money, installed: Option<i64>) {
        let requests = placed.pod.requests;
        if placed.targets().is_empty() {
            if placed.is_supported() {
                self.bound.add(requests);
            }
            return;
        }
        self.eligible.add(requests);
        let node = placed.node.unwrap_or_default();
        if let Some(architecture) = node.architectures().first() {
            let amount = self.architectures.entry(architecture).or_default();
            amount.add(requests);
        } else {
            self.elsewhere.add(requests);
        }
        let gain = Gain { money, requests };
        if let Some(reason) = Untolerated::of(placed, installed) {
            self.untolerated.entry(reason).or_default().add(gain);
        } else if money > Money::default() {
            self.movable.add(gain);
        }
    }
}

impl Untolerated {
    /// Returns the reason; `None` if the Pod tolerates every pool that is open to it.
    fn of(placed: PlacedPod<'_>, installed: Option<i64>) -> Option<Self> {
        let reason = placed.examined.reason;
        let is_decided = matches!(
            reason,
            Reason::Tolerated | Reason::Placed | Reason::AlreadyTolerated
        );
        if is_decided && placed.missed_pools().is_empty() {
            return None;
        }
        if !placed.pod.is_called {
            return Some(Self::NotCalled);
        }
        if reason == Reason::Observed {
            return Some(Self::Observed);
        }
        if !is_decided {
            return Some(Self::Closed);
        }
        match (placed.pod.created, installed) {
            (Some(created), Some(installed)) if created > installed => Some(Self::Younger),
            _ => Some(Self::Older),
        }
    }
}
