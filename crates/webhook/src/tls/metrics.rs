//! Metrics of TLS: of the serving certificate, and of handshakes.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::validity::Invalid;
use tolerarch_support::families;
use tolerarch_support::metrics::OUTCOMES;

families! {
    pub struct TlsMetrics by register {
        /// TLS handshakes of clients that succeeded: connections that API servers opened.
        pub(crate) handshakes: IntCounter = "tolerarch_tls_handshakes_total",
        /// TLS handshakes of clients that failed.
        pub(crate) handshake_errors: IntCounter = "tolerarch_tls_handshake_errors_total",
        /// When the serving certificate expires, in seconds since 1970.
        pub(super) expiry: IntGauge = "tolerarch_certificate_expiry_timestamp_seconds",
        /// Changes of the certificate files, by whether the new pair could be used.
        pub(super) reloads: IntCounterVec["result" of OUTCOMES] = "tolerarch_certificate_reloads_total",
        /// Whether API servers refuse the certificate in the files, and why.
        pub(super) invalid: IntGaugeVec["error" of Invalid::ALL.map(|error| error.label)]
            = "tolerarch_certificate_invalid",
    }
}
