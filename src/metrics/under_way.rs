//! What lasts: each of these is counted or measured when it is dropped, however it ends.

use prometheus::IntGauge;
use tokio::time::Instant;

use super::{Metrics, RequestKind};

/// A circuit that is open.
pub struct OpenCircuit(pub(super) IntGauge);

impl Drop for OpenCircuit {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A lookup that is under way.
pub struct InFlight(pub(super) IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A request to a registry that is under way.
pub struct RequestObserved {
    pub(super) metrics: Metrics,
    pub(super) registry: String,
    pub(super) kind: RequestKind,
    pub(super) begun: Instant,
    pub(super) code: &'static str,
}

impl RequestObserved {
    /// It ended: a status class, or a kind of failure.
    pub fn end(mut self, code: &'static str) {
        self.code = code;
    }
}

impl Drop for RequestObserved {
    fn drop(&mut self) {
        let labels = [self.registry.as_str(), self.kind.as_str(), self.code];
        self.metrics.0.requests.with_label_values(&labels).inc();
        self.metrics
            .0
            .request_durations
            .with_label_values(&labels)
            .observe(self.begun.elapsed().as_secs_f64());
    }
}
