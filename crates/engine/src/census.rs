//! What of a cluster could run on every platform of a pool, and what keeps the rest from it: sums over Pods. Pure; the order
//! of the Pods does not matter.
//!
//! It knows neither lists nor registries: Pods come one by one, each with its [`Judgement`], which Pods that are alike share.

mod count;
mod judgement;
mod owner;
mod pod_index;
mod summary;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use count::{Count, Totals};
pub use judgement::{BlockingImage, Judgement, Support};
pub use owner::Controller;
pub use pod_index::{IndexedPod, NamespaceSettings, PodIndex, Shape};
pub use summary::{ImageTotal, Misplacement, NamespaceTotal, ReasonTotal, Summary, WorkloadTotal};

use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Cause;
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::StoredPod;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    /// CPU, in thousandths of a core.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub pods: u64,
}

impl Amount {
    fn of(pod: &StoredPod) -> Self {
        let requests = pod.requests;
        Self { cpu_millis: requests.cpu.millis(), memory_bytes: requests.memory.units(), pods: 1 }
    }

    /// Adds another. Requests are untrusted input, so a sum ends at the largest number.
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

/// What Pods are of, by the name that people know: of a ReplicaSet's Pods, the Deployment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    pub namespace: Arc<str>,
    /// The kind of its top owner; `Pod` for a Pod without one.
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Workload {
    /// A Pod without an owner.
    fn alone(namespace: &Arc<str>, pod: &str) -> Self {
        Self { namespace: Arc::clone(namespace), kind: "Pod".into(), name: pod.into() }
    }

    /// `Deployment/web`
    pub fn label(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

/// What a decision took of a stored Pod when it was created.
fn created(pod: &mut StoredPod) -> Option<Pod<'static>> {
    pod.facts.take().and_then(Arc::into_inner).map(Pod::as_created)
}

#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub name: &'a str,
    pub workload: &'a Arc<Workload>,
    /// What it requests; one Pod.
    pub requests: Amount,
    pub node: Option<Node<'a>>,
    pub judgement: &'a Judgement,
}

#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub name: &'a str,
    /// Its platform; `None` where that is not known.
    pub platform: Option<PlatformSet>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodOf {
    pub workload: Arc<Workload>,
    pub name: String,
}

/// Sums over the Pods that were added.
#[derive(Debug, Default)]
pub struct Census {
    workloads: BTreeMap<Arc<Workload>, Tally>,
    images: HashMap<(Arc<str>, Cause), ImageTally>,
    reasons: BTreeMap<(Support, Reason), ReasonTally>,
    missed: Vec<(PodOf, Vec<Arc<str>>)>,
    misplaced: Vec<Misplacement>,
}

#[derive(Debug, Default)]
struct Tally {
    amounts: BTreeMap<Support, Amount>,
    /// Why, by what the images mean; the first in the list of reasons.
    reasons: BTreeMap<Support, BTreeSet<Reason>>,
    blockers: BTreeSet<Arc<str>>,
    missed: u64,
    misplaced: u64,
}

#[derive(Debug, Default)]
struct ImageTally {
    keeps: Amount,
    alone: Amount,
    workloads: BTreeSet<Arc<Workload>>,
}

#[derive(Debug, Default)]
struct ReasonTally {
    amount: Amount,
    images: BTreeSet<Arc<str>>,
    workloads: BTreeSet<Arc<Workload>>,
}

impl Census {
    pub fn add(&mut self, member: Member<'_>) {
        let Member { name, workload, requests, node, judgement } = member;
        let support = judgement.support;
        let reason = judgement.reason;
        let tally = self.workloads.entry(Arc::clone(workload)).or_default();
        tally.amounts.entry(support).or_default().add(requests);
        tally.reasons.entry(support).or_default().insert(reason);
        if support != Support::Skipped {
            for BlockingImage { image, cause } in &judgement.blockers {
                tally.blockers.insert(Arc::clone(image));
                let of_image = self.images.entry((Arc::clone(image), *cause)).or_default();
                of_image.keeps.add(requests);
                if judgement.blockers.len() == 1 {
                    of_image.alone.add(requests);
                }
                of_image.workloads.insert(Arc::clone(workload));
            }
        }
        let by_reason = self.reasons.entry((support, reason)).or_default();
        by_reason.amount.add(requests);
        by_reason.workloads.insert(Arc::clone(workload));
        if support == Support::Unknown {
            let because = judgement.blockers.iter().filter(|own| Reason::from(own.cause) == reason);
            by_reason.images.extend(because.map(|own| Arc::clone(&own.image)));
        }
        let pod = || PodOf { workload: Arc::clone(workload), name: name.to_owned() };
        if !judgement.usable.is_empty() {
            tally.missed += 1;
            self.missed.push((pod(), judgement.usable.clone()));
        }
        if let Some(Node { name: node, platform: Some(platform) }) = node {
            let wrong = judgement.images_without(platform);
            if !wrong.is_empty() {
                tally.misplaced += 1;
                let (node, images) = (node.to_owned(), wrong);
                self.misplaced.push(Misplacement { pod: pod(), node, platform, images });
            }
        }
    }
}

#[cfg(test)]
mod tests;
