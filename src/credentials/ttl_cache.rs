//! A cache of values that cost something to get: each has a lifetime of its own, and is fetched by one task at a time,
//! which goes on when its callers are gone.

use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::{Duration, Instant, sleep};

use super::limits;
use crate::concurrency::Callers;
use crate::single_flight::SingleFlight;

/// Fetches at a time; beyond that nothing is fetched.
const FLIGHTS: usize = 256;
/// The longest lifetime: plugins may ask for any.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Shards, each with its own lock: few, as no value may be heavier than a shard.
const SHARDS: usize = 4;

pub(super) struct TtlCache<K, V> {
    cached: Cache<K, (V, Instant), Weight<K, V>>,
    /// Whether a sweep is scheduled.
    is_swept: AtomicBool,
    flights: SingleFlight<K, Option<V>, Callers>,
}

/// How much of the capacity an entry takes.
struct Weight<K, V>(fn(&K, &V) -> u64);

impl<K, V> Clone for Weight<K, V> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<K, V> Weighter<K, (V, Instant)> for Weight<K, V> {
    fn weight(&self, key: &K, (value, _): &(V, Instant)) -> u64 {
        self.0(key, value)
    }
}

impl<K, V> TtlCache<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// For so many values.
    pub(super) fn new(capacity: usize) -> Arc<Self> {
        Self::weighed(capacity, capacity as u64, |_, _| 1)
    }

    /// For about so many values, of this weight in all at most.
    pub(super) fn weighed(items: usize, capacity: u64, weight: fn(&K, &V) -> u64) -> Arc<Self> {
        let (weight, hash) = (Weight(weight), DefaultHashBuilder::default());
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(capacity)
            .shards(SHARDS)
            .build();
        let cached = match options {
            Ok(options) => Cache::with_options(options, weight, hash, DefaultLifecycle::default()),
            // Only if an option is missing.
            Err(_) => Cache::with(items, capacity, weight, hash, DefaultLifecycle::default()),
        };
        Arc::new(Self { cached, is_swept: AtomicBool::new(false), flights: SingleFlight::default() })
    }

    /// The value, unless it has expired.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.cached.get(key).filter(|(_, until)| Instant::now() < *until).map(|(value, _)| value)
    }

    /// Keeps a value for so long; not at all for no time.
    pub(super) fn put(self: &Arc<Self>, key: K, value: V, life: Duration) {
        if life.is_zero() {
            self.cached.remove(&key);
            return;
        }
        self.cached.insert(key, (value, Instant::now() + life.min(LIFE)));
        if !self.is_swept.swap(true, Ordering::SeqCst) {
            drop(tokio::spawn(Self::sweep(Arc::downgrade(self))));
        }
    }

    /// Drops expired values until none is left: they may be secret, and must not stay until their room is needed.
    async fn sweep(cache: Weak<Self>) {
        loop {
            sleep(limits::SWEEP).await;
            let Some(cache) = cache.upgrade() else { return };
            let now = Instant::now();
            cache.cached.retain(|_, (_, until)| now < *until);
            cache.is_swept.store(false, Ordering::SeqCst);
            // A value put from now on schedules its own sweep; otherwise this one goes on.
            if cache.cached.is_empty() || cache.is_swept.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Fetches, or joins the fetch of the same key that is in flight, to which these callers then bring their shares.
    /// `None` where too many are, where the work panicked, and where it could not be done.
    pub(super) async fn join<F>(
        &self,
        key: &K,
        callers: &Callers,
        work: impl FnOnce(Callers) -> F,
    ) -> Option<V>
    where
        F: Future<Output = Option<V>> + Send + 'static,
    {
        let (flight, all) = {
            let flights = self.flights.lock();
            match flights.get(key) {
                Some(flight) => flight.clone(),
                None if flights.len() >= FLIGHTS => return None,
                None => {
                    let all = callers.fork();
                    let work = work(all.clone());
                    (flights.start(key.clone(), all.clone(), work), all)
                }
            }
        };
        tokio::select! {
            value = flight => value.ok().flatten(),
            () = all.follow(callers) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keeps_values_for_their_lifetime() {
        let cache = TtlCache::new(10);
        cache.put("a", 1, Duration::from_secs(60));
        assert_eq!(cache.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(cache.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&"a"), None);
        cache.put("a", 2, Duration::from_secs(60));
        cache.put("a", 3, Duration::ZERO);
        assert_eq!(cache.get(&"a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn drops_expired_values() {
        let cache = TtlCache::new(10);
        let (short, long) = (Arc::new(()), Arc::new(()));
        for _ in 0..2 {
            cache.put("short", Arc::clone(&short), Duration::from_secs(10));
            cache.put("long", Arc::clone(&long), limits::SWEEP * 2);
            sleep(limits::SWEEP + Duration::from_secs(1)).await;
            assert_eq!((Arc::strong_count(&short), Arc::strong_count(&long)), (1, 2));
            sleep(limits::SWEEP * 2).await;
            assert_eq!(Arc::strong_count(&long), 1);
        }
        let gone = Arc::downgrade(&cache);
        drop(cache);
        sleep(limits::SWEEP).await;
        assert!(gone.upgrade().is_none());
    }

    #[tokio::test]
    async fn holds_no_more_than_its_weight() {
        let cache = TtlCache::weighed(100, 4000, |_, value: &Arc<[u8]>| value.len() as u64);
        let bytes: Arc<[u8]> = vec![0; 100].into();
        for key in 0..1000 {
            cache.put(key, Arc::clone(&bytes), LIFE);
        }
        assert!((2..=41).contains(&Arc::strong_count(&bytes)), "{}", Arc::strong_count(&bytes));
    }

    #[tokio::test]
    async fn one_fetches_for_all_and_goes_on_alone() {
        let cache = TtlCache::new(10);
        let (runs, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let fetch = || {
            let (cache, runs, go) = (Arc::clone(&cache), Arc::clone(&runs), Arc::clone(&go));
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                cache.put("a", 7, Duration::from_secs(60));
                Some(7)
            }
        };
        let operator = Callers::operator();
        let mut one = Box::pin(cache.join(&"a", &operator, |_| fetch()));
        let mut other = Box::pin(cache.join(&"a", &operator, |_| fetch()));
        assert!(futures_util::poll!(&mut one).is_pending());
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(one);
        go.notify_one();
        assert_eq!(other.await, Some(7));
        assert_eq!(runs.load(Ordering::SeqCst), 1);

        // Its only caller goes away, and its value is kept all the same.
        cache.put("a", 0, Duration::ZERO);
        let mut abandoned = Box::pin(cache.join(&"a", &operator, |_| fetch()));
        assert!(futures_util::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        go.notify_one();
        while cache.get(&"a") != Some(7) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_panic_ends_one_flight_and_no_more() {
        let cache = TtlCache::new(10);
        assert_eq!(
            cache.join(&"a", &Callers::operator(), |_| async { panic!("on purpose") }).await,
            None::<u8>
        );
        assert_eq!(cache.join(&"a", &Callers::operator(), |_| async { Some(1) }).await, Some(1));
    }

    #[tokio::test]
    async fn flights_are_bounded() {
        let cache = TtlCache::new(10);
        let mut waiting = Vec::new();
        for key in 0..FLIGHTS {
            let mut flight = Box::pin({
                let cache = Arc::clone(&cache);
                async move {
                    cache.join(&key, &Callers::operator(), |_| std::future::pending::<Option<()>>()).await
                }
            });
            assert!(futures_util::poll!(&mut flight).is_pending());
            waiting.push(flight);
        }
        assert_eq!(cache.join(&FLIGHTS, &Callers::operator(), |_| async { Some(()) }).await, None);
    }
}
