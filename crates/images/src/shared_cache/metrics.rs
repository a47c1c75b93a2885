//! What is counted of the shared cache.

use prometheus::{Histogram, IntCounter};

use tolerarch_support::metrics::Metrics;

/// Seconds; fine below the default timeout of 50 ms.
const BUCKETS: [f64; 9] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0];

/// What a server is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    Set,
    /// After a registry refused what is shared.
    Delete,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Get, Self::Set, Self::Delete];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Delete => "delete",
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationResult {
    /// An entry.
    Hit,
    /// No entry.
    Miss,
    /// A value that is no entry.
    Invalid,
    /// Written or deleted.
    Ok,
    /// No answer in time.
    Timeout,
    /// An error, or a broken connection.
    Error,
    /// Not asked, as the server did not answer or refused writes a moment ago.
    Skipped,
    /// Not written, as too many writes wait.
    Dropped,
}

impl OperationResult {
    const ALL: [Self; 8] = [
        Self::Hit,
        Self::Miss,
        Self::Invalid,
        Self::Ok,
        Self::Timeout,
        Self::Error,
        Self::Skipped,
        Self::Dropped,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Invalid => "invalid",
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
        }
    }
}

/// Counts what servers are asked; clones count the same.
#[derive(Clone)]
pub struct SharedCacheMetrics {
    requests: [[IntCounter; OperationResult::ALL.len()]; Operation::ALL.len()],
    durations: [Histogram; Operation::ALL.len()],
}

impl SharedCacheMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
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
        Ok(Self {
            requests: Operation::ALL.map(|operation| {
                OperationResult::ALL
                    .map(|result| requests.with_label_values(&[operation.as_str(), result.as_str()]))
            }),
            durations: Operation::ALL.map(|operation| durations.with_label_values(&[operation.as_str()])),
        })
    }

    pub(super) fn count(&self, operation: Operation, result: OperationResult) {
        self.requests[operation as usize][result as usize].inc();
    }

    pub(super) fn took(&self, operation: Operation, seconds: f64) {
        self.durations[operation as usize].observe(seconds);
    }
}
