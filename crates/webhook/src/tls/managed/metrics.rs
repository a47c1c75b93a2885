//! What is counted of managed certificates, by the issuer and by replicas.

use prometheus::{IntCounterVec, IntGauge};

use super::Operation;
use tolerarch_support::metrics::Metrics;

/// Counts what fails; clones count the same.
#[derive(Clone)]
pub struct ManagedMetrics {
    failures: IntCounterVec,
    pub(super) ca_expiry: IntGauge,
}

impl ManagedMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let failures = metrics.counters(
            "tolerarch_managed_certificate_failures_total",
            "What failed while the serving certificate was managed.",
            &["operation"],
        )?;
        for Operation(name, _) in Operation::ALL {
            failures.with_label_values(&[name]);
        }
        let ca_expiry = metrics.gauge(
            "tolerarch_managed_ca_expiry_timestamp_seconds",
            "When the newest CA of managed certificates expires, in seconds since 1970; 0 without one.",
        )?;
        Ok(Self { failures, ca_expiry })
    }

    pub(super) fn failed(&self, operation: Operation) {
        self.failures.with_label_values(&[operation.0]).inc();
    }
}
