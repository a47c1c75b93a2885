//! Cache of values with lifetimes.

use std::hash::Hash;
use std::sync::{Arc, Once, Weak};

use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use tokio::time::{Duration, Instant, sleep};

use tolerarch_support::sync::Mutex;

/// Maximum lifetime: plugins may demand any.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Time between sweeps, which drop expired values.
const SWEEP: Duration = Duration::from_secs(60);

pub(crate) struct TtlCache<K, V> {
    /// Without shards: in a cache with shards no value may be heavier than a shard.
    cached: Mutex<Entries<K, V>>,
    /// Set when the sweeps begin. They begin with the first value, which is put from inside the Tokio runtime.
    sweeps: Once,
}

type Entries<K, V> = Cache<K, Timed<V>, Weight<K, Timed<V>>>;

/// Value, and the end of its lifetime.
pub(crate) type Timed<V> = (V, Instant);

/// Function that weighs the entries of a cache.
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
    /// Makes a cache for about `items` values, whose weights add up to at most `capacity`.
    pub(crate) fn new(items: usize, capacity: u64, weight: fn(&K, &Timed<V>) -> u64) -> Arc<Self> {
        let cached = Mutex::new(Cache::with_weighter(items, capacity, Weight(weight)));
        Arc::new(Self {
            cached,
            sweeps: Once::new(),
        })
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let cached = self.cached.lock();
        let (value, until) = cached.get(key)?;
        if *until <= Instant::now() {
            return None;
        }
        Some(value.clone())
    }

    /// Keeps a value for `life`, up to [`LIFE`]; removes the key if `life` is zero.
    pub(crate) fn put(self: &Arc<Self>, key: K, value: V, life: Duration) {
        if life.is_zero() {
            return self.remove(&key);
        }
        let until = Instant::now() + life.min(LIFE);
        self.cached.lock().insert(key, (value, until));
        self.sweeps.call_once(|| {
            let sweeping = Self::sweep(Arc::downgrade(self));
            drop(tokio::spawn(sweeping));
        });
    }

    pub(crate) fn remove(&self, key: &K) {
        self.cached.lock().remove(key);
    }

    /// Drops expired values regularly: they may be secret, so they must not stay until the cache is full.
    async fn sweep(cache: Weak<Self>) {
        while let Some(cache) = cache.upgrade() {
            let now = Instant::now();
            cache.cached.lock().retain(|_, (_, until)| now < *until);
            drop(cache);
            sleep(SWEEP).await;
        }
    }
}

#[cfg(test)]
mod tests;
