//! Counts of lookups, of the cache and of circuits.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use tolerarch_support::families;
use tolerarch_support::metrics::{Metrics, PerHost, Registered};

#[derive(Clone)]
pub struct ResolverMetrics {
    pub(super) hosts: Arc<PerHost<Host>>,
    pub(super) families: LookupFamilies,
}

families! {
    pub(super) struct LookupFamilies {
        /// Lookups of images, by registry and by how they were answered.
        lookups: IntCounterVec["registry", "result"] = "tolerarch_lookups_total",
        /// Whether the circuit of a registry that keeps failing is open; of others, how many are.
        circuits_open: IntGaugeVec["registry"] = "tolerarch_registry_circuit_open",
        /// Whether the last lookup at a registry had no answer; of others, of how many that holds.
        failing: IntGaugeVec["registry"] = "tolerarch_registry_failing",
        /// Lookups that are under way.
        pub(super) in_flight: IntGauge = "tolerarch_lookups_in_flight",
        /// Entries of the cache.
        cache_entries: IntGaugeVec["level"] = "tolerarch_cache_entries",
        /// Entries that had to make room for others.
        cache_evictions: IntCounterVec["level"] = "tolerarch_cache_evictions_total",
    }
}

pub(super) struct Host {
    lookups: [IntCounter; RESULTS.len()],
    pub(super) circuits_open: IntGauge,
    pub(super) failing: IntGauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    Hit,
    /// An answer from the cache past its lifetime, while a refresh runs or the registry fails.
    Stale,
    /// A recent failure from the cache.
    Negative,
    /// The outcome of a lookup that another Pod had begun.
    Joined,
    Shared,
    Fetched,
    /// No answer: the registry or the connection failed, no lookup was allowed to begin, or the Pod could not wait.
    Failed,
}

/// Labels of the results, in the order of the variants.
const RESULTS: [&str; 7] = [
    "hit", "stale", "negative", "joined", "shared", "fetched", "failed",
];

/// Level of the cache: tags with their digests, and failures.
pub(super) const TAG: &str = "tag";
/// Level of the cache: digests with their platforms.
pub(super) const PLATFORMS: &str = "platforms";

impl ResolverMetrics {
    pub fn register(metrics: &Metrics) -> Registered<Self> {
        let families = LookupFamilies::families(metrics)?;
        let hosts = Arc::new(metrics.per_host(|host| Host {
            lookups: RESULTS.map(|result| families.lookups.with_label_values(&[host, result])),
            circuits_open: families.circuits_open.with_label_values(&[host]),
            failing: families.failing.with_label_values(&[host]),
        }));
        let metrics = Self { hosts, families };
        for level in [TAG, PLATFORMS] {
            metrics.set_cache_entries(level, 0, 0);
        }
        Ok(metrics)
    }

    pub(super) fn count_lookup(&self, host: &str, result: LookupResult) {
        self.hosts.get(host).lookups[result as usize].inc();
    }

    /// Sets the number of entries of a level of the cache, and counts evicted ones.
    pub(super) fn set_cache_entries(&self, level: &str, entries: usize, evicted: usize) {
        let families = &self.families;
        let gauge = families.cache_entries.with_label_values(&[level]);
        gauge.set(i64::try_from(entries).unwrap_or(i64::MAX));
        let evictions = families.cache_evictions.with_label_values(&[level]);
        evictions.inc_by(evicted as u64);
    }
}

#[cfg(test)]
mod tests;
