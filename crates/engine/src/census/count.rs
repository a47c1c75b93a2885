//! Sums over Pods, only by the coverage of their images. The memory is bounded for any number of different Pods.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use indexmap::IndexSet;

use super::amount::Amount;
use super::coverage::Coverage;
use super::pod_index::by_name;
use super::shape::Shape;

use tolerarch_core::pod::Retain;
use tolerarch_kubernetes::cluster::{StoredPod, WebhookCall};

/// Maximum number of different Pods that are decided on. Further Pods count as other.
const SHAPES: usize = 20_000;
/// Maximum bytes of these Pods.
const BYTES: usize = 24 << 20;
/// Maximum number of workloads, each counted once for each shape of its Pods. Further workloads count as other as well.
const SUMS: usize = 50_000;

/// A count of Pods. Workloads are keyed hashes, which are short, and for which tenants cannot cause collisions.
#[derive(Default)]
pub struct Count {
    pub shapes: IndexSet<Shape>,
    /// Bytes that the shapes take.
    bytes: usize,
    hashes: RandomState,
    sums: HashMap<(Subject, u64), Amount>,
    other: Amount,
}

/// The Pods of a sum, together with their workload's hash.
#[derive(PartialEq, Eq, Hash)]
enum Subject {
    /// The Pods with the shape at this index, whose coverage is determined later.
    Shape(usize),
    /// Pods whose coverage does not depend on their images.
    Covered(Coverage),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests of the Pods, and number of workloads, by the coverage of their images.
    pub of: BTreeMap<Coverage, (Amount, u64)>,
    /// Pods that were not decided on, as there are too many different ones.
    pub other: Amount,
}

impl Count {
    /// Adds a Pod, unless it has ended. `called` tells whether the webhook is called for the Pod, and for which profile.
    pub fn add(&mut self, mut pod: StoredPod, called: WebhookCall<'_>) {
        if pod.has_ended() {
            return;
        }
        // The names of ReplicaSets and Jobs are enough to count workloads; there is no right to list them.
        let workload = self.hashes.hash_one((pod.namespace(), by_name(&pod)));
        let amount = Amount::of(&pod);
        let namespace = pod.namespace().into();
        let profile = match called {
            WebhookCall::For(profile) => profile,
            WebhookCall::No | WebhookCall::Unknown => None,
        };
        let shape = Shape::of(&mut pod, &namespace, profile);
        let subject = match shape {
            _ if called == WebhookCall::No => Subject::Covered(Coverage::Skipped),
            None => Subject::Covered(Coverage::Unknown),
            Some(shape) => match self.index_of(shape) {
                Some(index) => Subject::Shape(index),
                None => return self.other.add(amount),
            },
        };
        let key = (subject, workload);
        if self.sums.len() < SUMS || self.sums.contains_key(&key) {
            self.sums.entry(key).or_default().add(amount);
        } else {
            self.other.add(amount);
        }
    }

    /// Returns the index of a shape, which is added if it is new; `None` if there is no room for it.
    fn index_of(&mut self, shape: Shape) -> Option<usize> {
        if let Some(index) = self.shapes.get_index_of(&shape) {
            return Some(index);
        }
        let bytes =
            self.bytes + size_of::<Shape>() + shape.pod.held_bytes() + shape.namespace.len();
        if self.shapes.len() == SHAPES || bytes > BYTES {
            return None;
        }
        self.bytes = bytes;
        let (index, _) = self.shapes.insert_full(shape);
        Some(index)
    }

    /// Returns the totals. `coverages` has the coverage of each shape's images, in the order of the shapes.
    pub fn totals(&self, coverages: &[Coverage]) -> Totals {
        let mut totals = Totals {
            of: BTreeMap::new(),
            other: self.other,
        };
        for coverage in Coverage::ALL {
            totals.of.insert(coverage, (Amount::default(), 0));
        }
        let mut workloads: HashMap<u64, Coverage> = HashMap::new();
        for ((subject, workload), amount) in &self.sums {
            let coverage = match subject {
                Subject::Shape(index) => *coverages.get(*index).unwrap_or(&Coverage::Unknown),
                Subject::Covered(coverage) => *coverage,
            };
            let (sum, _) = totals.of.entry(coverage).or_default();
            sum.add(*amount);
            let least = workloads.entry(*workload).or_insert(coverage);
            *least = coverage.min(*least);
        }
        for coverage in workloads.into_values() {
            let (_, count) = totals.of.entry(coverage).or_default();
            *count += 1;
        }
        totals
    }
}

#[cfg(test)]
mod tests;
