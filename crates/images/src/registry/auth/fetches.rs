//! At most one request for the same token at a time: many tags of one repository are often looked up at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Requests in flight.
pub(super) struct Fetches<K, V>(Mutex<HashMap<K, watch::Receiver<Option<V>>>>);

impl<K, V> Default for Fetches<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Fetches<K, V> {
    /// The result of this work, or of another caller's for the same key. The work is done by its caller, whose time may end:
    /// then one of those who wait does it.
    pub(super) async fn join(&self, key: &K, work: impl Future<Output = V>) -> V {
        let mut work = pin!(work);
        loop {
            let begun = {
                let mut all = self.lock();
                match all.get(key) {
                    Some(other) => Err(other.clone()),
                    None => {
                        let (sender, receiver) = watch::channel(None);
                        all.insert(key.clone(), receiver);
                        Ok(sender)
                    }
                }
            };
            match begun {
                Ok(sender) => {
                    let entry = Entry { all: self, key };
                    let value = work.as_mut().await;
                    sender.send_replace(Some(value.clone()));
                    drop(entry);
                    return value;
                }
                Err(mut other) => {
                    let done = other.wait_for(Option::is_some).await;
                    if let Some(value) = done.ok().and_then(|value| value.clone()) {
                        return value;
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, watch::Receiver<Option<V>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a request when it ends, also where its caller is cut off.
struct Entry<'a, K: Eq + Hash + Clone, V: Clone> {
    all: &'a Fetches<K, V>,
    key: &'a K,
}

impl<K: Eq + Hash + Clone, V: Clone> Drop for Entry<'_, K, V> {
    fn drop(&mut self) {
        self.all.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_go_on_where_the_first_is_cut_off() {
        let (fetches, runs) = (Fetches::default(), Cell::new(0));
        let work = async || {
            runs.set(runs.get() + 1);
            yield_now().await;
            runs.get()
        };
        {
            let mut cut_off = Box::pin(fetches.join(&"a", work()));
            assert!(cut_off.as_mut().now_or_never().is_none());
            let mut waits = Box::pin(fetches.join(&"a", work()));
            assert!(waits.as_mut().now_or_never().is_none());
            assert_eq!(runs.get(), 1);
            drop(cut_off);
            assert_eq!(waits.await, 2);
        }
        let all = join_all((0..20).map(|_| fetches.join(&"a", work()))).await;
        assert_eq!(all, [3; 20]);
        assert_eq!(join_all([fetches.join(&"a", work()), fetches.join(&"b", work())]).await, [5, 5]);
        assert!(fetches.lock().is_empty());
    }
}
