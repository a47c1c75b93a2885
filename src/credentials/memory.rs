//! Values that cost something to get: each is remembered as long as it says, and fetched by one task at a time, which
//! goes on when nobody waits for it any more.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::{Duration, Instant, sleep};

use super::limits;

/// Fetches at a time; beyond that nothing is fetched.
const FLIGHTS: usize = 256;
/// The longest that anything is remembered: plugins may say what they like.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Parts of a memory, each with its own lock: few, as none can hold what is heavier than a part.
const SHARDS: usize = 4;

pub(super) struct Memory<K, V> {
    remembered: Cache<K, (V, Instant), Weight<K, V>>,
    /// Whether somebody is about to throw away what does not count any more.
    is_swept: AtomicBool,
    flights: Mutex<HashMap<K, Shared<BoxFuture<'static, Option<V>>>>>,
}

/// How much of the capacity something takes.
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

impl<K, V> Memory<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// So many values.
    pub(super) fn new(capacity: usize) -> Arc<Self> {
        Self::weighed(capacity, capacity as u64, |_, _| 1)
    }

    /// About so many values, which together have this weight at most.
    pub(super) fn weighed(items: usize, capacity: u64, weight: fn(&K, &V) -> u64) -> Arc<Self> {
        let (weight, hash) = (Weight(weight), DefaultHashBuilder::default());
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(capacity)
            .shards(SHARDS)
            .build();
        let remembered = match options {
            Ok(options) => Cache::with_options(options, weight, hash, DefaultLifecycle::default()),
            // Only where a number is missing.
            Err(_) => Cache::with(items, capacity, weight, hash, DefaultLifecycle::default()),
        };
        Arc::new(Self { remembered, is_swept: AtomicBool::new(false), flights: Mutex::default() })
    }

    /// What is remembered, if it still counts.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.remembered.get(key).filter(|(_, until)| Instant::now() < *until).map(|(value, _)| value)
    }

    /// Remembers for so long, which may be no time at all.
    pub(super) fn put(self: &Arc<Self>, key: K, value: V, life: Duration) {
        if life.is_zero() {
            self.remembered.remove(&key);
            return;
        }
        self.remembered.insert(key, (value, Instant::now() + life.min(LIFE)));
        if !self.is_swept.swap(true, Ordering::SeqCst) {
            drop(tokio::spawn(Self::sweep(Arc::downgrade(self))));
        }
    }

    /// Throws away what does not count any more, until nothing is left: it may be secret, and need not lie about until its
    /// place is wanted.
    async fn sweep(memory: Weak<Self>) {
        loop {
            sleep(limits::SWEEP).await;
            let Some(memory) = memory.upgrade() else { return };
            let now = Instant::now();
            memory.remembered.retain(|_, (_, until)| now < *until);
            memory.is_swept.store(false, Ordering::SeqCst);
            // Who puts something from now on sees to it; otherwise this goes on.
            if memory.remembered.is_empty() || memory.is_swept.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Fetches, or joins whoever is fetching the same; `None` if too many are at it, or the work has panicked, or came to
    /// nothing.
    pub(super) async fn join(
        self: &Arc<Self>,
        key: &K,
        work: impl Future<Output = Option<V>> + Send + 'static,
    ) -> Option<V> {
        let flight = {
            let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
            match flights.get(key) {
                Some(flight) => flight.clone(),
                None if flights.len() >= FLIGHTS => return None,
                None => {
                    let landing = Landing { memory: Arc::clone(self), key: key.clone() };
                    let task = tokio::spawn(async move {
                        let _landing = landing;
                        work.await
                    });
                    let flight = task.map(|landed| landed.ok().flatten()).boxed().shared();
                    flights.insert(key.clone(), flight.clone());
                    flight
                }
            }
        };
        flight.await
    }
}

/// Ends a flight, whatever became of it.
struct Landing<K: Eq + Hash, V> {
    memory: Arc<Memory<K, V>>,
    key: K,
}

impl<K: Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        self.memory.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn remembers_as_long_as_told() {
        let memory = Memory::new(10);
        memory.put("a", 1, Duration::from_secs(60));
        assert_eq!(memory.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(memory.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.get(&"a"), None);
        memory.put("a", 2, Duration::from_secs(60));
        memory.put("a", 3, Duration::ZERO);
        assert_eq!(memory.get(&"a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn throws_away_what_does_not_count_any_more() {
        let memory = Memory::new(10);
        let (short, long) = (Arc::new(()), Arc::new(()));
        for _ in 0..2 {
            memory.put("short", Arc::clone(&short), Duration::from_secs(10));
            memory.put("long", Arc::clone(&long), limits::SWEEP * 2);
            sleep(limits::SWEEP + Duration::from_secs(1)).await;
            assert_eq!((Arc::strong_count(&short), Arc::strong_count(&long)), (1, 2));
            sleep(limits::SWEEP * 2).await;
            assert_eq!(Arc::strong_count(&long), 1);
        }
        let gone = Arc::downgrade(&memory);
        drop(memory);
        sleep(limits::SWEEP).await;
        assert!(gone.upgrade().is_none());
    }

    #[tokio::test]
    async fn holds_no_more_than_its_weight() {
        let memory = Memory::weighed(100, 4000, |_, value: &Arc<[u8]>| value.len() as u64);
        let bytes: Arc<[u8]> = vec![0; 100].into();
        for key in 0..1000 {
            memory.put(key, Arc::clone(&bytes), LIFE);
        }
        assert!((2..=41).contains(&Arc::strong_count(&bytes)), "{}", Arc::strong_count(&bytes));
    }

    #[tokio::test]
    async fn one_fetches_for_all_and_goes_on_alone() {
        let memory = Memory::new(10);
        let (runs, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let fetch = || {
            let (memory, runs, go) = (Arc::clone(&memory), Arc::clone(&runs), Arc::clone(&go));
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                memory.put("a", 7, Duration::from_secs(60));
                Some(7)
            }
        };
        let mut one = Box::pin(memory.join(&"a", fetch()));
        let mut other = Box::pin(memory.join(&"a", fetch()));
        assert!(futures_util::poll!(&mut one).is_pending());
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(one);
        go.notify_one();
        assert_eq!(other.await, Some(7));
        assert_eq!(runs.load(Ordering::SeqCst), 1);

        // Nobody waits for this one, and it is remembered all the same.
        memory.put("a", 0, Duration::ZERO);
        let mut abandoned = Box::pin(memory.join(&"a", fetch()));
        assert!(futures_util::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        go.notify_one();
        while memory.get(&"a") != Some(7) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_panic_ends_one_flight_and_no_more() {
        let memory = Memory::new(10);
        assert_eq!(memory.join(&"a", async { panic!("on purpose") }).await, None::<u8>);
        assert_eq!(memory.join(&"a", async { Some(1) }).await, Some(1));
    }

    #[tokio::test]
    async fn flights_are_bounded() {
        let memory = Memory::new(10);
        let mut waiting = Vec::new();
        for key in 0..FLIGHTS {
            let mut flight = Box::pin({
                let memory = Arc::clone(&memory);
                async move { memory.join(&key, std::future::pending::<Option<()>>()).await }
            });
            assert!(futures_util::poll!(&mut flight).is_pending());
            waiting.push(flight);
        }
        assert_eq!(memory.join(&FLIGHTS, async { Some(()) }).await, None);
    }
}
