//! Who may read a pull secret now: a few at a time, and of one namespace still fewer, so that none has to wait for the
//! secrets of another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::limits;

pub(super) struct Turns {
    all: Semaphore,
    namespaces: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// Takes the place of one who waits or reads; ends when it is dropped.
pub(super) struct Queued<'t> {
    turns: &'t Turns,
    namespace: Arc<str>,
    own: Arc<Semaphore>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Semaphore::new(limits::READS), namespaces: Mutex::default() }
    }

    /// `None` where too many of this namespace wait already.
    pub(super) fn queue(&self, namespace: &Arc<str>) -> Option<Queued<'_>> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let own = namespaces
            .entry(Arc::clone(namespace))
            .or_insert_with(|| Arc::new(Semaphore::new(limits::READS_OF_NAMESPACE)));
        // One is that of the map.
        if Arc::strong_count(own) > limits::QUEUE_OF_NAMESPACE {
            return None;
        }
        Some(Queued { turns: self, namespace: Arc::clone(namespace), own: Arc::clone(own) })
    }
}

impl Queued<'_> {
    /// Waits for the turn, which lasts as long as what is given; first within the namespace, so that of those who wait
    /// for a turn among all no namespace has more than a few either.
    pub(super) async fn turn(&self) -> Option<[SemaphorePermit<'_>; 2]> {
        // Never closed.
        Some([self.own.acquire().await.ok()?, self.turns.all.acquire().await.ok()?])
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut namespaces = self.turns.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        // This one and that of the map: nobody else is there.
        if Arc::strong_count(&self.own) == 2 {
            namespaces.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn no_namespace_has_all_turns() {
        let turns = Turns::new();
        let queue = |namespace: &str| turns.queue(&namespace.into());
        let greedy: Vec<_> = (0..limits::QUEUE_OF_NAMESPACE).map(|_| queue("greedy").unwrap()).collect();
        assert!(queue("greedy").is_none());
        let mut waiting: Vec<_> = greedy.iter().map(|own| Box::pin(own.turn())).collect();
        let mut had = Vec::new();
        for turn in &mut waiting {
            if let std::task::Poll::Ready(turn) = poll!(turn) {
                had.push(turn.unwrap());
            }
        }
        assert_eq!(had.len(), limits::READS_OF_NAMESPACE);
        let other = queue("other").unwrap();
        assert!(poll!(Box::pin(other.turn())).is_ready());
    }

    #[tokio::test]
    async fn no_more_than_a_few_read_at_a_time() {
        let turns = Turns::new();
        let queued: Vec<_> =
            (0..=limits::READS).map(|place| turns.queue(&format!("n{place}").into()).unwrap()).collect();
        let mut had = Vec::new();
        for own in &queued[1..] {
            had.push(own.turn().await.unwrap());
        }
        let mut last = Box::pin(queued[0].turn());
        assert!(poll!(&mut last).is_pending());
        had.pop();
        assert!(last.await.is_some());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_those_who_have_gone() {
        let turns = Turns::new();
        let (one, other) = (turns.queue(&"team".into()), turns.queue(&"team".into()));
        drop(one);
        assert_eq!(turns.namespaces.lock().unwrap().len(), 1);
        drop(other);
        assert!(turns.namespaces.lock().unwrap().is_empty());
    }
}
