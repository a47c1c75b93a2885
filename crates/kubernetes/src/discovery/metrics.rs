//! Metrics of pools.

use prometheus::IntGaugeVec;

use super::KnownPool;
use tolerarch_support::metrics::Metrics;

#[derive(Clone)]
pub struct DiscoveryMetrics(IntGaugeVec);

impl DiscoveryMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        Ok(Self(metrics.gauges(
            "tolerarch_pool_platforms_mismatch",
            "Whether a pool opens nodes of platforms that its definition does not name.",
            &["pool"],
        )?))
    }

    /// Sets the metrics to these pools, and removes all others.
    pub fn show(&self, pools: &[KnownPool<'_>]) {
        self.0.reset();
        for known in pools {
            let is_mismatch = !known.mismatch().is_empty();
            self.0.with_label_values(&[&known.pool.name]).set(is_mismatch.into());
        }
    }
}
