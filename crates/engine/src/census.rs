//! Counts of the Pods that could move to a pool, and of the images that block the others. The order of the Pods does not
//! matter.
//!
//! The census neither lists Pods nor looks up images: each Pod comes with the [`Examined`](crate::decide::Examined) result
//! of its [`Shape`].

mod amount;
mod count;
mod coverage;
mod indexed_pod;
mod money;
mod placed_pod;
mod pod_index;
mod progress;
mod shape;
mod summary;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

pub use amount::Amount;
pub use count::{Count, Totals};
pub use coverage::Coverage;
pub use indexed_pod::{IndexedPod, Workload};
pub use money::{Costs, Money, Price, PriceError, Prices};
pub use placed_pod::{Basis, PlacedPod};
pub use pod_index::PodIndex;
pub use progress::{Gain, Progress, Untolerated};
pub use shape::{NamespaceSettings, Shape};
pub use summary::{ImageTotal, NamespaceTotal, ReasonTotal, Summary, WorkloadTotal};

use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

impl<'p> Summary<'p> {
    pub fn of(basis: &Basis, pods: impl IntoIterator<Item = PlacedPod<'p>>) -> Self {
        let mut sums = Sums::default();
        for pod in pods {
            sums.add(basis, pod);
        }
        sums.finish()
    }
}

/// The sums over the Pods that have been added.
#[derive(Default)]
struct Sums<'p> {
    costs: Costs,
    progress: Progress,
    workloads: HashMap<&'p Workload, WorkloadTotal<'p>>,
    images: HashMap<(&'p str, Cause), ImageTotal<'p>>,
    namespaces: HashMap<&'p str, NamespaceTotal>,
    reasons: HashMap<(Coverage, Reason), ReasonTotal<'p>>,
    missed: Vec<(&'p IndexedPod, Vec<&'p str>)>,
    misplaced: Vec<(&'p IndexedPod, PlatformSet, BTreeSet<&'p str>)>,
}

impl<'p> Sums<'p> {
    fn add(&mut self, basis: &Basis, placed: PlacedPod<'p>) {
        let PlacedPod {
            pod,
            node,
            examined,
            ..
        } = placed;
        let workload = &*pod.workload;
        let (coverage, reason) = Coverage::of(examined);
        let missed = placed.missed_pools();
        let misplaced = placed.misplaced_images();
        let costs = placed.costs(&basis.prices);
        self.costs.add(costs);

        let namespace = self.namespaces.entry(&workload.namespace).or_default();
        namespace.costs.add(costs);
        let amount = namespace.amounts.entry(coverage).or_default();
        amount.add(pod.requests);
        let total = self.workloads.entry(workload).or_insert_with(|| {
            namespace.workloads += 1;
            WorkloadTotal::of(coverage, reason)
        });
        if (coverage, reason) < (total.coverage, total.reason) {
            total.coverage = coverage;
            total.reason = reason;
        }
        total.amount.add(pod.requests);
        total.costs.add(costs);
        total.missed += u64::from(!missed.is_empty());
        total.misplaced += u64::from(!misplaced.is_empty());

        let progresses = [
            &mut self.progress,
            &mut namespace.progress,
            &mut total.progress,
        ];
        for progress in progresses {
            progress.add(placed, costs.saved(), basis.installed);
        }
        self.add_blockers(placed, coverage, reason, costs.kept);
        if !missed.is_empty() {
            self.missed.push((pod, missed));
        }
        if let Some(platform) = node
            && !misplaced.is_empty()
        {
            self.misplaced.push((pod, platform, misplaced));
        }
    }

    /// Adds a Pod to the totals of its reason, and of the images that keep it ineligible. The images of a Pod that is not
    /// decided on only count for its node.
    fn add_blockers(
        &mut self,
        placed: PlacedPod<'p>,
        coverage: Coverage,
        reason: Reason,
        kept: Money,
    ) {
        let workload = &*placed.pod.workload;
        let requests = placed.pod.requests;
        let of_reason = self.reasons.entry((coverage, reason)).or_default();
        of_reason.amount.add(requests);
        of_reason.money.add(kept);
        of_reason.workloads.insert(workload);
        if coverage == Coverage::Skipped {
            return;
        }
        let blockers = &placed.examined.blockers;
        for blocker in blockers {
            let image = blocker.image.as_str();
            if blocker.reason() == reason {
                of_reason.images.insert(image);
            }
            if let Some(total) = self.workloads.get_mut(workload) {
                total.images.insert(image);
            }
            let of_image = self.images.entry((image, blocker.cause)).or_default();
            of_image.keeps.add(requests);
            of_image.keeps_money.add(kept);
            of_image.workloads.insert(workload);
            if blockers.len() > 1 {
                continue;
            }
            of_image.alone.add(requests);
            if !placed.is_bound() {
                of_image.brings.add(Gain {
                    money: kept,
                    requests,
                });
            }
        }
    }

    fn finish(mut self) -> Summary<'p> {
        let totals = Coverage::ALL.map(|coverage| self.total(coverage));
        let unknown = self.take_reasons(Coverage::Unknown);
        let skipped = self.take_reasons(Coverage::Skipped);
        let workloads = ranked(self.workloads, |workload, total| {
            (Reverse(total.amount), *workload)
        });
        let images = ranked(self.images, |(image, cause), total| {
            let cause = format!("{cause:?}");
            (Reverse(total.keeps), Reverse(total.alone), *image, cause)
        });
        let namespaces = ranked(self.namespaces, |namespace, total| {
            (Reverse(total.kept()), *namespace)
        });
        let mut missed = self.missed;
        missed.sort_unstable_by_key(|(pod, _)| (&pod.workload, &pod.name));
        let mut misplaced = self.misplaced;
        misplaced.sort_unstable_by_key(|(pod, ..)| (&pod.workload, &pod.name));
        Summary {
            costs: self.costs,
            progress: self.progress,
            totals: totals.into(),
            workloads,
            images,
            namespaces,
            unknown,
            skipped,
            missed,
            misplaced,
        }
    }

    /// Returns the sum of the Pods with this coverage, and the number of workloads.
    fn total(&self, coverage: Coverage) -> (Coverage, Amount, u64) {
        let mut amount = Amount::default();
        for namespace in self.namespaces.values() {
            if let Some(of_namespace) = namespace.amounts.get(&coverage) {
                amount.add(*of_namespace);
            }
        }
        let workloads = self.workloads.values();
        let count = workloads.filter(|total| total.coverage == coverage).count();
        (coverage, amount, count as u64)
    }

    /// Removes the totals of the reasons with this coverage, and returns them.
    fn take_reasons(&mut self, coverage: Coverage) -> Vec<(Reason, ReasonTotal<'p>)> {
        let mut totals = Vec::new();
        for ((_, reason), total) in self.reasons.extract_if(|(other, _), _| *other == coverage) {
            totals.push((reason, total));
        }
        ranked(totals, |reason, total| (Reverse(total.amount), *reason))
    }
}

/// Sorts the totals by a rank. No two totals may have the same rank.
fn ranked<K, T, R: Ord>(
    totals: impl IntoIterator<Item = (K, T)>,
    rank: impl Fn(&K, &T) -> R,
) -> Vec<(K, T)> {
    let mut totals: Vec<(K, T)> = totals.into_iter().collect();
    totals.sort_by_cached_key(|(key, total)| rank(key, total));
    totals
}

#[cfg(test)]
mod tests;
