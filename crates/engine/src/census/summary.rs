//! The sums of a census for a report: ranked, and independent of the order of the Pods; and what is summed.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;
use std::sync::Arc;

use crate::decide::Examined;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_kubernetes::cluster::StoredPod;

/// Requests of Pods. They are untrusted input, so a sum saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub pods: u64,
}

impl Amount {
    pub(super) fn of(pod: &StoredPod) -> Self {
        let requests = pod.requests;
        Self {
            cpu_millis: requests.cpu.millis(),
            memory_bytes: requests.memory.units(),
            pods: 1,
        }
    }

    pub fn add(&mut self, other: Self) {
        self.cpu_millis = self.cpu_millis.saturating_add(other.cpu_millis);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.pods = self.pods.saturating_add(other.pods);
    }

    pub fn cpu_cores(self) -> f64 {
        // Exact up to 2^53 thousandths: nine trillion cores.
        self.cpu_millis as f64 / 1000.0
    }
}

impl<'a> Sum<&'a Self> for Amount {
    fn sum<I: Iterator<Item = &'a Self>>(amounts: I) -> Self {
        let mut sum = Self::default();
        amounts.for_each(|amount| sum.add(*amount));
        sum
    }
}

/// Share of the pools' platforms that the images of a Pod cover. A workload counts by the first variant in this order
/// that one of its Pods has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coverage {
    /// An image lacks a platform.
    Partial,
    /// The platforms of an image are unknown, and no image is known to lack one.
    Unknown,
    /// Every image runs wherever a pool's nodes can be.
    All,
    /// The Pod is not decided on: of a DaemonSet, opted out, or the like.
    Skipped,
}

impl Coverage {
    /// All variants, in the order of reports.
    pub const ALL: [Self; 4] = [Self::All, Self::Partial, Self::Unknown, Self::Skipped];

    /// Returns the coverage of a Pod's images, and its reason: the outcome today, for an unknown image why it is unknown.
    pub fn of(
        Examined {
            reason,
            skipped,
            blockers,
            ..
        }: &Examined,
    ) -> (Self, Reason) {
        let lacking = blockers.iter().find(|it| it.cause.lacks().is_some());
        match (skipped, lacking, blockers.first()) {
            (Some(reason), ..) => (Self::Skipped, *reason),
            (None, Some(lacking), _) => (Self::Partial, lacking.reason()),
            (None, None, Some(unknown)) => (Self::Unknown, unknown.reason()),
            (None, None, None) if *reason == Reason::Unknown(LookupError::Internal) => {
                (Self::Unknown, *reason)
            }
            (None, None, None) => (Self::All, *reason),
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}

/// Controller of Pods, or the owner above that people know, such as a Deployment or a CronJob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    pub namespace: Arc<str>,
    /// `Pod` for a Pod without an owner.
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Workload {
    /// Returns `Deployment/web`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

#[derive(Debug, PartialEq)]
pub struct IndexedPod {
    pub name: Box<str>,
    /// Controller of the Pod if there usually is an owner above it: a ReplicaSet or a Job.
    pub between: Option<Arc<Workload>>,
    /// Owner above the controller, as names or the cluster say; else the controller, else the Pod.
    pub workload: Arc<Workload>,
    /// Place of the Pod's shape; `None` if the Pod cannot be read within the limits on untrusted input.
    pub shape: Option<usize>,
    pub requests: Amount,
    pub node: Option<Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary<'p> {
    /// All Pods, and the number of workloads, by the coverage of their images, in the order of reports.
    pub totals: Vec<(Coverage, Amount, u64)>,
    /// Every workload, the largest first.
    pub workloads: Vec<(&'p Workload, WorkloadTotal<'p>)>,
    /// Every image that keeps Pods from the pools, the one with most Pods first.
    pub images: Vec<((&'p str, Cause), ImageTotal<'p>)>,
    /// Sums for each namespace, the one with most to gain first.
    pub namespaces: Vec<(&'p str, NamespaceTotal)>,
    /// Pods with an unknown image, by the reason.
    pub unknown: Vec<(Reason, ReasonTotal<'p>)>,
    /// Pods that are not decided on, by the reason.
    pub skipped: Vec<(Reason, ReasonTotal<'p>)>,
    /// Pods that could use pools, but were created without their tolerations, with these pools.
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
    /// The images that keep the workload from the pools.
    pub images: BTreeSet<&'p str>,
    pub missed: u64,
    pub misplaced: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageTotal<'p> {
    /// All Pods that the image keeps from the pools.
    pub keeps: Amount,
    /// Pods that no other image keeps from the pools as well.
    pub alone: Amount,
    pub workloads: BTreeSet<&'p Workload>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceTotal {
    pub amounts: BTreeMap<Coverage, Amount>,
    pub workloads: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasonTotal<'p> {
    pub amount: Amount,
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
            missed: 0,
            misplaced: 0,
        }
    }
}

impl NamespaceTotal {
    /// Returns the sum of the Pods that images keep from the pools.
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
        self.totals.iter().map(|(_, amount, _)| amount).sum()
    }
}
