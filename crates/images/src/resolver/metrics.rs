//! Counts of lookups, of the cache and of circuits.

use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use tolerarch_support::metrics::{Metrics, PerHost};

#[derive(Clone)]
pub struct ResolverMetrics {
    pub(super) hosts: Arc<PerHost<Host>>,
    pub(super) in_flight: IntGauge,
    cache_entries: IntGaugeVec,
    cache_evictions: IntCounterVec,
}

pub(super) struct Host {
    lookups: [IntCounter; RESULTS.len()],
    pub(super) circuits_open: IntGauge,
    pub(super) failing: IntGauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    Hit,
    /// From the cache, by an answer past its lifetime, while a refresh runs or the registry fails.
    Stale,
    /// From the cache, by a recent failure.
    Negative,
    /// From a lookup that another Pod had started.
    Joined,
    Shared,
    Fetched,
    /// No answer: the registry or the connection failed, no lookup may begin, or the Pod could not wait.
    Failed,
}

/// Labels of the results, in the order of the variants.
const RESULTS: [&str; 7] = ["hit", "stale", "negative", "joined", "shared", "fetched", "failed"];

/// Levels of the cache: tags with their digests, and failures; digests with their platforms.
pub(super) const TAG: &str = "tag";
pub(super) const PLATFORMS: &str = "platforms";

impl ResolverMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let lookups = metrics.counters(
            "tolerarch_lookups_total",
            "Lookups of images, by registry and by how they were answered.",
            &["registry", "result"],
        )?;
        let circuits = metrics.gauges(
            "tolerarch_registry_circuit_open",
            "Whether the circuit of a registry that keeps failing is open; of others, how many are.",
            &["registry"],
        )?;
        let failing = metrics.gauges(
            "tolerarch_registry_failing",
            "Whether the last lookup at a registry had no answer; of others, of how many that holds.",
            &["registry"],
        )?;
        let hosts = metrics.per_host(|host| Host {
            lookups: RESULTS.map(|result| lookups.with_label_values(&[host, result])),
            circuits_open: circuits.with_label_values(&[host]),
            failing: failing.with_label_values(&[host]),
        });
        let own = Self {
            hosts: Arc::new(hosts),
            in_flight: metrics.gauge("tolerarch_lookups_in_flight", "Lookups that are under way.")?,
            cache_entries: metrics.gauges("tolerarch_cache_entries", "Entries of the cache.", &["level"])?,
            cache_evictions: metrics.counters(
                "tolerarch_cache_evictions_total",
                "Entries that had to make room for others.",
                &["level"],
            )?,
        };
        [TAG, PLATFORMS].into_iter().for_each(|level| own.cache_has(level, 0, 0));
        Ok(own)
    }

    pub(super) fn looked_up(&self, host: &str, result: LookupResult) {
        self.hosts.get(host).lookups[result as usize].inc();
    }

    /// Sets the number of entries of a level of the cache, and counts evicted ones.
    pub(super) fn cache_has(&self, level: &str, entries: usize, evicted: usize) {
        self.cache_entries.with_label_values(&[level]).set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.cache_evictions.with_label_values(&[level]).inc_by(evicted as u64);
    }
}

#[cfg(test)]
mod tests;
