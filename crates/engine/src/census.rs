//! Counts the Pods that could move to a pool, and the images that block the rest: sums over Pods, whatever their order.
//!
//! The census knows neither lists nor registries: each Pod comes with the [`Judgement`] on its [`Shape`].

mod count;
mod judgement;
mod pod_index;
mod shape;
mod summary;

use std::cmp::Reverse;
use std::collections::HashMap;

pub use count::{Count, Totals};
pub use judgement::Judgement;
pub use pod_index::PodIndex;
pub use shape::{NamespaceSettings, Shape, Shapes};
pub use summary::{
    Amount, Coverage, ImageTotal, IndexedPod, Misplacement, NamespaceTotal, ReasonTotal, Summary, Workload,
    WorkloadTotal,
};

use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

impl<'p> Summary<'p> {
    /// Adds up Pods, each with the platform of its node, if that is known, and with the judgement on its shape.
    pub fn of(pods: impl IntoIterator<Item = (&'p IndexedPod, Option<PlatformSet>, &'p Judgement)>) -> Self {
        let mut workloads: HashMap<&Workload, WorkloadTotal<'_>> = HashMap::new();
        let mut images: HashMap<(&str, Cause), ImageTotal<'_>> = HashMap::new();
        let mut namespaces: HashMap<&str, NamespaceTotal> = HashMap::new();
        let [mut unknown, mut skipped]: [HashMap<Reason, ReasonTotal<'_>>; 2] = Default::default();
        let (mut missed, mut misplaced) = (Vec::new(), Vec::new());
        for (pod, platform, judgement) in pods {
            let (workload, requests) = (&*pod.workload, pod.requests);
            let &Judgement { coverage, reason, ref blockers, ref nodes, ref usable } = judgement;
            let total = workloads.entry(workload).or_insert_with(|| {
                let (amount, images) = Default::default();
                WorkloadTotal { coverage, reason, amount, images, missed: 0, misplaced: 0 }
            });
            (total.coverage, total.reason) = (total.coverage, total.reason).min((coverage, reason));
            total.amount.add(requests);
            for (image, cause) in blockers {
                total.images.insert(image);
                let of_image = images.entry((image, *cause)).or_default();
                of_image.keeps.add(requests);
                if blockers.len() == 1 {
                    of_image.alone.add(requests);
                }
                of_image.workloads.insert(workload);
            }
            let namespace = namespaces.entry(&workload.namespace).or_default();
            namespace.amounts.entry(coverage).or_default().add(requests);
            let reasons = match coverage {
                Coverage::Unknown => Some(&mut unknown),
                Coverage::Skipped => Some(&mut skipped),
                Coverage::All | Coverage::Partial => None,
            };
            if let Some(reasons) = reasons {
                let of_reason = reasons.entry(reason).or_default();
                of_reason.amount.add(requests);
                of_reason.workloads.insert(workload);
                let because = blockers.iter().filter(|(_, cause)| Reason::from(*cause) == reason);
                of_reason.images.extend(because.map(|(image, _)| image.as_str()));
            }
            if !usable.is_empty() {
                total.missed += 1;
                missed.push((pod, usable.as_slice()));
            }
            if let Some(platform) = platform {
                let lacking = nodes.iter().filter(|(_, nodes)| !nodes.contains(platform));
                let images: Vec<&str> = lacking.map(|(image, _)| image.as_str()).collect();
                if !images.is_empty() {
                    total.misplaced += 1;
                    misplaced.push(Misplacement { pod, platform, images });
                }
            }
        }
        for workload in workloads.keys() {
            if let Some(namespace) = namespaces.get_mut(&*workload.namespace) {
                namespace.workloads += 1;
            }
        }
        let total = |coverage| {
            let amounts = namespaces.values().filter_map(|one| one.amounts.get(&coverage));
            let of_coverage = workloads.values().filter(|one| one.coverage == coverage);
            (coverage, amounts.sum(), of_coverage.count() as u64)
        };
        let totals = Coverage::ALL.map(total).into();
        let by_reason =
            |totals| ranked(totals, |reason, one: &ReasonTotal<'_>| (Reverse(one.amount), *reason));
        missed.sort_unstable_by_key(|&(pod, pools)| (&pod.workload, &pod.name, pools));
        misplaced.sort_unstable_by_key(|one| (&one.pod.workload, &one.pod.name));
        Self {
            totals,
            workloads: ranked(workloads, |workload, one| (Reverse(one.amount), *workload)),
            images: ranked(images, |(image, cause), one| {
                (Reverse(one.keeps), Reverse(one.alone), *image, format!("{cause:?}"))
            }),
            namespaces: ranked(namespaces, |namespace, one| (Reverse(one.kept()), *namespace)),
            unknown: by_reason(unknown),
            skipped: by_reason(skipped),
            missed,
            misplaced,
        }
    }
}

/// Sorts the totals by a rank that no two of them share.
fn ranked<K, T, R: Ord>(totals: HashMap<K, T>, rank: impl Fn(&K, &T) -> R) -> Vec<(K, T)> {
    let mut totals: Vec<(K, T)> = totals.into_iter().collect();
    totals.sort_by_cached_key(|(of, total)| rank(of, total));
    totals
}

#[cfg(test)]
mod tests;
