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

use crate::decide::Examined;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

impl<'p> Summary<'p> {
    /// Adds up Pods, each with the platform of its node, if that is known, and with the decision on its shape.
    pub fn of(
        pods: impl IntoIterator<Item = (&'p IndexedPod, Option<PlatformSet>, &'p Examined)>,
    ) -> Self {
        let mut workloads: HashMap<&Workload, WorkloadTotal<'_>> = HashMap::new();
        let mut images: HashMap<(&str, Cause), ImageTotal<'_>> = HashMap::new();
        let mut namespaces: HashMap<&str, NamespaceTotal> = HashMap::new();
        let mut reasons: HashMap<(Coverage, Reason), ReasonTotal<'_>> = HashMap::new();
        let (mut missed, mut misplaced) = (Vec::new(), Vec::new());
        for (pod, platform, examined) in pods {
            let (workload, requests) = (&*pod.workload, pod.requests);
            let (coverage, reason) = Coverage::of(examined);
            // Of Pods that are not decided on, the images count for their nodes only.
            let is_decided = coverage != Coverage::Skipped;
            let blockers = examined.blockers.iter().filter(|_| is_decided);
            let namespace = namespaces.entry(&workload.namespace).or_default();
            let total = workloads.entry(workload).or_insert_with(|| {
                namespace.workloads += 1;
                let (amount, images) = Default::default();
                WorkloadTotal {
                    coverage,
                    reason,
                    amount,
                    images,
                    missed: 0,
                    misplaced: 0,
                }
            });
            (total.coverage, total.reason) = (total.coverage, total.reason).min((coverage, reason));
            total.amount.add(requests);
            for (image, cause) in blockers.clone() {
                total.images.insert(image);
                let of_image = images.entry((image, *cause)).or_default();
                of_image.keeps.add(requests);
                if examined.blockers.len() == 1 {
                    of_image.alone.add(requests);
                }
                of_image.workloads.insert(workload);
            }
            namespace.amounts.entry(coverage).or_default().add(requests);
            let of_reason = reasons.entry((coverage, reason)).or_default();
            of_reason.amount.add(requests);
            of_reason.workloads.insert(workload);
            let because = blockers.filter(|(_, cause)| Reason::from(*cause) == reason);
            of_reason
                .images
                .extend(because.map(|(image, _)| image.as_str()));
            // A decision that is only observed counts, too: the Pod could use the pool.
            let would_open =
                is_decided && matches!(examined.reason, Reason::Tolerated | Reason::Observed);
            let usable = examined
                .pools
                .iter()
                .filter(|pool| would_open && pool.is_open && !pool.is_tolerated);
            let usable: Vec<&str> = usable.map(|pool| pool.name.as_str()).collect();
            if !usable.is_empty() {
                total.missed += 1;
                missed.push((pod, usable));
            }
            if let Some(platform) = platform {
                let suits = |nodes: PlatformSet| nodes.contains(platform);
                let lacking = examined
                    .images
                    .iter()
                    .filter(|image| !image.platforms.is_none_or(suits));
                let images: BTreeSet<&str> = lacking.map(|image| image.image.as_str()).collect();
                if !images.is_empty() {
                    total.misplaced += 1;
                    misplaced.push((pod, platform, images));
                }
            }
        }
        let total = |coverage| {
            let amounts = namespaces
                .values()
                .filter_map(|one| one.amounts.get(&coverage));
            let of_coverage = workloads.values().filter(|one| one.coverage == coverage);
            (coverage, amounts.sum(), of_coverage.count() as u64)
        };
        let totals = Coverage::ALL.map(total).into();
        let kept = |one: &NamespaceTotal| -> Amount {
            [Coverage::Partial, Coverage::Unknown]
                .iter()
                .filter_map(|kept| one.amounts.get(kept))
                .sum()
        };
        let mut by_reason = |coverage| {
            let own = reasons
                .extract_if(|(of, _), _| *of == coverage)
                .map(|((_, reason), one)| (reason, one));
            ranked(own, |reason, one: &ReasonTotal<'_>| {
                (Reverse(one.amount), *reason)
            })
        };
        missed.sort_unstable_by_key(|(pod, _)| (&pod.workload, &pod.name));
        misplaced.sort_unstable_by_key(|(pod, ..)| (&pod.workload, &pod.name));
        Self {
            totals,
            workloads: ranked(workloads, |workload, one| (Reverse(one.amount), *workload)),
            images: ranked(images, |(image, cause), one| {
                (
                    Reverse(one.keeps),
                    Reverse(one.alone),
                    *image,
                    format!("{cause:?}"),
                )
            }),
            namespaces: ranked(namespaces, |namespace, one| {
                (Reverse(kept(one)), *namespace)
            }),
            unknown: by_reason(Coverage::Unknown),
            skipped: by_reason(Coverage::Skipped),
            missed,
            misplaced,
        }
    }
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
