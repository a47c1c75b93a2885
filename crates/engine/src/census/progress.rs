//! Where Pods run that could run on several architectures, and what keeps them from a pool without keeping their images.

use std::collections::BTreeMap;

use super::amount::Amount;
use super::money::Money;
use super::placed_pod::PlacedPod;
use tolerarch_core::reason::Reason;

/// Requests of eligible Pods: those that could run on several architectures of a pool, or on the only one that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub eligible: Amount,
    /// Requests by the architecture of the node.
    pub architectures: BTreeMap<&'static str, Amount>,
    /// Requests of the Pods that have no node yet, or one whose architecture is not known.
    pub elsewhere: Amount,
    /// The Pods that do not tolerate a pool, by the reason.
    pub untolerated: BTreeMap<Untolerated, Gain>,
    /// The Pods that tolerate a pool, and run where it costs more than there.
    pub movable: Gain,
    /// Requests of the Pods that are not eligible, as their own nodeSelector or affinity leaves them one architecture.
    pub bound: Amount,
}

/// Requests of Pods, and what could be saved a month if they ran where it costs least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gain {
    /// 0 without prices. Outweighs requests.
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
    /// The Pod was created since then.
    Younger,
    /// Pods are observed only (`mode: observe`).
    Observed,
    /// No webhook of tolerarch selects the Pod.
    NotCalled,
    /// The share of the pool, the Pod's owner or its size keeps the toleration from it.
    Closed,
}

impl Progress {
    pub fn untolerated(&self, reason: Untolerated) -> Gain {
        self.untolerated.get(&reason).copied().unwrap_or_default()
    }

    /// Adds a Pod that could save this money; `installed` is when tolerarch was, in seconds since 1970.
    pub(super) fn add(&mut self, placed: PlacedPod<'_>, money: Money, installed: Option<i64>) {
        let requests = placed.pod.requests;
        if placed.targets().is_empty() {
            if placed.is_supported() {
                self.bound.add(requests);
            }
            return;
        }
        self.eligible.add(requests);
        let architectures = placed.node.unwrap_or_default().architectures();
        match architectures.first() {
            Some(architecture) => self
                .architectures
                .entry(architecture)
                .or_default()
                .add(requests),
            None => self.elsewhere.add(requests),
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
    /// Returns the reason; `None` of a Pod that tolerates every pool that it could use.
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
