//! Metrics of reviews.

use std::sync::Arc;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};
use tokio::time::Duration;

use tolerarch_core::decision::Decision;
use tolerarch_core::policy::Pool;
use tolerarch_core::reason::Reason;
use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, Registered};

/// Buckets in seconds: from a review whose images are cached to the largest budget.
const BUCKETS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 5.0, 10.0,
];

/// Metrics of reviews. Clones share them.
#[derive(Clone)]
pub struct ReviewMetrics {
    families: ReviewFamilies,
    /// In the order of [`Reason::ALL`].
    by_reason: Arc<[ByReason]>,
}

/// Series of one reason, which are resolved at the start: resolving takes locks that all threads share.
struct ByReason {
    /// Reviews of the default policy, by decision.
    reviews: Vec<(&'static str, IntCounter)>,
    durations: Histogram,
}

families! {
    /// Profiles and pools are named by the configuration, which may change.
    struct ReviewFamilies {
        /// Reviews answered, by what became of the Pod.
        reviews: IntCounterVec["reason", "decision", "profile"] = "tolerarch_reviews_total",
        /// Time from a review's arrival to its answer.
        durations: HistogramVec["reason"] = "tolerarch_review_duration_seconds" in BUCKETS,
        /// Pods to which a pool was opened, by the pool's name.
        opened: IntCounterVec["pool"] = "tolerarch_pools_opened_total",
    }
}

fn decisions(reason: Reason) -> &'static [&'static str] {
    match reason {
        Reason::Tolerated => &["tolerated"],
        Reason::Placed => &["placed", "unchanged"],
        Reason::Retracted => &["retracted"],
        Reason::Observed => &["observed"],
        _ => &["unchanged"],
    }
}

impl ReviewMetrics {
    pub fn register(metrics: &Metrics) -> Registered<Self> {
        let families = ReviewFamilies::families(metrics)?;
        let by_reason = Reason::ALL.iter().map(|reason| families.of_reason(*reason));
        Ok(Self {
            by_reason: by_reason.collect(),
            families,
        })
    }

    /// Adds series for these pools and profiles, although there may have been no Pod for them yet.
    pub fn show<'p>(&self, pools: &[Pool], profiles: impl Iterator<Item = &'p String>) {
        for pool in pools {
            self.families.opened.with_label_values(&[&pool.name]);
        }
        for profile in profiles {
            self.families.reviews.with_label_values(&[
                Reason::Tolerated.as_str(),
                "tolerated",
                profile,
            ]);
        }
    }

    /// Counts a review of the default policy, or of a profile. All profiles that do not exist have one name.
    pub(super) fn count_review(
        &self,
        decision: &Decision<'_>,
        profile: Option<&str>,
        duration: Duration,
    ) {
        let reason = decision.reason;
        let label = if reason == Reason::Observed {
            "observed"
        } else {
            decision.outcome()
        };
        let Some(index) = Reason::ALL.iter().position(|other| *other == reason) else {
            return;
        };
        let series = &self.by_reason[index];
        series.durations.observe(duration.as_secs_f64());
        let mut resolved = series.reviews.iter();
        match resolved.find(|(decision, _)| *decision == label) {
            Some((_, reviews)) if profile.is_none() => reviews.inc(),
            _ => {
                let labels = [reason.as_str(), label, profile.unwrap_or_default()];
                self.families.reviews.with_label_values(&labels).inc();
            }
        }
        if label == "tolerated" {
            for pool in &decision.opened {
                self.families.opened.with_label_values(&[&pool.name]).inc();
            }
        }
    }
}

impl ReviewFamilies {
    /// Returns the series of a reason.
    fn of_reason(&self, reason: Reason) -> ByReason {
        let name = reason.as_str();
        let mut reviews = Vec::new();
        for decision in decisions(reason) {
            let series = self.reviews.with_label_values(&[name, decision, ""]);
            reviews.push((*decision, series));
        }
        ByReason {
            reviews,
            durations: self.durations.with_label_values(&[name]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_core::placement::Edits;

    #[test]
    fn every_reason_has_its_series_from_the_start() {
        let metrics = Metrics::new([]).unwrap();
        let reviews = ReviewMetrics::register(&metrics).unwrap();
        let took = Duration::from_millis(1);
        let policy = tolerarch_core::policy::Policy::default();
        let opened: Vec<&Pool> = policy.pools.iter().collect();
        let edits = Edits {
            add: policy.pools[0].tolerations.iter().collect(),
            ..Edits::default()
        };
        let tolerated = Decision {
            opened,
            edits,
            ..Decision::unchanged(Reason::Tolerated)
        };
        reviews.count_review(&tolerated, None, took);
        reviews.count_review(
            &Decision {
                edits: Edits::default(),
                reason: Reason::Observed,
                ..tolerated
            },
            None,
            took,
        );
        reviews.count_review(&Decision::unchanged(Reason::Placed), None, took);
        reviews.count_review(&Decision::unchanged(Reason::OptedOut), Some("batch"), took);
        let text = metrics.render().unwrap();
        for reason in Reason::ALL {
            for decision in decisions(*reason) {
                let series = format!(
                    "tolerarch_reviews_total{{decision=\"{decision}\",profile=\"\",reason=\"{reason}\"}} "
                );
                assert!(text.contains(&series), "{series}");
            }
        }
        for counted in [
            r#"tolerarch_reviews_total{decision="tolerated",profile="",reason="tolerated"} 1"#,
            r#"tolerarch_reviews_total{decision="observed",profile="",reason="observed"} 1"#,
            r#"tolerarch_reviews_total{decision="unchanged",profile="",reason="placed"} 1"#,
            r#"tolerarch_reviews_total{decision="unchanged",profile="batch",reason="opted-out"} 1"#,
            r#"tolerarch_pools_opened_total{pool="multi-arch"} 1"#,
            r#"tolerarch_review_duration_seconds_count{reason="tolerated"} 1"#,
        ] {
            assert!(text.contains(counted), "{counted}");
        }
    }
}
