//! Events, which a separate task writes from a queue, so that no loop waits for them. A full queue drops events.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Duration;

use super::fair_queue::FairQueue;
use super::pace::Pace;
use super::{ControllerMetrics, Leadership};
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, ObjectEvent};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::recent_work::RecentWork;
use tolerarch_support::sync::Mutex;

/// Maximum number of queued events; each takes at most 2 KiB.
const QUEUE: usize = 2048;
/// Time for which a recorded event is remembered.
const RECORDED_TIME: Duration = Duration::from_secs(3600);
/// Maximum number of recorded events that are remembered: at most 6 MiB. An event that has been forgotten may be
/// written again, and the API server refuses it.
const RECORDED_EVENTS: usize = 1 << 15;
/// Events per second.
const PER_SECOND: u32 = 50;
/// Burst of events.
const BURST: u32 = 100;
/// Time without events in a namespace after one could not be written there: the namespace is being deleted, has a quota
/// of events, or the API server does not answer.
const FAILED_TIME: Duration = Duration::from_secs(60);
/// Maximum number of such namespaces that are remembered.
const FAILED_NAMESPACES: usize = 4096;

/// Queue of events, and their writer. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    cluster: Arc<Cluster>,
    /// Name of this process in events.
    instance: String,
    queue: Arc<Mutex<Queue>>,
    more: Arc<Notify>,
    metrics: ControllerMetrics,
}

struct Queue {
    waiting: FairQueue<ObjectEvent>,
    /// Names of events that were queued recently, and not dropped.
    recorded: RecentWork,
    /// Namespaces in which an event could not be written recently.
    failed: RecentWork,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            waiting: FairQueue::new(QUEUE),
            recorded: RecentWork::new(RECORDED_TIME, RECORDED_EVENTS),
            failed: RecentWork::new(FAILED_TIME, FAILED_NAMESPACES),
        }
    }
}

impl Recorder {
    pub fn new(cluster: Arc<Cluster>, instance: String, metrics: ControllerMetrics) -> Self {
        Self {
            cluster,
            instance,
            queue: Arc::default(),
            more: Arc::default(),
            metrics,
        }
    }

    /// Queues an event, unless one for the same object and reason was queued within the last hour and not dropped.
    pub(super) fn record(&self, mut event: ObjectEvent, note: impl FnOnce() -> String) {
        let mut queue = self.queue.lock();
        // The name of an event does not depend on its note.
        if queue.failed.contains(&event.namespace) || !queue.recorded.insert(&event.name()) {
            return;
        }
        event.note = note();
        if let Some(dropped) = queue.waiting.push(&event.namespace.clone(), event) {
            queue.recorded.remove(&dropped.name());
            self.metrics.dropped.inc();
        }
        drop(queue);
        self.more.notify_one();
    }

    /// Writes the events while this replica leads.
    pub(super) async fn run(&self, leadership: &Leadership, state: &Reported) {
        loop {
            leadership.lead(self.work(leadership, state)).await;
            // The next leader records the events itself.
            *self.queue.lock() = Queue::default();
            state.set(State::Healthy);
        }
    }

    async fn work(&self, leadership: &Leadership, state: &Reported) {
        let pace = Pace::new(PER_SECOND, BURST);
        loop {
            let next = self.queue.lock().waiting.pop();
            let Some(event) = next else {
                self.more.notified().await;
                continue;
            };
            let namespace = &*event.namespace;
            let reason = event.kind.reason;
            if self.queue.lock().failed.contains(namespace) {
                self.queue.lock().recorded.remove(&event.name());
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
                // Another leader has written the event, or this replica before its restart.
                Err(ClusterError::Conflict) => {}
                Err(error) => {
                    let name = &*event.object.name;
                    tracing::warn!(namespace, name, reason, %error, "an event cannot be written");
                    let mut queue = self.queue.lock();
                    queue.failed.insert(namespace);
                    // The event may be recorded again.
                    queue.recorded.remove(&event.name());
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
