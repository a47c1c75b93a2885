//! The sums of a census for a report. They are ranked, and do not depend on the order of the Pods.

use std::collections::{BTreeMap, BTreeSet};

use super::amount::Amount;
use super::coverage::Coverage;
use super::indexed_pod::{IndexedPod, Workload};
use super::money::{Costs, Money};
use super::progress::{Gain, Progress};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary<'p> {
    pub costs: Costs,
    pub progress: Progress,
    /// All Pods, and the number of workloads, by the coverage of their images, in the order of reports.
    pub totals: Vec<(Coverage, Amount, u64)>,
    /// Every workload, the largest first.
    pub workloads: Vec<(&'p Workload, WorkloadTotal<'p>)>,
    /// Every image that keeps Pods ineligible, the image of the most Pods first.
    pub images: Vec<((&'p str, Cause), ImageTotal<'p>)>,
    /// Sums for each namespace, the namespace with the most ineligible Pods first.
    pub namespaces: Vec<(&'p str, NamespaceTotal)>,
    /// Pods with an unknown image, by the reason.
    pub unknown: Vec<(Reason, ReasonTotal<'p>)>,
    /// Pods that are not decided on, by the reason.
    pub skipped: Vec<(Reason, ReasonTotal<'p>)>,
    /// Pods that were created without the tolerations of pools that are open to them, with these pools.
    pub missed: Vec<(&'p IndexedPod, Vec<&'p str>)>,
    /// Pods on nodes that their images do not support, with the node's platform and these images.
    pub misplaced: Vec<(&'p IndexedPod, PlatformSet, BTreeSet<&'p str>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadTotal<'p> {
    /// The least coverage among the workload's Pods.
    pub coverage: Coverage,
    pub reason: Reason,
    pub amount: Amount,
    /// The images that keep the workload ineligible.
    pub images: BTreeSet<&'p str>,
    pub costs: Costs,
    pub missed: u64,
    pub progress: Progress,
    pub misplaced: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTotal<'p> {
    /// All Pods that the image keeps ineligible.
    pub keeps: Amount,
    /// Pods that only this image keeps ineligible.
    pub alone: Amount,
    /// Savings a month if all these Pods ran where they cost least.
    pub keeps_money: Money,
    /// Gain from the Pods that only this image keeps ineligible, and that their own node selector or affinity leaves a
    /// choice.
    pub brings: Gain,
    pub workloads: BTreeSet<&'p Workload>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceTotal {
    pub amounts: BTreeMap<Coverage, Amount>,
    pub workloads: u64,
    pub costs: Costs,
    pub progress: Progress,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasonTotal<'p> {
    pub amount: Amount,
    /// Savings a month if the images had all platforms of their pools.
    pub money: Money,
    pub workloads: BTreeSet<&'p Workload>,
    /// The images, if images are the reason.
    pub images: BTreeSet<&'p str>,
}

impl WorkloadTotal<'_> {
    pub(super) fn of(coverage: Coverage, reason: Reason) -> Self {
        Self {
            coverage,
            reason,
            amount: Amount::default(),
            images: BTreeSet::new(),
            costs: Costs::default(),
            missed: 0,
            progress: Progress::default(),
            misplaced: 0,
        }
    }
}

impl NamespaceTotal {
    /// Returns the sum of the Pods that images keep ineligible.
    pub(super) fn kept(&self) -> Amount {
        let mut kept = Amount::default();
        for coverage in [Coverage::Partial, Coverage::Unknown] {
            if let Some(amount) = self.amounts.get(&coverage) {
                kept.add(*amount);
            }
        }
        kept
    }
}

impl Summary<'_> {
    pub fn all(&self) -> Amount {
        let mut all = Amount::default();
        for (_, amount, _) in &self.totals {
            all.add(*amount);
        }
        all
    }
}
