//! At most one task for each key at a time, which later callers join; it goes on when none of them waits any more.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, MutexGuard};

use crate::sync::Mutex;
use futures_util::future::{FutureExt, Shared};
use tokio::sync::oneshot;

/// The result of a task in flight; an error if the task panicked.
pub type Flight<V> = Shared<oneshot::Receiver<V>>;

type Map<K, V, T> = HashMap<K, (Flight<V>, T)>;

/// The tasks in flight, each with a tag.
pub struct SingleFlight<K, V, T = ()>(Arc<Mutex<Map<K, V, T>>>);

/// The tasks in flight, locked: none begins and none ends as long as this is held.
pub struct InFlight<'a, K, V, T = ()> {
    map: MutexGuard<'a, Map<K, V, T>>,
    all: &'a Arc<Mutex<Map<K, V, T>>>,
}

impl<K, V, T> Default for SingleFlight<K, V, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, V, T> SingleFlight<K, V, T> {
    pub fn lock(&self) -> InFlight<'_, K, V, T> {
        InFlight { map: self.0.lock(), all: &self.0 }
    }
}

impl<K: Eq + Hash, V: Clone, T> InFlight<'_, K, V, T> {
    pub fn count(&self) -> usize {
        self.map.len()
    }

    pub fn get<Q>(&self, key: &Q) -> Option<&(Flight<V>, T)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.map.get(key)
    }

    /// The key is free again before the result is published, so a caller that finds no task finds what it has stored.
    pub fn start(mut self, key: K, tag: T, work: impl Future<Output = V> + Send + 'static) -> Flight<V>
    where
        K: Clone + Send + 'static,
        V: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let flight = receiver.shared();
        self.map.insert(key.clone(), (flight.clone(), tag));
        let entry = Entry { all: Arc::clone(self.all), key };
        // A runtime that shuts down drops the task at once, and the entry locks the map.
        drop(self);
        tokio::spawn(async move {
            let value = work.await;
            drop(entry);
            // An error means that no caller waits any more.
            let _ = sender.send(value);
        });
        flight
    }
}

/// Removes a task from the map when it ends, also by a panic.
struct Entry<K: Eq + Hash, V, T> {
    all: Arc<Mutex<Map<K, V, T>>>,
    key: K,
}

impl<K: Eq + Hash, V, T> Drop for Entry<K, V, T> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn callers_join_the_task_in_flight_which_goes_on_without_them() {
        let flights = SingleFlight::default();
        let (runs, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let work = || {
            let (runs, go) = (Arc::clone(&runs), Arc::clone(&go));
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                7
            }
        };
        let first = flights.lock().start("a", (), work());
        let second = flights.lock().get("a").unwrap().0.clone();
        assert!(flights.lock().get("b").is_none());
        drop(first);
        go.notify_one();
        assert_eq!((second.await, runs.load(Ordering::SeqCst)), (Ok(7), 1));
        assert_eq!(flights.lock().count(), 0);

        drop(flights.lock().start("a", (), work()));
        go.notify_one();
        while flights.lock().count() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_panic_ends_one_task_and_frees_its_key() {
        let flights = SingleFlight::<_, u8>::default();
        assert!(flights.lock().start("a", (), async { panic!("on purpose") }).await.is_err());
        assert_eq!(flights.lock().count(), 0);
        assert_eq!(flights.lock().start("a", (), async { 1 }).await, Ok(1));
    }
}
