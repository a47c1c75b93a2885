//! The sums of a census as they are shown: ranked, and the same whatever the order of the Pods was.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Amount, Census, PodOf, Support, Tally, Workload};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

/// What the Pods of a cluster add up to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// All Pods, by what their images support, and how many workloads that are.
    pub totals: BTreeMap<Support, (Amount, u64)>,
    /// Every workload, the largest first.
    pub workloads: Vec<WorkloadTotal>,
    /// Every image that keeps Pods from the pools, the one that keeps most first.
    pub images: Vec<ImageTotal>,
    /// The same sums for each namespace, the one with most to gain first.
    pub namespaces: Vec<NamespaceTotal>,
    /// Pods with an image that is not known, by the reason.
    pub unknown: Vec<ReasonTotal>,
    /// Pods that are not decided on, by the reason.
    pub skipped: Vec<ReasonTotal>,
    /// Pods that could use pools, and were created without, with these pools.
    pub missed: Vec<(PodOf, Vec<Arc<str>>)>,
    /// Pods on nodes that their images do not support.
    pub misplaced: Vec<Misplacement>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadTotal {
    pub workload: Arc<Workload>,
    /// Of its Pods that support least.
    pub support: Support,
    pub reason: Reason,
    pub amount: Amount,
    pub images: Vec<Arc<str>>,
    pub missed: u64,
    pub misplaced: u64,
}

/// An image that keeps Pods from the pools.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageTotal {
    pub image: Arc<str>,
    pub cause: Cause,
    /// All Pods that it keeps.
    pub keeps: Amount,
    /// Those that no other image keeps as well.
    pub alone: Amount,
    pub workloads: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceTotal {
    pub namespace: Arc<str>,
    /// Its Pods, by what their images support.
    pub amounts: BTreeMap<Support, Amount>,
    pub workloads: u64,
}

/// Pods that share a reason.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasonTotal {
    pub reason: Reason,
    pub amount: Amount,
    pub workloads: u64,
    /// The images, where images are the reason.
    pub images: Vec<Arc<str>>,
}

/// A Pod on a node that its images do not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplacement {
    pub pod: PodOf,
    pub node: String,
    pub platform: PlatformSet,
    pub images: Vec<Arc<str>>,
}

impl Census {
    pub fn summary(self) -> Summary {
        let Self { workloads, images, reasons, mut missed, mut misplaced } = self;
        let (mut totals, mut namespaces) = (BTreeMap::new(), BTreeMap::<Arc<str>, NamespaceTotal>::new());
        for support in Support::ALL {
            totals.insert(support, (Amount::default(), 0));
        }
        let mut ranked: Vec<WorkloadTotal> = Vec::with_capacity(workloads.len());
        for (workload, tally) in workloads {
            let namespace =
                namespaces.entry(Arc::clone(&workload.namespace)).or_insert_with(|| NamespaceTotal {
                    namespace: Arc::clone(&workload.namespace),
                    amounts: BTreeMap::new(),
                    workloads: 0,
                });
            namespace.workloads += 1;
            for (support, amount) in &tally.amounts {
                namespace.amounts.entry(*support).or_default().add(*amount);
                totals.entry(*support).or_default().0.add(*amount);
            }
            let total = tally.total(workload);
            totals.entry(total.support).or_default().1 += 1;
            ranked.push(total);
        }
        let largest = |amount: &Amount| Reverse(*amount);
        ranked.sort_by_cached_key(|one| (largest(&one.amount), Arc::clone(&one.workload)));
        let mut images: Vec<ImageTotal> = images
            .into_iter()
            .map(|((image, cause), tally)| ImageTotal {
                image,
                cause,
                keeps: tally.keeps,
                alone: tally.alone,
                workloads: tally.workloads.len() as u64,
            })
            .collect();
        images.sort_by_cached_key(|one| {
            (largest(&one.keeps), largest(&one.alone), Arc::clone(&one.image), format!("{:?}", one.cause))
        });
        let mut namespaces: Vec<NamespaceTotal> = namespaces.into_values().collect();
        namespaces.sort_by_cached_key(|one| (largest(&one.kept()), Arc::clone(&one.namespace)));
        let by_reason = |wanted| {
            let of = reasons.iter().filter(|((support, _), _)| *support == wanted);
            let mut of: Vec<ReasonTotal> = of
                .map(|((_, reason), tally)| ReasonTotal {
                    reason: *reason,
                    amount: tally.amount,
                    workloads: tally.workloads.len() as u64,
                    images: tally.images.iter().cloned().collect(),
                })
                .collect();
            of.sort_by_key(|one| (largest(&one.amount), one.reason));
            of
        };
        missed.sort_unstable();
        misplaced.sort_unstable_by(|one, other| one.pod.cmp(&other.pod));
        Summary {
            totals,
            workloads: ranked,
            images,
            namespaces,
            unknown: by_reason(Support::Unknown),
            skipped: by_reason(Support::Skipped),
            missed,
            misplaced,
        }
    }
}

impl Tally {
    fn total(self, workload: Arc<Workload>) -> WorkloadTotal {
        let support = self.amounts.keys().copied().reduce(Support::or_less).unwrap_or(Support::Skipped);
        let mut amount = Amount::default();
        self.amounts.values().for_each(|of| amount.add(*of));
        let reason = self.reasons.get(&support).and_then(|reasons| reasons.first()).copied();
        WorkloadTotal {
            workload,
            support,
            reason: reason.unwrap_or(Reason::Internal),
            amount,
            images: self.blockers.into_iter().collect(),
            missed: self.missed,
            misplaced: self.misplaced,
        }
    }
}

impl NamespaceTotal {
    /// What images keep from the pools.
    pub fn kept(&self) -> Amount {
        let mut kept = Amount::default();
        for support in [Support::Partial, Support::Unknown] {
            kept.add(self.amounts.get(&support).copied().unwrap_or_default());
        }
        kept
    }
}

impl Summary {
    pub fn all(&self) -> Amount {
        let mut all = Amount::default();
        self.totals.values().for_each(|(amount, _)| all.add(*amount));
        all
    }
}
