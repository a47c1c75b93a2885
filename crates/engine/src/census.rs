//! Counts the Pods that could move to a pool, and the images that block the rest: sums over Pods, whatever their order.
//!
//! The census knows neither lists nor registries: each Pod comes with what was [`Examined`] of its [`Shape`].

mod count;
mod pod_index;
mod shape;
mod summary;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

pub use count::{Count, Totals};
pub use pod_index::PodIndex;
pub use shape::{NamespaceSettings, Shape};
pub use summary::{
    Amount, Coverage, ImageTotal, IndexedPod, NamespaceTotal, ReasonTotal, Summary, Workload,
    WorkloadTotal,
};

use crate::decide::{BlockingImage, Examined};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

impl<'p> Summary<'p> {
    /// Adds up Pods, each with the platform of its node, if that is known, and with the decision on its shape.
    pub fn of(
        pods: impl IntoIterator<Item = (&'p IndexedPod, Option<PlatformSet>, &'p Examined)>,
    ) -> Self {
        let mut sums = Sums::default();
        for (pod, platform, examined) in pods {
            sums.add(pod, platform, examined);
        }
        sums.finish()
    }
}

/// Sums over the Pods so far.
#[derive(Default)]
struct Sums<'p> {
    workloads: HashMap<&'p Workload, WorkloadTotal<'p>>,
    images: HashMap<(&'p str, Cause), ImageTotal<'p>>,
    namespaces: HashMap<&'p str, NamespaceTotal>,
    reasons: HashMap<(Coverage, Reason), ReasonTotal<'p>>,
    missed: Vec<(&'p IndexedPod, Vec<&'p str>)>,
    misplaced: Vec<(&'p IndexedPod, PlatformSet, BTreeSet<&'p str>)>,
}

impl<'p> Sums<'p> {
    fn add(&mut self, pod: &'p IndexedPod, platform: Option<PlatformSet>, examined: &'p Examined) {
        let workload = &*pod.workload;
        let (coverage, reason) = Coverage::of(examined);
        // Of Pods that are not decided on, the images count for their nodes only.
        let is_decided = coverage != Coverage::Skipped;
        let blockers: &[BlockingImage] = if is_decided { &examined.blockers } else { &[] };
        // A decision that is only observed counts, too: the Pod could use the pool.
        let would_open =
            is_decided && matches!(examined.reason, Reason::Tolerated | Reason::Observed);
        let missed = if would_open {
            missed_pools(examined)
        } else {
            Vec::new()
        };
        let misplaced = match platform {
            Some(platform) => misplaced_images(examined, platform),
            None => BTreeSet::new(),
        };

        let namespace = self.namespaces.entry(&workload.namespace).or_default();
        namespace
            .amounts
            .entry(coverage)
            .or_default()
            .add(pod.requests);

        let total = self.workloads.entry(workload).or_insert_with(|| {
            namespace.workloads += 1;
            WorkloadTotal::of(coverage, reason)
        });
        (total.coverage, total.reason) = (total.coverage, total.reason).min((coverage, reason));
        total.amount.add(pod.requests);
        for blocker in blockers {
            total.images.insert(&blocker.image);
        }
        total.missed += u64::from(!missed.is_empty());
        total.misplaced += u64::from(!misplaced.is_empty());

        let of_reason = self.reasons.entry((coverage, reason)).or_default();
        of_reason.amount.add(pod.requests);
        of_reason.workloads.insert(workload);
        for blocker in blockers {
            let image = blocker.image.as_str();
            if blocker.reason() == reason {
                of_reason.images.insert(image);
            }
            let of_image = self.images.entry((image, blocker.cause)).or_default();
            of_image.keeps.add(pod.requests);
            of_image.workloads.insert(workload);
            if blockers.len() == 1 {
                of_image.alone.add(pod.requests);
            }
        }

        if !missed.is_empty() {
            self.missed.push((pod, missed));
        }
        if let Some(platform) = platform
            && !misplaced.is_empty()
        {
            self.misplaced.push((pod, platform, misplaced));
        }
    }

    fn finish(mut self) -> Summary<'p> {
        let totals = Coverage::ALL.map(|coverage| self.total(coverage));
        let unknown = self.of_coverage(Coverage::Unknown);
        let skipped = self.of_coverage(Coverage::Skipped);
        self.missed
            .sort_unstable_by_key(|(pod, _)| (&pod.workload, &pod.name));
        self.misplaced
            .sort_unstable_by_key(|(pod, ..)| (&pod.workload, &pod.name));
        Summary {
            totals: totals.into(),
            workloads: ranked(self.workloads, |workload, total| {
                (Reverse(total.amount), *workload)
            }),
            images: ranked(self.images, |(image, cause), total| {
                let cause = format!("{cause:?}");
                (Reverse(total.keeps), Reverse(total.alone), *image, cause)
            }),
            namespaces: ranked(self.namespaces, |namespace, total| {
                (Reverse(total.kept()), *namespace)
            }),
            unknown,
            skipped,
            missed: self.missed,
            misplaced: self.misplaced,
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

    /// Takes the totals of the reasons with this coverage out.
    fn of_coverage(&mut self, coverage: Coverage) -> Vec<(Reason, ReasonTotal<'p>)> {
        let mut totals = Vec::new();
        for ((_, reason), total) in self.reasons.extract_if(|(of, _), _| *of == coverage) {
            totals.push((reason, total));
        }
        ranked(totals, |reason, total| (Reverse(total.amount), *reason))
    }
}

/// Returns the pools that the Pod could use, and does not tolerate.
fn missed_pools(examined: &Examined) -> Vec<&str> {
    let mut missed = Vec::new();
    for pool in &examined.pools {
        if pool.is_open && !pool.is_tolerated {
            missed.push(pool.name.as_str());
        }
    }
    missed
}

/// Returns the images that certainly do not run on nodes of this platform.
fn misplaced_images(examined: &Examined, platform: PlatformSet) -> BTreeSet<&str> {
    let mut misplaced = BTreeSet::new();
    for state in &examined.images {
        if let Some(platforms) = state.platforms
            && !platforms.contains(platform)
        {
            misplaced.insert(state.image.as_str());
        }
    }
    misplaced
}

/// Sorts the totals by a rank that no two of them share.
fn ranked<K, T, R: Ord>(
    totals: impl IntoIterator<Item = (K, T)>,
    rank: impl Fn(&K, &T) -> R,
) -> Vec<(K, T)> {
    let mut totals: Vec<(K, T)> = totals.into_iter().collect();
    totals.sort_by_cached_key(|(of, total)| rank(of, total));
    totals
}

#[cfg(test)]
mod tests;
