//! Events, written behind what they are about: those that have no room are dropped, and none is waited for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Duration;

use super::fair_queue::FairQueue;
use super::note::EventReason;
use super::pace::Pace;
use super::{ControllerMetrics, Leadership};
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, PodEvent, StoredPod};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::recently::Recently;

/// Events that wait; each takes 2 KiB at most.
const QUEUE: usize = 2048;
/// For how long, and of how many events, it is known that they were written: 6 MiB at most. What is forgotten earlier is
/// written again, which the API server refuses.
const TOLD: (Duration, usize) = (Duration::from_secs(3600), 1 << 15);
/// Events a second, as many as repairs; and how many at once.
const PER_SECOND: u32 = 50;
const BURST: u32 = 100;
/// For how long no more are written to a namespace where that has failed: it is about to go, has a quota of them, or the API
/// server does not answer. And of how many namespaces that is known.
const FAILED: (Duration, usize) = (Duration::from_secs(60), 4096);
/// Takes events. Clones are the same.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    more: Notify,
    metrics: ControllerMetrics,
}

struct Book {
    waiting: FairQueue<(EventReason, PodEvent)>,
    told: Recently,
    failed: Recently,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            waiting: FairQueue::new(QUEUE),
            told: Recently::new(TOLD.0, TOLD.1),
            failed: Recently::new(FAILED.0, FAILED.1),
        }
    }
}

impl Recorder {
    /// Drops events that have no room, and counts that.
    pub fn new(metrics: ControllerMetrics) -> Self {
        Self(Arc::new(Shared { book: Mutex::default(), more: Notify::new(), metrics }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event, unless there was one for the same Pod and reason within the hour. One that is dropped may be taken
    /// again.
    pub(super) fn record(&self, reason: EventReason, pod: &StoredPod, note: impl FnOnce() -> String) {
        let mut book = self.book();
        // Its name does not depend on what it says.
        let mut event = reason.on(pod, String::new());
        if book.failed.contains(pod.namespace()) || !book.told.insert(&event.name()) {
            return;
        }
        event.note = note();
        if let Some((_, dropped)) = book.waiting.push(pod.namespace(), (reason, event)) {
            book.told.remove(&dropped.name());
            self.0.metrics.dropped_event();
        }
        drop(book);
        self.0.more.notify_one();
    }
}

/// The loop that writes them.
pub struct EventLoop {
    /// Whether it may run.
    pub leadership: Leadership,
    /// What it writes to.
    pub cluster: Arc<Cluster>,
    /// What has taken them.
    pub recorder: Recorder,
    /// Which process reports.
    pub instance: String,
    /// How it fares.
    pub state: Reported,
}

impl EventLoop {
    /// Goes on for ever.
    pub async fn run(&mut self) {
        loop {
            self.leadership.lead(self.work()).await;
            // Another replica finds them out by itself.
            *self.recorder.book() = Book::default();
            self.state.set(State::Healthy);
        }
    }

    async fn work(&self) {
        let pace = Pace::new(PER_SECOND, BURST);
        loop {
            let next = self.recorder.book().waiting.pop();
            let Some((reason, event)) = next else {
                self.recorder.0.more.notified().await;
                continue;
            };
            let is_failing = self.recorder.book().failed.contains(&event.namespace);
            let error = if is_failing {
                Some(ClusterError::Resting)
            } else {
                pace.turn().await;
                if !self.leadership.holds() {
                    return;
                }
                self.write(reason, &event).await.err()
            };
            if error.is_some() {
                // It may be told again.
                self.recorder.book().told.remove(&event.name());
            }
        }
    }

    async fn write(&self, reason: EventReason, event: &PodEvent) -> Result<(), ClusterError> {
        match event.write(&self.cluster, &self.instance).await {
            Ok(()) => {
                self.recorder.0.metrics.wrote(reason);
                self.state.set(State::Healthy);
                Ok(())
            }
            // Another leader was first, or this one before its restart.
            Err(ClusterError::Conflict) => Ok(()),
            Err(error) => {
                let (namespace, pod, reason) = (&*event.namespace, &*event.pod, reason.as_str());
                tracing::warn!(namespace, pod, reason, %error, "an event cannot be written");
                self.recorder.book().failed.insert(namespace);
                // The namespace is gone.
                if error != ClusterError::NotFound {
                    self.state.set(State::Degraded("events cannot be written"));
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
