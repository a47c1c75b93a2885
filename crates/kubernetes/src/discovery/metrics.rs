//! What metrics show of pools.

use prometheus::IntGaugeVec;

use super::KnownPool;
use tolerarch_support::metrics::Metrics;

/// Shows pools; clones show the same.
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

    /// Shows these pools, and no others any more.
    pub fn show(&self, pools: &[KnownPool<'_>]) {
        self.0.reset();
        for known in pools {
            let is_mismatch = !known.mismatch().is_empty();
            self.0.with_label_values(&[&known.pool.name]).set(is_mismatch.into());
        }
    }
}
