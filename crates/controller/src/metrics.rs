//! Metrics of the controller.

use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::note::EVENTS;
use tolerarch_engine::census::{Amount, Totals};
use tolerarch_kubernetes::cluster::ClusterError;
use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, OTHER, Registered};

/// Result if another controller keeps undoing the changes of a node.
pub(super) const CONTESTED: &str = "contested";
/// Result if a node has another owner's taint of the same key and effect, with another value.
pub(super) const IN_THE_WAY: &str = "in-the-way";

families! {
    pub struct ControllerMetrics {
        /// Whether this replica of the controller leads.
        pub(super) leads: IntGauge = "tolerarch_controller_is_leader",
        /// Tries to open pools to Pods without a node, by what came of them.
        pub(super) repairs: IntCounterVec["result"] = "tolerarch_controller_repairs_total",
        /// Tries to evict Pods whose image has failed on the architecture of their node, by what came of them.
        pub(super) evictions: IntCounterVec["result"] = "tolerarch_controller_evictions_total",
        /// Containers that could not be started as a program of their node is for another architecture.
        pub(super) node_program_failures: IntCounter = "tolerarch_controller_node_program_failures_total",
        /// Events that were written on Pods, nodes and owners, by their reason.
        pub(super) events: IntCounterVec["reason"] = "tolerarch_controller_events_total",
        /// Events that were not written, as too many were waiting.
        pub(super) dropped: IntCounter = "tolerarch_controller_events_dropped_total",
        /// Tries to change the taints of nodes, by what came of them; and nodes where others want them otherwise.
        pub(super) node_taints: IntCounterVec["result"] = "tolerarch_controller_node_taints_total",
        /// CPU that the cluster's Pods request, by what their images support.
        cpu: GaugeVec["support"] = "tolerarch_cluster_requested_cpu_cores",
        /// Memory that the cluster's Pods request, by what their images support.
        memory: IntGaugeVec["support"] = "tolerarch_cluster_requested_memory_bytes",
        /// Workloads of the cluster, by what the images of their Pods support.
        workloads: IntGaugeVec["support"] = "tolerarch_cluster_workloads",
        /// Namespaces with a label tolerarch.io/mode or tolerarch.io/profile whose value makes no difference.
        ignored: IntGaugeVec["label"] = "tolerarch_cluster_ignored_labels",
    }
}

impl ControllerMetrics {
    pub fn register(metrics: &Metrics) -> Registered<Self> {
        let families = Self::families(metrics)?;
        // Creates the series, so that each is exported as 0 before its first count.
        for result in ["gone", "refused", "forbidden", "failed"] {
            families.repairs.with_label_values(&[result]);
            families.evictions.with_label_values(&[result]);
            families.node_taints.with_label_values(&[result]);
        }
        families.repairs.with_label_values(&["repaired"]);
        families.evictions.with_label_values(&["evicted"]);
        for result in ["changed", "conflict", CONTESTED, IN_THE_WAY] {
            families.node_taints.with_label_values(&[result]);
        }
        for event in EVENTS {
            families.events.with_label_values(&[event.reason]);
        }
        Ok(families)
    }

    /// Exports a census, and the number of namespaces in which each of these labels is ignored.
    pub fn show_census(&self, totals: &Totals, ignored: [(&str, i64); 2]) {
        for (label, namespaces) in ignored {
            self.ignored.with_label_values(&[label]).set(namespaces);
        }
        for (coverage, (amount, workloads)) in &totals.of {
            let support = coverage.as_str();
            self.show_amount(support, amount);
            let gauge = self.workloads.with_label_values(&[support]);
            gauge.set(saturated(*workloads));
        }
        self.show_amount(OTHER, &totals.other);
    }

    fn show_amount(&self, support: &str, amount: &Amount) {
        let cpu = self.cpu.with_label_values(&[support]);
        cpu.set(amount.cpu_cores());
        let memory = self.memory.with_label_values(&[support]);
        memory.set(saturated(amount.memory_bytes));
    }

    pub(super) fn clear_census(&self) {
        self.cpu.reset();
        for gauge in [&self.memory, &self.workloads, &self.ignored] {
            gauge.reset();
        }
    }
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Counts an attempt, and returns its result as a label value: `success` or `conflict` stand for these two results.
pub(super) fn count(
    attempts: &IntCounterVec,
    written: Result<(), ClusterError>,
    [success, conflict]: [&'static str; 2],
) -> &'static str {
    let result = match written {
        Ok(()) => success,
        Err(ClusterError::Conflict) => conflict,
        Err(ClusterError::NotFound) => "gone",
        Err(ClusterError::Invalid) => "refused",
        Err(ClusterError::Forbidden | ClusterError::Unauthorized) => "forbidden",
        Err(_) => "failed",
    };
    attempts.with_label_values(&[result]).inc();
    result
}
