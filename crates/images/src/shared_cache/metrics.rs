//! Counts of operations on the shared cache.

use std::sync::Arc;

use prometheus::{Histogram, IntCounter};
use redis::RedisError;

use tolerarch_support::metrics::Metrics;

/// Seconds; fine below the default timeout of 50 ms.
const BUCKETS: [f64; 9] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0];

#[derive(Clone)]
pub struct SharedCacheMetrics {
    pub(super) get: Arc<Operation>,
    pub(super) set: Arc<Operation>,
    pub(super) delete: Arc<Operation>,
}

/// Counts one kind of operation.
pub(super) struct Operation {
    results: [IntCounter; RESULTS.len()],
    pub(super) duration: Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationResult {
    Hit,
    Miss,
    /// A value that is no entry.
    Invalid,
    /// Written or deleted.
    Ok,
    Timeout,
    Error,
    /// Not sent, as the server did not answer or refused writes a moment ago.
    Skipped,
    /// Not written, as the queue of writes is full.
    Dropped,
}

/// Labels of the results, in the order of the variants.
const RESULTS: [&str; 8] = ["hit", "miss", "invalid", "ok", "timeout", "error", "skipped", "dropped"];

impl OperationResult {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.code() {
            // Anyone with access to the server can have stored a value of another type than text.
            Some("WRONGTYPE") => Self::Invalid,
            _ if error.is_timeout() => Self::Timeout,
            _ => Self::Error,
        }
    }
}

impl SharedCacheMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let requests = metrics.counters(
            "tolerarch_shared_cache_requests_total",
            "Requests to the shared cache, by what came of them.",
            &["operation", "result"],
        )?;
        let durations = metrics.histograms(
            "tolerarch_shared_cache_request_duration_seconds",
            "How long the shared cache took to answer.",
            &["operation"],
            &BUCKETS,
        )?;
        let [get, set, delete] = ["get", "set", "delete"].map(|operation| {
            let results = RESULTS.map(|result| requests.with_label_values(&[operation, result]));
            Operation { results, duration: durations.with_label_values(&[operation]) }.into()
        });
        Ok(Self { get, set, delete })
    }
}

impl Operation {
    pub(super) fn count(&self, result: OperationResult) {
        self.results[result as usize].inc();
    }
}
