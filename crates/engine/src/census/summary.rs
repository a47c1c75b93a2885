//! The sums of a census as they are shown: ranked, and the same whatever the order of the Pods was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::amount::Amount;
use super::coverage::Coverage;
use super::workload::Workload;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

/// What the Pods of a cluster add up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// All Pods, by what their images support, and how many workloads that are.
    pub totals: BTreeMap<Coverage, (Amount, u64)>,
    /// Every workload, the largest first.
    pub workloads: Vec<(Arc<Workload>, WorkloadTotal)>,
    /// Every image that keeps Pods from the pools, the one that keeps most first.
    pub images: Vec<((Arc<str>, Cause), ImageTotal)>,
    /// The same sums for each namespace, the one with most to gain first.
    pub namespaces: Vec<(Arc<str>, NamespaceTotal)>,
    /// Pods with an image that is not known, by the reason.
    pub unknown: Vec<(Reason, ReasonTotal)>,
    /// Pods that are not decided on, by the reason.
    pub skipped: Vec<(Reason, ReasonTotal)>,
    /// Pods that could use pools, and were created without, with these pools.
    pub missed: Vec<(PodOf, Vec<Arc<str>>)>,
    /// Pods on nodes that their images do not support.
    pub misplaced: Vec<Misplacement>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadTotal {
    /// Of its Pods whose images cover least.
    pub coverage: Coverage,
    pub reason: Reason,
    pub amount: Amount,
    /// Those that keep it from the pools.
    pub images: BTreeSet<Arc<str>>,
    pub missed: u64,
    pub misplaced: u64,
}

/// An image that keeps Pods from the pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTotal {
    /// All Pods that it keeps.
    pub keeps: Amount,
    /// Those that no other image keeps as well.
    pub alone: Amount,
    pub workloads: BTreeSet<Arc<Workload>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceTotal {
    /// Its Pods, by what their images support.
    pub amounts: BTreeMap<Coverage, Amount>,
    pub workloads: u64,
}

/// Pods that share a reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasonTotal {
    pub amount: Amount,
    pub workloads: BTreeSet<Arc<Workload>>,
    /// The images, where images are the reason.
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
    pub node: String,
    pub platform: PlatformSet,
    pub images: Vec<Arc<str>>,
}

impl NamespaceTotal {
    /// What images keep from the pools.
    pub fn kept(&self) -> Amount {
        [Coverage::Partial, Coverage::Unknown].iter().filter_map(|coverage| self.amounts.get(coverage)).sum()
    }
}

impl Summary {
    pub fn all(&self) -> Amount {
        self.totals.values().map(|(amount, _)| amount).sum()
    }
}
