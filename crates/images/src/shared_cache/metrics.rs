//! Counts of operations on the shared cache.

use prometheus::{HistogramVec, IntCounterVec};
use redis::RedisError;

use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, Registered};

/// Seconds; fine below the default timeout of 50 ms.
const BUCKETS: [f64; 9] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0];
const OPERATIONS: [&str; 3] = ["get", "set", "delete"];
/// Results. `ok`: written or deleted. `invalid`: the value is no entry. `skipped`: not sent, as a moment ago the server
/// did not answer or refused writes. `dropped`: not written, as the queue of writes is full.
const RESULTS: [&str; 8] = [
    "hit", "miss", "invalid", "ok", "timeout", "error", "skipped", "dropped",
];

families! {
    pub struct SharedCacheMetrics {
        /// Requests to the shared cache, by what came of them.
        requests: IntCounterVec["operation", "result"] = "tolerarch_shared_cache_requests_total",
        /// How long the shared cache took to answer.
        pub(super) durations: HistogramVec["operation"] = "tolerarch_shared_cache_request_duration_seconds" in BUCKETS,
    }
}

impl SharedCacheMetrics {
    pub fn register(metrics: &Metrics) -> Registered<Self> {
        let families = Self::families(metrics)?;
        for operation in OPERATIONS {
            families.durations.with_label_values(&[operation]);
            for result in RESULTS {
                families.requests.with_label_values(&[operation, result]);
            }
        }
        Ok(families)
    }

    pub(super) fn count(&self, operation: &'static str, result: &'static str) {
        self.requests.with_label_values(&[operation, result]).inc();
    }
}

/// Returns the result of an operation that failed.
pub(super) fn failure(error: &RedisError) -> &'static str {
    match error.code() {
        // Anyone with access to the server can have stored a value of another type than text.
        Some("WRONGTYPE") => "invalid",
        _ if error.is_timeout() => "timeout",
        _ => "error",
    }
}
