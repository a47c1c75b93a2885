//! Metrics of the controller.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::loops::word;
use super::note::EVENTS;
use tolerarch_kubernetes::cluster::ClusterError;
use tolerarch_support::metrics::Metrics;

/// Result if another controller keeps undoing the changes of a node.
pub(super) const CONTESTED: &str = "contested";
/// Result if a node has another owner's taint of the same key and effect, with another value.
pub(super) const IN_THE_WAY: &str = "in-the-way";

#[derive(Clone)]
pub struct ControllerMetrics {
    pub(super) leads: IntGauge,
    repairs: IntCounterVec,
    evictions: IntCounterVec,
    pub(super) events: IntCounterVec,
    /// Events dropped because the queue was full.
    pub(super) dropped: IntCounter,
    node_taints: IntCounterVec,
}

impl ControllerMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let leads = metrics
            .gauge("tolerarch_controller_is_leader", "Whether this replica of the controller leads.")?;
        let repairs = metrics.counters(
            "tolerarch_controller_repairs_total",
            "Tries to open pools to Pods without a node, by what came of them.",
            &["result"],
        )?;
        let evictions = metrics.counters(
            "tolerarch_controller_evictions_total",
            "Tries to evict Pods whose image has failed on the architecture of their node, by what came of them.",
            &["result"],
        )?;
        let events = metrics.counters(
            "tolerarch_controller_events_total",
            "Events that were written on Pods, by their reason.",
            &["reason"],
        )?;
        let dropped = metrics.counter(
            "tolerarch_controller_events_dropped_total",
            "Events that were not written, as too many were waiting.",
        )?;
        let node_taints = metrics.counters(
            "tolerarch_controller_node_taints_total",
            "Tries to change the taints of nodes, by what came of them; and nodes where others want them otherwise.",
            &["result"],
        )?;
        // Creates the series, so that each is exported as 0 before its first count.
        for result in ["gone", "refused", "forbidden", "failed"] {
            repairs.with_label_values(&[result]);
            evictions.with_label_values(&[result]);
            node_taints.with_label_values(&[result]);
        }
        repairs.with_label_values(&["repaired"]);
        evictions.with_label_values(&["evicted"]);
        for result in ["changed", "conflict", CONTESTED, IN_THE_WAY] {
            node_taints.with_label_values(&[result]);
        }
        for event in EVENTS {
            events.with_label_values(&[event.reason]);
        }
        Ok(Self { leads, repairs, evictions, events, dropped, node_taints })
    }

    /// Counts a tried repair of a Pod, and returns its result in a word.
    pub(super) fn repaired(&self, written: Result<(), ClusterError>) -> &'static str {
        let result = match written {
            Ok(()) => "repaired",
            Err(ClusterError::Conflict) => "refused",
            other => word(other),
        };
        self.repairs.with_label_values(&[result]).inc();
        result
    }

    /// Counts a tried eviction, and returns its result in a word.
    pub(super) fn evicted(&self, evicted: Result<(), ClusterError>) -> &'static str {
        let result = match evicted {
            Ok(()) => "evicted",
            // Another Pod has the name.
            Err(ClusterError::Conflict) => "gone",
            other => word(other),
        };
        self.evictions.with_label_values(&[result]).inc();
        result
    }

    pub(super) fn tainted(&self, result: &'static str) {
        self.node_taints.with_label_values(&[result]).inc();
    }
}
