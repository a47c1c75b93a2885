//! Metrics of the controller.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

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
    pub(super) node_taints: IntCounterVec,
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

    pub(super) fn repaired(&self, written: Result<(), ClusterError>) -> &'static str {
        count(&self.repairs, written, ["repaired", "refused"])
    }

    pub(super) fn evicted(&self, evicted: Result<(), ClusterError>) -> &'static str {
        // In a conflict another Pod has the name.
        count(&self.evictions, evicted, ["evicted", "gone"])
    }

    pub(super) fn tainted(&self, written: Result<(), ClusterError>) -> &'static str {
        count(&self.node_taints, written, ["changed", "conflict"])
    }
}

/// Counts a try, and returns its result in a word: the first of these if it was done, the second in a conflict.
fn count(
    tries: &IntCounterVec,
    written: Result<(), ClusterError>,
    [done, conflict]: [&'static str; 2],
) -> &'static str {
    let result = match written {
        Ok(()) => done,
        Err(ClusterError::Conflict) => conflict,
        Err(ClusterError::NotFound) => "gone",
        Err(ClusterError::Invalid) => "refused",
        Err(ClusterError::Forbidden | ClusterError::Unauthorized) => "forbidden",
        Err(_) => "failed",
    };
    tries.with_label_values(&[result]).inc();
    result
}
