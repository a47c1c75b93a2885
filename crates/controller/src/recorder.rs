//! Events, queued and written by a task of their own, so that no loop waits for them; without room they are dropped.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Duration;

use super::fair_queue::FairQueue;
use super::pace::Pace;
use super::{ControllerMetrics, Leadership};
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, ObjectEvent};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::recently::Recently;
use tolerarch_support::sync::Mutex;

/// Maximum number of queued events; each takes 2 KiB at most.
const QUEUE: usize = 2048;
/// Time for which a written event is remembered, and the number of remembered events: 6 MiB at most. An event that is
/// forgotten earlier is written again, which the API server refuses.
const RECORDED: (Duration, usize) = (Duration::from_secs(3600), 1 << 15);
/// Events per second, and their burst.
const PER_SECOND: u32 = 50;
const BURST: u32 = 100;
/// Time without events in a namespace after one could not be written there, and the number of such namespaces that are
/// remembered: a namespace is being deleted, has a quota of events, or the API server does not answer.
const FAILED: (Duration, usize) = (Duration::from_secs(60), 4096);

/// Queue of events, and their writer. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    cluster: Arc<Cluster>,
    /// Name of this process in events.
    instance: String,
    book: Arc<Mutex<Book>>,
    more: Arc<Notify>,
    metrics: ControllerMetrics,
}

struct Book {
    waiting: FairQueue<ObjectEvent>,
    recorded: Recently,
    failed: Recently,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            waiting: FairQueue::new(QUEUE),
            recorded: Recently::new(RECORDED.0, RECORDED.1),
            failed: Recently::new(FAILED.0, FAILED.1),
        }
    }
}

impl Recorder {
    pub fn new(cluster: Arc<Cluster>, instance: String, metrics: ControllerMetrics) -> Self {
        Self {
            cluster,
            instance,
            book: Arc::default(),
            more: Arc::default(),
            metrics,
        }
    }

    /// Queues an event, unless one for the same object and reason was queued within the hour and not dropped.
    pub(super) fn record(&self, mut event: ObjectEvent, note: impl FnOnce() -> String) {
        let mut book = self.book.lock();
        // The name of an event does not depend on its note.
        if book.failed.contains(&event.namespace) || !book.recorded.insert(&event.name()) {
            return;
        }
        event.note = note();
        if let Some(dropped) = book.waiting.push(&event.namespace.clone(), event) {
            book.recorded.remove(&dropped.name());
            self.metrics.dropped.inc();
        }
        drop(book);
        self.more.notify_one();
    }

    /// Writes the events while this replica leads.
    pub(super) async fn run(&self, leadership: &Leadership, state: &Reported) {
        loop {
            leadership.lead(self.work(leadership, state)).await;
            // The next leader finds the events out by itself.
            *self.book.lock() = Book::default();
            state.set(State::Healthy);
        }
    }

    async fn work(&self, leadership: &Leadership, state: &Reported) {
        let pace = Pace::new(PER_SECOND, BURST);
        loop {
            let next = self.book.lock().waiting.pop();
            let Some(event) = next else {
                self.more.notified().await;
                continue;
            };
            let namespace = &*event.namespace;
            let reason = event.kind.reason;
            if self.book.lock().failed.contains(namespace) {
                self.book.lock().recorded.remove(&event.name());
                continue;
            }
            pace.turn().await;
            if !leadership.holds() {
                return;
            }
            match event.write(&self.cluster, &self.instance).await {
                Ok(()) => {
                    self.metrics.events.with_label_values(&[reason]).inc();
                    state.set(State::Healthy);
                }
                // Another leader has written the event, or this one before its restart.
                Err(ClusterError::Conflict) => {}
                Err(error) => {
                    let name = &*event.object.name;
                    tracing::warn!(namespace, name, reason, %error, "an event cannot be written");
                    let mut book = self.book.lock();
                    book.failed.insert(namespace);
                    // The event may be recorded again.
                    book.recorded.remove(&event.name());
                    // The namespace may have been deleted.
                    if error != ClusterError::NotFound {
                        state.set(State::Degraded("events cannot be written"));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
