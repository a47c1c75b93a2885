//! Requests of Pods, and their sums.

use std::iter::Sum;

use tolerarch_kubernetes::cluster::{Requests, StoredPod};

/// The requests of Pods. Requests are untrusted input, so sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    /// CPU in thousandths of a core.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
    pub pods: u64,
}

impl Amount {
    pub(super) fn of(pod: &StoredPod) -> Self {
        Self {
            pods: 1,
            ..Self::of_machine(pod.requests)
        }
    }

    /// Returns the capacity of a machine, as an amount without Pods.
    pub fn of_machine(capacity: Requests) -> Self {
        Self {
            cpu_millis: capacity.cpu.millis(),
            memory_bytes: capacity.memory.units(),
            pods: 0,
        }
    }

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

impl<'a> Sum<&'a Self> for Amount {
    fn sum<I: Iterator<Item = &'a Self>>(amounts: I) -> Self {
        let mut sum = Self::default();
        for amount in amounts {
            sum.add(*amount);
        }
        sum
    }
}
