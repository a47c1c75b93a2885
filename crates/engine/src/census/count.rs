//! Sums over Pods by the coverage of their images alone: bounded, however many different Pods there are.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use indexmap::IndexSet;

use super::amount::Amount;
use super::coverage::Coverage;
use super::pod_index::by_name;
use super::shape::Shape;

use tolerarch_core::pod::Kept;
use tolerarch_kubernetes::cluster::{Called, StoredPod};

/// Maximum number of different Pods that are decided on, and of bytes that they take. Pods beyond count as other.
const SHAPES: usize = 20_000;
const BYTES: usize = 24 << 20;
/// Maximum number of workloads, once for each shape of their Pods. Workloads beyond count as other, too.
const SUMS: usize = 50_000;

/// Counts Pods, with workloads as keyed hashes, which are short and for which tenants cannot make collisions.
#[derive(Default)]
pub struct Count {
    pub shapes: IndexSet<Shape>,
    /// Bytes that the shapes take.
    bytes: usize,
    hashes: RandomState,
    /// Sums by the place of the shape, whose coverage is known later, or by the coverage of Pods without; by workload.
    sums: HashMap<(Result<usize, Coverage>, u64), Amount>,
    other: Amount,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests of the Pods, and number of workloads, by the coverage of their images.
    pub of: BTreeMap<Coverage, (Amount, u64)>,
    /// Pods that were not decided on, as too many are different.
    pub other: Amount,
}

impl Count {
    /// Adds a Pod, unless it has ended. `called` says whether the webhook is called for it, and for which profile.
    pub fn add(&mut self, mut pod: StoredPod, called: Called<'_>) {
        if pod.has_ended() {
            return;
        }
        // There is no right to list ReplicaSets and Jobs: their names suffice to count workloads.
        let workload = self.hashes.hash_one((pod.namespace(), by_name(&pod)));
        let amount = Amount::of(&pod);
        let namespace = pod.namespace().into();
        let profile = match called {
            Called::For(profile) => profile,
            Called::No | Called::Unknown => None,
        };
        let shape = Shape::of(&mut pod, &namespace, profile);
        let judged = match shape {
            _ if called == Called::No => Err(Coverage::Skipped),
            None => Err(Coverage::Unknown),
            Some(shape) => match self.place(shape) {
                Some(place) => Ok(place),
                None => return self.other.add(amount),
            },
        };
        let key = (judged, workload);
        if self.sums.len() < SUMS || self.sums.contains_key(&key) {
            self.sums.entry(key).or_default().add(amount);
        } else {
            self.other.add(amount);
        }
    }

    /// Returns the place of a shape; `None` if there is no room for one more.
    fn place(&mut self, shape: Shape) -> Option<usize> {
        if let Some(place) = self.shapes.get_index_of(&shape) {
            return Some(place);
        }
        let bytes = self.bytes + size_of::<Shape>() + shape.pod.held() + shape.namespace.len();
        if self.shapes.len() == SHAPES || bytes > BYTES {
            return None;
        }
        self.bytes = bytes;
        Some(self.shapes.insert_full(shape).0)
    }

    /// Returns the sums by the coverage of each shape's images, in the order of the shapes.
    pub fn totals(&self, coverages: &[Coverage]) -> Totals {
        let mut of =
            BTreeMap::from(Coverage::ALL.map(|coverage| (coverage, (Amount::default(), 0))));
        let mut workloads: HashMap<u64, Coverage> = HashMap::new();
        for ((judged, workload), amount) in &self.sums {
            let coverage = match judged {
                Ok(place) => coverages.get(*place).copied().unwrap_or(Coverage::Unknown),
                Err(coverage) => *coverage,
            };
            of.entry(coverage).or_default().0.add(*amount);
            let least = workloads.entry(*workload).or_insert(coverage);
            *least = coverage.min(*least);
        }
        for coverage in workloads.into_values() {
            of.entry(coverage).or_default().1 += 1;
        }
        Totals {
            of,
            other: self.other,
        }
    }
}

#[cfg(test)]
mod tests;
