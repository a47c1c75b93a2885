//! Metrics of TLS: of the serving certificate, and of handshakes.

use prometheus::{IntCounter, IntGauge};

use super::validity::Invalid;
use tolerarch_support::metrics::Metrics;

#[derive(Clone)]
pub struct TlsMetrics {
    pub(crate) handshakes: IntCounter,
    pub(crate) handshake_errors: IntCounter,
    pub(super) expiry: IntGauge,
    /// Reloads that failed, and that succeeded.
    pub(super) reloads: [IntCounter; 2],
    /// One for each of [`Invalid::ALL`].
    pub(super) invalid: [IntGauge; Invalid::ALL.len()],
}

impl TlsMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let reloads = metrics.counters(
            "tolerarch_certificate_reloads_total",
            "Changes of the certificate files, by whether the new pair could be used.",
            &["result"],
        )?;
        let invalid = metrics.gauges(
            "tolerarch_certificate_invalid",
            "Whether API servers refuse the certificate in the files, and why.",
            &["error"],
        )?;
        Ok(Self {
            invalid: Invalid::ALL.map(|error| invalid.with_label_values(&[error.label])),
            handshakes: metrics.counter(
                "tolerarch_tls_handshakes_total",
                "TLS handshakes of clients that succeeded: connections that API servers opened.",
            )?,
            handshake_errors: metrics
                .counter("tolerarch_tls_handshake_errors_total", "TLS handshakes of clients that failed.")?,
            expiry: metrics.gauge(
                "tolerarch_certificate_expiry_timestamp_seconds",
                "When the serving certificate expires, in seconds since 1970.",
            )?,
            reloads: ["failure", "success"].map(|result| reloads.with_label_values(&[result])),
        })
    }
}
