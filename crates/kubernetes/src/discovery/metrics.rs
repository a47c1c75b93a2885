//! Metrics of pools.

use prometheus::IntGaugeVec;

use super::KnownPool;
use tolerarch_support::metrics::Metrics;

/// Registers the gauge of pools with mismatches.
pub fn mismatch_gauge(metrics: &Metrics) -> Result<IntGaugeVec, prometheus::Error> {
    metrics.add(
        "tolerarch_pool_platforms_mismatch",
        "Whether a pool opens nodes of platforms that its definition does not name.",
        &["pool"],
    )
}

/// Sets the gauge to these pools, and removes all others.
pub fn show_mismatches(gauge: &IntGaugeVec, pools: &[KnownPool<'_>]) {
    gauge.reset();
    for known in pools {
        gauge.with_label_values(&[&known.pool.name]).set((!known.mismatch().is_empty()).into());
    }
}
