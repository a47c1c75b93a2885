//! What is remembered of images, and for how long. quick_cache has no lifetimes, so each value has its own end.

use quick_cache::Lifecycle;
use quick_cache::UnitWeighter;
use quick_cache::sync;
use tokio::time::{Duration, Instant};

use super::Outcome;
use crate::image::{ImageRef, Unknown};
use crate::metrics::Metrics;

/// The longest that a registry's `Retry-After` is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// How many answers are remembered, and how long they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Images.
    pub capacity: usize,
    /// Platforms of a tag; those of a digest never change.
    pub tag: Duration,
    /// No such image.
    pub not_found: Duration,
    /// Access denied.
    pub denied: Duration,
    /// Rate-limited: at least this long, and as long as `Retry-After` says.
    pub throttled: Duration,
    /// No answer in time.
    pub timeout: Duration,
    /// No connection.
    pub unreachable: Duration,
    /// No image.
    pub bad_manifest: Duration,
}

/// A bounded map from images to what is known of them.
pub(super) struct Cache {
    entries: sync::Cache<Box<str>, Entry, UnitWeighter, quick_cache::DefaultHashBuilder, Evictions>,
    settings: CacheSettings,
    metrics: Metrics,
}

#[derive(Clone, Copy)]
struct Entry {
    outcome: Outcome,
    /// `None`: for ever.
    expires: Option<Instant>,
}

impl Cache {
    pub(super) fn new(settings: CacheSettings, metrics: Metrics) -> Self {
        let capacity = settings.capacity;
        let evictions = Evictions(metrics.clone());
        let hasher = quick_cache::DefaultHashBuilder::default();
        let entries = sync::Cache::with(capacity, capacity as u64, UnitWeighter, hasher, evictions);
        Self { entries, settings, metrics }
    }

    /// What is known of the image, unless that is too old to count.
    pub(super) fn get(&self, image: &ImageRef) -> Option<Outcome> {
        let entry = self.entries.get(image.as_str())?;
        let counts = entry.expires.is_none_or(|expires| Instant::now() < expires);
        counts.then_some(entry.outcome)
    }

    /// Remembers what a registry said, or that it did not; what says nothing about the registry is not remembered.
    pub(super) fn put(&self, image: &ImageRef, outcome: Outcome, retry_after: Option<Duration>) {
        let lifetimes = &self.settings;
        let life = match outcome {
            Ok(_) if image.digest().is_some() => None,
            Ok(_) => Some(lifetimes.tag),
            Err(Unknown::NotFound) => Some(lifetimes.not_found),
            Err(Unknown::Denied) => Some(lifetimes.denied),
            Err(Unknown::Throttled) => {
                Some(lifetimes.throttled.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)))
            }
            Err(Unknown::Timeout) => Some(lifetimes.timeout),
            Err(Unknown::Unreachable | Unknown::AddressNotAllowed) => Some(lifetimes.unreachable),
            Err(Unknown::BadManifest) => Some(lifetimes.bad_manifest),
            Err(_) => return,
        };
        let expires = life.map(|life| Instant::now() + life);
        self.entries.insert(image.as_str().into(), Entry { outcome, expires });
        self.metrics.cache_has(self.entries.len());
    }
}

/// Counts what had to make room.
#[derive(Clone)]
struct Evictions(Metrics);

impl Lifecycle<Box<str>, Entry> for Evictions {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Box<str>, _: Entry) {
        self.0.cache_evicted();
    }
}
