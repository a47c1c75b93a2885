//! Sums over Pods by what their images support, and nothing else of them: bounded, however many different Pods there are.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::{Amount, Controller, Shape, Support, Workload, created};
use tolerarch_kubernetes::cluster::StoredPod;

/// How much is kept. Those beyond count as other.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Different Pods that are decided on, and bytes of what is kept of them.
    shapes: usize,
    bytes: usize,
    /// Workloads, each with the shapes of its Pods.
    sums: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { shapes: 20_000, bytes: 24 << 20, sums: 50_000 }
    }
}

/// Workloads are known by keyed hashes, which are short and which tenants cannot make the same.
#[derive(Default)]
pub struct Count {
    /// What decisions take; Pods that are alike share one.
    pub shapes: Vec<Arc<Shape>>,
    bounds: Bounds,
    bytes: usize,
    hashes: RandomState,
    known: HashMap<Arc<Shape>, usize>,
    /// By what a Pod is, and by workload.
    sums: HashMap<(Kind, u64), Amount>,
    other: Amount,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// As the shape in this place.
    Like(usize),
    /// It cannot be read within the limits on untrusted input.
    Unreadable,
    /// The webhook is not called for it.
    OutOfScope,
}

/// What the Pods of a cluster add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// By what their images support: what they request, and how many workloads that are, each by the least supported of its Pods.
    pub of: HashMap<Support, (Amount, u64)>,
    /// Those that were not decided on, as there are too many that differ.
    pub other: Amount,
}

impl Count {
    /// Takes in a Pod, unless it has ended. The webhook is called for it where that is `called`, and for this profile.
    pub fn add(&mut self, mut pod: StoredPod, called: bool, profile: Option<&str>) {
        if pod.has_ended() {
            return;
        }
        let namespace: Arc<str> = pod.namespace().into();
        let workload = match pod.controller() {
            // There is no right to list ReplicaSets and Jobs: names tell enough to count workloads.
            Some(owner) => Controller::of(owner, &pod).workload_by_name(&namespace),
            None => Workload::alone(&namespace, pod.name()),
        };
        let amount = Amount::of(&pod);
        let kind = match created(&mut pod) {
            _ if !called => Kind::OutOfScope,
            None => Kind::Unreadable,
            Some(pod) => match self.shape(Shape { namespace, profile: profile.map(Into::into), pod }) {
                Some(place) => Kind::Like(place),
                None => return self.other.add(amount),
            },
        };
        let key = (kind, self.hashes.hash_one(workload));
        match self.sums.len() < self.bounds.sums || self.sums.contains_key(&key) {
            true => self.sums.entry(key).or_default().add(amount),
            false => self.other.add(amount),
        }
    }

    /// Where this shape stands; `None` if there are too many.
    fn shape(&mut self, shape: Shape) -> Option<usize> {
        if let Some(known) = self.known.get(&shape) {
            return Some(*known);
        }
        let bytes = size_of::<Shape>() + shape.pod.held() + shape.namespace.len();
        if self.shapes.len() == self.bounds.shapes || self.bytes + bytes > self.bounds.bytes {
            return None;
        }
        self.bytes += bytes;
        let shape = Arc::new(shape);
        self.known.insert(Arc::clone(&shape), self.shapes.len());
        self.shapes.push(shape);
        Some(self.shapes.len() - 1)
    }

    /// What they add up to, by what the images of each shape support, in the order of the shapes.
    pub fn totals(&self, supports: &[Support]) -> Totals {
        let mut totals = Totals { other: self.other, ..Totals::default() };
        totals.of.extend(Support::ALL.map(|support| (support, Default::default())));
        let mut workloads: HashMap<u64, Support> = HashMap::new();
        for ((kind, workload), amount) in &self.sums {
            let support = match kind {
                Kind::Like(place) => supports.get(*place).copied().unwrap_or(Support::Unknown),
                Kind::Unreadable => Support::Unknown,
                Kind::OutOfScope => Support::Skipped,
            };
            totals.of.entry(support).or_default().0.add(*amount);
            let least = workloads.entry(*workload).or_insert(support);
            *least = support.or_less(*least);
        }
        for support in workloads.into_values() {
            totals.of.entry(support).or_default().1 += 1;
        }
        totals
    }
}

#[cfg(test)]
mod tests;
