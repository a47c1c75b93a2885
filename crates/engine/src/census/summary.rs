//! The sums of a census for a report: ranked, and independent of the order of the Pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::amount::Amount;
use super::coverage::Coverage;
use super::workload::Workload;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// All Pods, and the number of workloads, by the coverage of their images.
    pub totals: BTreeMap<Coverage, (Amount, u64)>,
    /// Every workload, the largest first.
    pub workloads: Vec<(Arc<Workload>, WorkloadTotal)>,
    /// Every image that keeps Pods from the pools, the one with most Pods first.
    pub images: Vec<((Arc<str>, Cause), ImageTotal)>,
    /// Sums for each namespace, the one with most to gain first.
    pub namespaces: Vec<(Arc<str>, NamespaceTotal)>,
    /// Pods with an unknown image, by the reason.
    pub unknown: Vec<(Reason, ReasonTotal)>,
    /// Pods that are not decided on, by the reason.
    pub skipped: Vec<(Reason, ReasonTotal)>,
    /// Pods that could use pools, but were created without their tolerations, with these pools.
    pub missed: Vec<(PodOf, Vec<Arc<str>>)>,
    pub misplaced: Vec<Misplacement>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadTotal {
    /// The least coverage among the workload's Pods.
    pub coverage: Coverage,
    pub reason: Reason,
    pub amount: Amount,
    /// The images that keep the workload from the pools.
    pub images: BTreeSet<Arc<str>>,
    pub missed: u64,
    pub misplaced: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTotal {
    /// All Pods that the image keeps from the pools.
    pub keeps: Amount,
    /// Pods that no other image keeps from the pools as well.
    pub alone: Amount,
    pub workloads: BTreeSet<Arc<Workload>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceTotal {
    pub amounts: BTreeMap<Coverage, Amount>,
    pub workloads: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasonTotal {
    pub amount: Amount,
    pub workloads: BTreeSet<Arc<Workload>>,
    /// The images, if images are the reason.
    pub images: BTreeSet<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodOf {
    pub workload: Arc<Workload>,
    pub name: String,
}

/// A Pod on a node that its images do not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplacement {
    pub pod: PodOf,
    pub node: Arc<str>,
    pub platform: PlatformSet,
    pub images: Vec<Arc<str>>,
}

impl NamespaceTotal {
    /// Returns the Pods that images keep from the pools.
    pub fn kept(&self) -> Amount {
        [Coverage::Partial, Coverage::Unknown].iter().filter_map(|coverage| self.amounts.get(coverage)).sum()
    }
}

impl Summary {
    pub fn all(&self) -> Amount {
        self.totals.values().map(|(amount, _)| amount).sum()
    }
}
