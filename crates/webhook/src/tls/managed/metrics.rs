//! What is counted of managed certificates, by the issuer and by replicas.

use prometheus::{IntCounter, IntGauge};

use super::Operation;
use tolerarch_support::metrics::Metrics;

/// Counts what fails; clones count the same.
#[derive(Clone)]
pub struct ManagedMetrics {
    failures: [IntCounter; Operation::ALL.len()],
    ca_expiry: IntGauge,
}

impl ManagedMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let failures = metrics.counters(
            "tolerarch_managed_certificate_failures_total",
            "What failed while the serving certificate was managed.",
            &["operation"],
        )?;
        Ok(Self {
            failures: Operation::ALL.map(|operation| failures.with_label_values(&[operation.as_str()])),
            ca_expiry: metrics.gauge(
                "tolerarch_managed_ca_expiry_timestamp_seconds",
                "When the newest CA of managed certificates expires, in seconds since 1970; 0 without one.",
            )?,
        })
    }

    pub(super) fn failed(&self, operation: Operation) {
        self.failures[operation as usize].inc();
    }

    /// The newest CA expires at this time, in seconds since 1970.
    pub(super) fn ca_expires(&self, timestamp: i64) {
        self.ca_expiry.set(timestamp);
    }
}
