//! Metrics of unreadable objects.

use prometheus::IntCounterVec;

use tolerarch_support::metrics::Metrics;

/// Counter of unreadable objects. Clones share it.
#[derive(Clone)]
pub struct UnreadMetrics(pub(super) IntCounterVec);

impl UnreadMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let unread = metrics.counters(
            "tolerarch_cluster_unread_objects_total",
            "Objects of the cluster that could not be read and were left out, at each list and watch.",
            &["resource"],
        )?;
        for resource in ["namespaces", "nodepools", "nodes", "pods"] {
            let _ = unread.with_label_values(&[resource]);
        }
        Ok(Self(unread))
    }
}
