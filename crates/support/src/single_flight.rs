//! One task for each key at a time, which later callers join. The task continues even if no caller waits any more. A cache
//! that loads each value once (quick_cache's `get_or_insert_async`, moka's `try_get_with`) does so in the future of its
//! first caller. If that future is dropped, another caller starts again, or none. Such a cache does not count callers
//! either.

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
    /// The flight of another caller, and the unused input of the work.
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
    /// Returns whether a task with this key is in flight.
    pub fn has(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }

    /// Joins the task with this key; `None` if there is none.
    pub fn join(&self, key: &K) -> Option<Flight<V>> {
        let mut tasks = self.0.lock();
        let task = tasks.get_mut(key)?;
        Some(task.join())
    }

    /// Returns how many callers have started or joined tasks for whose key `matches` holds.
    pub fn callers(&self, matches: impl Fn(&K) -> bool) -> usize {
        let mut callers = 0;
        for (key, task) in &*self.0.lock() {
            if matches(key) {
                callers += task.callers;
            }
        }
        callers
    }

    /// Joins the task with this key, or starts it.
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

    /// Joins the task with this key, or starts it. The key becomes free before the result is published. So the next task of
    /// the key finds what this task has stored.
    pub fn join_or_start<F, I>(&self, key: K, input: I, work: impl FnOnce(I) -> F) -> Run<V, I>
    where
        K: Clone + Send + 'static,
        V: Send + Sync + 'static,
        F: Future<Output = V> + Send + 'static,
    {
        let mut tasks = self.0.lock();
        if let Some(task) = tasks.get_mut(&key) {
            return Run::Joined(task.join(), input);
        }
        let (sender, receiver) = oneshot::channel();
        let flight = receiver.shared();
        let task = Task {
            flight: flight.clone(),
            callers: 1,
        };
        tasks.insert(key.clone(), task);
        // A runtime that shuts down drops the task at once; then the guard locks the map.
        drop(tasks);
        // The task leaves the map when it ends, even by a panic.
        let entry = scopeguard::guard((Arc::clone(&self.0), key), |(tasks, key)| {
            drop(tasks.lock().remove(&key));
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
    async fn callers_join_the_task_which_continues_without_them() {
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
    async fn panic_ends_the_task_and_frees_its_key() {
        let flights = SingleFlight::<_, u8>::default();
        let panicking = flights.run("a", || async { panic!("on purpose") });
        assert!(panicking.await.is_err());
        assert_eq!(flights.count(), 0);
        assert_eq!(flights.run("a", || async { 1 }).await, Ok(1));
    }
}
