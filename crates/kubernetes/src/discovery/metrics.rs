//! What metrics show of pools.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::IntGaugeVec;

use super::KnownPool;
use tolerarch_support::metrics::Metrics;

/// Shows pools; clones show the same.
#[derive(Clone)]
pub struct DiscoveryMetrics {
    mismatch: IntGaugeVec,
    /// The names of the pools that it shows.
    shown: Arc<Mutex<BTreeSet<String>>>,
}

impl DiscoveryMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let mismatch = metrics.gauges(
            "tolerarch_pool_platforms_mismatch",
            "Whether a pool opens nodes of platforms that its definition does not name.",
            &["pool"],
        )?;
        Ok(Self { mismatch, shown: Arc::default() })
    }

    /// Shows these pools, and no others any more.
    pub fn show(&self, pools: &[KnownPool<'_>]) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let names: BTreeSet<String> = pools.iter().map(|known| known.pool.name.clone()).collect();
        for gone in shown.difference(&names) {
            // Fails only if it is not there.
            let _ = self.mismatch.remove_label_values(&[gone]);
        }
        for known in pools {
            let is_mismatch = !known.mismatch().is_empty();
            self.mismatch.with_label_values(&[&known.pool.name]).set(is_mismatch.into());
        }
        *shown = names;
    }
}
