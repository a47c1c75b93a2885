//! What is counted of reviews.

use std::sync::Arc;

use prometheus::{Histogram, IntCounter};
use tokio::time::Duration;

use crate::metrics::Metrics;
use crate::reason::Reason;

/// Seconds of a review: from a cached answer to the largest budget.
const BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0];

/// Counts reviews; clones count the same.
#[derive(Clone)]
pub struct ReviewMetrics(Arc<[Reviews]>);

/// Of one reason.
struct Reviews {
    total: IntCounter,
    durations: Histogram,
}

impl ReviewMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: a defect.
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let total = metrics.counters(
            "tolerarch_reviews_total",
            "Reviews answered, by what became of the Pod.",
            &["reason"],
        )?;
        let durations = metrics.histograms(
            "tolerarch_review_duration_seconds",
            "Time from a review's arrival to its answer.",
            &["reason"],
            &BUCKETS,
        )?;
        let of = |reason: &Reason| Reviews {
            total: total.with_label_values(&[reason.as_str()]),
            durations: durations.with_label_values(&[reason.as_str()]),
        };
        Ok(Self(Reason::ALL.iter().map(of).collect()))
    }

    /// A review was answered.
    pub(super) fn reviewed(&self, reason: Reason, took: Duration) {
        let reviews = &self.0[reason as usize];
        reviews.total.inc();
        reviews.durations.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_there_from_the_start() {
        let metrics = Metrics::new([]).unwrap();
        ReviewMetrics::register(&metrics).unwrap().reviewed(Reason::Tolerated, Duration::from_millis(1));
        let text = metrics.render().unwrap();
        for reason in Reason::ALL {
            assert!(text.contains(&format!("tolerarch_reviews_total{{reason=\"{reason}\"}} ")), "{reason}");
        }
        assert!(text.contains("tolerarch_review_duration_seconds_count{reason=\"tolerated\"} 1"));
    }
}
