//! Metrics of TLS: of the serving certificate, and of handshakes.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::validity::Invalid;
use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, Registered, outcome};

families! {
    pub struct TlsMetrics {
        /// TLS handshakes of clients that succeeded: connections that API servers opened.
        pub(crate) handshakes: IntCounter = "tolerarch_tls_handshakes_total",
        /// TLS handshakes of clients that failed.
        pub(crate) handshake_errors: IntCounter = "tolerarch_tls_handshake_errors_total",
        /// When the serving certificate expires, in seconds since 1970.
        pub(super) expiry: IntGauge = "tolerarch_certificate_expiry_timestamp_seconds",
        /// Changes of the certificate files, by whether the new pair could be used.
        pub(super) reloads: IntCounterVec["result"] = "tolerarch_certificate_reloads_total",
        /// Whether API servers refuse the certificate in the files, and why.
        pub(super) invalid: IntGaugeVec["error"] = "tolerarch_certificate_invalid",
    }
}

impl TlsMetrics {
    pub fn register(metrics: &Metrics) -> Registered<Self> {
        let own = Self::families(metrics)?;
        [false, true].iter().for_each(|is_ok| drop(own.reloads.with_label_values(&[outcome(*is_ok)])));
        Invalid::ALL.iter().for_each(|error| drop(own.invalid.with_label_values(&[error.label])));
        Ok(own)
    }
}
