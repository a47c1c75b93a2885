//! Cache of values with lifetimes.

use std::hash::Hash;
use std::sync::{Arc, Once, Weak};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::{Duration, Instant, sleep};

/// Maximal lifetime: plugins may demand any.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Time between sweeps, which drop expired values.
const SWEEP: Duration = Duration::from_secs(60);

/// Shards, each with its own lock: few, as no value may be heavier than a shard.
const SHARDS: usize = 4;

pub(crate) struct TtlCache<K, V> {
    cached: Cache<K, Timed<V>, Weight<K, Timed<V>>>,
    /// Set when the sweeps begin, with the first value, as that comes from inside the Tokio runtime.
    sweeps: Once,
}

/// A value, and the end of its lifetime.
pub(crate) type Timed<V> = (V, Instant);

/// Weighs the entries of a cache.
#[derive(Clone)]
pub(crate) struct Weight<K, V>(pub(crate) fn(&K, &V) -> u64);

impl<K, V> Weighter<K, V> for Weight<K, V> {
    fn weight(&self, key: &K, value: &V) -> u64 {
        self.0(key, value)
    }
}

impl<K, V> TtlCache<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes a cache for about `items` values, whose weights add up to `capacity` at most.
    pub(crate) fn new(items: usize, capacity: u64, weight: fn(&K, &Timed<V>) -> u64) -> Arc<Self> {
        let (weight, hash) = (Weight(weight), DefaultHashBuilder::default());
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(capacity)
            .shards(SHARDS)
            .build();
        let cached = match options {
            Ok(options) => Cache::with_options(options, weight, hash, DefaultLifecycle::default()),
            // Unreachable: fails only if an option is missing.
            Err(_) => Cache::with(items, capacity, weight, hash, DefaultLifecycle::default()),
        };
        Arc::new(Self { cached, sweeps: Once::new() })
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.cached.get(key).filter(|(_, until)| Instant::now() < *until).map(|(value, _)| value)
    }

    /// Keeps a value for `life`, up to [`LIFE`]; removes the key if `life` is zero.
    pub(crate) fn put(self: &Arc<Self>, key: K, value: V, life: Duration) {
        if life.is_zero() {
            return self.remove(&key);
        }
        self.cached.insert(key, (value, Instant::now() + life.min(LIFE)));
        self.sweeps.call_once(|| drop(tokio::spawn(Self::sweep(Arc::downgrade(self)))));
    }

    pub(crate) fn remove(&self, key: &K) {
        self.cached.remove(key);
    }

    /// Drops expired values: they may be secret, so they must not stay until their room is needed.
    async fn sweep(cache: Weak<Self>) {
        while let Some(cache) = cache.upgrade() {
            let now = Instant::now();
            cache.cached.retain(|_, (_, until)| now < *until);
            drop(cache);
            sleep(SWEEP).await;
        }
    }
}

#[cfg(test)]
mod tests;
