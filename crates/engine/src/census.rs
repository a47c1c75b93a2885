//! Counts the Pods that could move to a pool, and the images that block the rest: sums over Pods, whatever their order.
//!
//! The census knows neither lists nor registries: Pods come one by one, each with the [`Judgement`] on its [`Shape`].

mod count;
mod judgement;
mod pod_index;
mod shape;
mod summary;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use count::{Count, Totals};
pub use judgement::{BlockingImage, Judgement};
pub use pod_index::{IndexedPod, PodIndex};
pub use shape::{NamespaceSettings, Shape, Shapes};
pub use summary::{
    Amount, Coverage, ImageTotal, Misplacement, NamespaceTotal, PodOf, ReasonTotal, Summary, Workload,
    WorkloadTotal,
};

use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;

#[derive(Debug, Default)]
pub struct Census {
    workloads: HashMap<Arc<Workload>, WorkloadTotal>,
    images: HashMap<(Arc<str>, Cause), ImageTotal>,
    namespaces: HashMap<Arc<str>, NamespaceTotal>,
    unknown: HashMap<Reason, ReasonTotal>,
    skipped: HashMap<Reason, ReasonTotal>,
    missed: Vec<(PodOf, Vec<Arc<str>>)>,
    misplaced: Vec<Misplacement>,
}

impl Census {
    /// Adds a Pod with the judgement on its shape, and with the platform of its node, if that is known.
    pub fn add(&mut self, pod: &IndexedPod, platform: Option<PlatformSet>, judgement: &Judgement) {
        let IndexedPod { name, workload, requests, node, .. } = pod;
        let Judgement { coverage, reason, blockers, usable, .. } = judgement;
        let (requests, coverage, reason) = (*requests, *coverage, *reason);
        let total = self.workloads.entry(Arc::clone(workload)).or_insert_with(|| {
            let (amount, images) = Default::default();
            WorkloadTotal { coverage, reason, amount, images, missed: 0, misplaced: 0 }
        });
        (total.coverage, total.reason) = (total.coverage, total.reason).min((coverage, reason));
        total.amount.add(requests);
        for BlockingImage { image, cause } in blockers {
            total.images.insert(Arc::clone(image));
            let of_image = self.images.entry((Arc::clone(image), *cause)).or_default();
            of_image.keeps.add(requests);
            if blockers.len() == 1 {
                of_image.alone.add(requests);
            }
            of_image.workloads.insert(Arc::clone(workload));
        }
        let namespace = self.namespaces.entry(Arc::clone(&workload.namespace)).or_default();
        namespace.amounts.entry(coverage).or_default().add(requests);
        let reasons = match coverage {
            Coverage::Unknown => Some(&mut self.unknown),
            Coverage::Skipped => Some(&mut self.skipped),
            Coverage::All | Coverage::Partial => None,
        };
        if let Some(reasons) = reasons {
            let of_reason = reasons.entry(reason).or_default();
            of_reason.amount.add(requests);
            of_reason.workloads.insert(Arc::clone(workload));
            let because = blockers.iter().filter(|own| Reason::from(own.cause) == reason);
            of_reason.images.extend(because.map(|own| Arc::clone(&own.image)));
        }
        let pod = || PodOf { workload: Arc::clone(workload), name: name.to_string() };
        if !usable.is_empty() {
            total.missed += 1;
            self.missed.push((pod(), usable.clone()));
        }
        if let Some((node, platform)) = node.as_ref().zip(platform) {
            let lacking = judgement.nodes.iter().filter(|(_, nodes)| !nodes.contains(platform));
            let images: Vec<Arc<str>> = lacking.map(|(image, _)| Arc::clone(image)).collect();
            if !images.is_empty() {
                total.misplaced += 1;
                self.misplaced.push(Misplacement { pod: pod(), node: Arc::clone(node), platform, images });
            }
        }
    }

    pub fn summary(self) -> Summary {
        let Self { workloads, images, mut namespaces, unknown, skipped, mut missed, mut misplaced } = self;
        let mut totals: BTreeMap<Coverage, (Amount, u64)> = Coverage::each();
        for (workload, total) in &workloads {
            totals.entry(total.coverage).or_default().1 += 1;
            if let Some(namespace) = namespaces.get_mut(&workload.namespace) {
                namespace.workloads += 1;
            }
        }
        for (coverage, amount) in namespaces.values().flat_map(|one| &one.amounts) {
            totals.entry(*coverage).or_default().0.add(*amount);
        }
        let by_reason =
            |totals| ranked(totals, |reason: &Reason, one: &ReasonTotal| (Reverse(one.amount), *reason));
        missed.sort_unstable();
        misplaced.sort_unstable_by(|one, other| one.pod.cmp(&other.pod));
        Summary {
            totals,
            workloads: ranked(workloads, |workload, one| (Reverse(one.amount), Arc::clone(workload))),
            images: ranked(images, |(image, cause), one| {
                (Reverse(one.keeps), Reverse(one.alone), Arc::clone(image), format!("{cause:?}"))
            }),
            namespaces: ranked(namespaces, |namespace, one| (Reverse(one.kept()), Arc::clone(namespace))),
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
