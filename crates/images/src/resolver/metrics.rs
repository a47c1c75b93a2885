//! What is counted of lookups, of the cache and of circuits.

use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};

use tolerarch_support::metrics::{Counted, Metrics, PerHost};

/// Counts lookups; clones count the same.
#[derive(Clone)]
pub struct ResolverMetrics(Arc<Families>);

struct Families {
    hosts: PerHost<Host>,
    in_flight: IntGauge,
    cache_entries: [IntGauge; CacheLevel::ALL.len()],
    cache_evictions: [IntCounter; CacheLevel::ALL.len()],
}

/// Of one registry.
struct Host {
    lookups: [IntCounter; LookupResult::ALL.len()],
    circuits_open: IntGauge,
}

/// How a lookup was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// From the cache.
    Hit,
    /// From the cache, by an answer past its time: while a new one is asked for, or as the registry fails.
    Stale,
    /// From the cache, which remembers a recent failure.
    Negative,
    /// By a lookup that another Pod had started.
    Joined,
    /// By the shared cache.
    Shared,
    /// By the registry.
    Fetched,
    /// Not: the registry or the way to it failed, no lookup may begin, or the Pod could not wait.
    Failed,
}

impl LookupResult {
    const ALL: [Self; 7] =
        [Self::Hit, Self::Stale, Self::Negative, Self::Joined, Self::Shared, Self::Fetched, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Negative => "negative",
            Self::Joined => "joined",
            Self::Shared => "shared",
            Self::Fetched => "fetched",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheLevel {
    /// From tags to digests; failures too.
    Tag,
    /// From digests to platforms.
    Platforms,
}

impl CacheLevel {
    const ALL: [Self; 2] = [Self::Tag, Self::Platforms];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Platforms => "platforms",
        }
    }
}

impl ResolverMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
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
        let entries = metrics.gauges("tolerarch_cache_entries", "Entries of the cache.", &["level"])?;
        let evictions = metrics.counters(
            "tolerarch_cache_evictions_total",
            "Entries that had to make room for others.",
            &["level"],
        )?;
        let hosts = metrics.per_host(|host| Host {
            lookups: LookupResult::ALL.map(|result| lookups.with_label_values(&[host, result.as_str()])),
            circuits_open: circuits.with_label_values(&[host]),
        });
        Ok(Self(Arc::new(Families {
            hosts,
            in_flight: metrics.gauge("tolerarch_lookups_in_flight", "Lookups that are under way.")?,
            cache_entries: CacheLevel::ALL.map(|level| entries.with_label_values(&[level.as_str()])),
            cache_evictions: CacheLevel::ALL.map(|level| evictions.with_label_values(&[level.as_str()])),
        })))
    }

    /// An image of the registry `host` was looked up.
    pub(super) fn looked_up(&self, host: &str, result: LookupResult) {
        self.0.hosts.get(host).lookups[result as usize].inc();
    }

    /// A lookup begins; it is under way until the value is dropped.
    pub(super) fn lookup_in_flight(&self) -> Counted {
        Counted::by(&self.0.in_flight)
    }

    /// The circuit of the registry `host` is open until the value is dropped.
    pub(super) fn circuit_open(&self, host: &str) -> Counted {
        Counted::by(&self.0.hosts.get(host).circuits_open)
    }

    /// A level of the cache has so many entries.
    pub(super) fn cache_has(&self, level: CacheLevel, entries: usize) {
        self.0.cache_entries[level as usize].set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    /// So many entries had to make room.
    pub(super) fn cache_evicted(&self, level: CacheLevel, entries: usize) {
        self.0.cache_evictions[level as usize].inc_by(entries as u64);
    }
}

#[cfg(test)]
mod tests;
