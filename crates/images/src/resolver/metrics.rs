//! Counts of lookups, of the cache and of circuits.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};

use tolerarch_support::metrics::{Counted, Metrics, PerHost};

#[derive(Clone)]
pub struct ResolverMetrics(Arc<Families>);

struct Families {
    hosts: PerHost<Host>,
    in_flight: IntGauge,
    cache_entries: [IntGauge; LEVELS.len()],
    cache_evictions: [IntCounter; LEVELS.len()],
}

struct Host {
    lookups: [IntCounter; RESULTS.len()],
    circuits_open: IntGauge,
    failing: IntGauge,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheLevel {
    /// Tags with their digests, and failures.
    Tag,
    /// Digests with their platforms.
    Platforms,
}

/// Labels of the levels, in the order of the variants.
const LEVELS: [&str; 2] = ["tag", "platforms"];

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
        let entries = metrics.gauges("tolerarch_cache_entries", "Entries of the cache.", &["level"])?;
        let evictions = metrics.counters(
            "tolerarch_cache_evictions_total",
            "Entries that had to make room for others.",
            &["level"],
        )?;
        let hosts = metrics.per_host(|host| Host {
            lookups: RESULTS.map(|result| lookups.with_label_values(&[host, result])),
            circuits_open: circuits.with_label_values(&[host]),
            failing: failing.with_label_values(&[host]),
        });
        Ok(Self(Arc::new(Families {
            hosts,
            in_flight: metrics.gauge("tolerarch_lookups_in_flight", "Lookups that are under way.")?,
            cache_entries: LEVELS.map(|level| entries.with_label_values(&[level])),
            cache_evictions: LEVELS.map(|level| evictions.with_label_values(&[level])),
        })))
    }

    pub(super) fn looked_up(&self, host: &str, result: LookupResult) {
        self.0.hosts.get(host).lookups[result as usize].inc();
    }

    /// Counts a lookup as under way until the value is dropped.
    pub(super) fn lookup_in_flight(&self) -> Counted {
        Counted::by(&self.0.in_flight)
    }

    /// Counts the circuit of the registry `host` as open until the value is dropped.
    pub(super) fn circuit_open(&self, host: &str) -> Counted {
        Counted::by(&self.0.hosts.get(host).circuits_open)
    }

    /// Counts the registry `host` as failing until the value is dropped.
    pub(super) fn failing(&self, host: &str) -> Counted {
        Counted::by(&self.0.hosts.get(host).failing)
    }

    /// Sets the number of entries of a level of the cache, and counts evicted ones.
    pub(super) fn cache_has(&self, level: CacheLevel, entries: usize, evicted: usize) {
        self.0.cache_entries[level as usize].set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.0.cache_evictions[level as usize].inc_by(evicted as u64);
    }
}

#[cfg(test)]
mod tests;
