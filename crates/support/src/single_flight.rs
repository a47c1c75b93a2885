//! Runs one task for each key at a time, which later callers join; the task continues when no caller waits any more. A
//! cache that loads a value once (quick_cache's `get_or_insert_async`, moka's `try_get_with`) does so in the future of
//! its first caller: when that is dropped, another caller begins anew, or none. Nor does it count the callers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::sync::Mutex;
use futures_util::future::{FutureExt, Shared};
use tokio::sync::oneshot;

/// The result of a task in flight; an error if the task panicked.
pub type Flight<V> = Shared<oneshot::Receiver<V>>;

/// The flight of a caller.
pub enum Run<V, I> {
    Started(Flight<V>),
    /// Another caller's, with the input of the work that was not needed.
    Joined(Flight<V>, I),
}

type InFlight<K, V> = Mutex<HashMap<K, Task<V>>>;

#[derive(Clone)]
pub struct SingleFlight<K, V>(pub(crate) Arc<InFlight<K, V>>);

pub(crate) struct Task<V> {
    flight: Flight<V>,
    /// Number of callers: the one that started the task, and those that have joined it.
    callers: usize,
}

impl<V> Task<V> {
    fn join(&mut self) -> Flight<V> {
        self.callers += 1;
        self.flight.clone()
    }
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Returns whether a task of this key is in flight.
    pub fn has(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Joins the task of this key; `None` if there is none.
    pub fn join(&self, key: &K) -> Option<Flight<V>> {
        self.0.lock().get_mut(key).map(Task::join)
    }

    /// Returns how many callers have started or joined the tasks with such a key.
    pub fn callers(&self, is_such: impl Fn(&K) -> bool) -> usize {
        let mut callers = 0;
        for (key, task) in &*self.0.lock() {
            if is_such(key) {
                callers += task.callers;
            }
        }
        callers
    }

    /// Joins the task of this key, or starts it.
    pub fn run<F>(&self, key: K, work: impl FnOnce() -> F) -> Flight<V>
    where
        K: Clone + Send + 'static,
        V: Send + Sync + 'static,
        F: Future<Output = V> + Send + 'static,
    {
        match self.join_or_start(key, (), |()| work()) {
            Run::Joined(flight, ()) | Run::Started(flight) => flight,
        }
    }

    /// Joins the task of this key, or starts it. The key is free again before the result is published, so work that
    /// begins finds the result that the task before it has stored.
    pub fn join_or_start<F, I>(&self, key: K, input: I, work: impl FnOnce(I) -> F) -> Run<V, I>
    where
        K: Clone + Send + 'static,
        V: Send + Sync + 'static,
        F: Future<Output = V> + Send + 'static,
    {
        let mut all = self.0.lock();
        if let Some(task) = all.get_mut(&key) {
            return Run::Joined(task.join(), input);
        }
        let (sender, receiver) = oneshot::channel();
        let flight = receiver.shared();
        let task = Task {
            flight: flight.clone(),
            callers: 1,
        };
        all.insert(key.clone(), task);
        // A runtime that shuts down drops the task at once, and the entry locks the map.
        drop(all);
        // The task leaves the map when it ends, also by a panic.
        let entry = scopeguard::guard((Arc::clone(&self.0), key), |(all, key)| {
            drop(all.lock().remove(&key));
        });
        let work = work(input);
        tokio::spawn(async move {
            let value = work.await;
            drop(entry);
            // An error means that no caller waits any more.
            let _ = sender.send(value);
        });
        Run::Started(flight)
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
        let runs = Arc::new(AtomicUsize::new(0));
        let go = Arc::new(Notify::new());
        let work = || {
            let runs = Arc::clone(&runs);
            let go = Arc::clone(&go);
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                7
            }
        };
        let first = flights.run("a", work);
        let second = flights.run("a", work);
        assert!(flights.join(&"a").is_some() && flights.join(&"b").is_none());
        assert_eq!(flights.callers(|key| *key == "a"), 3);
        assert_eq!(flights.callers(|key| *key == "b"), 0);
        drop(first);
        go.notify_one();
        assert_eq!((second.await, runs.load(Ordering::SeqCst)), (Ok(7), 1));
        assert_eq!(flights.count(), 0);

        drop(flights.run("a", work));
        go.notify_one();
        while flights.count() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_panic_ends_one_task_and_frees_its_key() {
        let flights = SingleFlight::<_, u8>::default();
        assert!(
            flights
                .run("a", || async { panic!("on purpose") })
                .await
                .is_err()
        );
        assert_eq!(flights.count(), 0);
        assert_eq!(flights.run("a", || async { 1 }).await, Ok(1));
    }
}
