//! Taints of nodes, as the configuration wants them: set as nodes register, and removed where an entry is gone or a node is
//! not meant any more.

mod plan;
mod queue;
mod write;

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub use write::NodeTaintMetrics;

use self::queue::{News, Queue};
use self::write::{Written, write};
use super::pace::Pace;
use super::{ControllerSettings, Leadership, NodeTaint};
use tolerarch_kubernetes::cluster::{Change, Cluster, ClusterError, Selection, TaintedNode, Watcher};
use tolerarch_support::health::Conditions;

/// Changes a second, so that a large cluster is no load for the API server; and how many may be made at once.
const PER_SECOND: u32 = 20;
const BURST: u32 = 40;
/// Changes under way at a time.
const WRITING: usize = 8;

/// The loop.
pub struct NodeTaints {
    /// Whether it may run.
    pub leadership: Leadership,
    /// What changes nodes.
    pub cluster: Arc<Cluster>,
    /// What follows them.
    pub watcher: Watcher,
    /// Which taints they are to have.
    pub settings: watch::Receiver<ControllerSettings>,
    /// What it counts by.
    pub metrics: NodeTaintMetrics,
    /// What is wrong.
    pub conditions: Conditions,
}

/// What may be wrong.
const UNREAD: &str = "the nodes cannot be read, and get no taints";
const FORBIDDEN: &str = "nodes cannot be changed: a right is missing";

impl NodeTaints {
    /// Goes on for ever.
    pub async fn run(&mut self) {
        loop {
            // Ends when another replica may lead.
            self.leadership.lead(self.work(self.settings.clone())).await;
            self.conditions.clear();
        }
    }

    async fn work(&self, mut settings: watch::Receiver<ControllerSettings>) {
        loop {
            let entries = settings.borrow_and_update().node_taints.clone();
            let others = async {
                // The sender lives as long as the process.
                let _ = settings.wait_for(|settings| settings.node_taints != entries).await;
            };
            let kept = async {
                self.keep(&entries).await;
                self.conditions.clear();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = others => {}
                () = kept => {}
            }
        }
    }

    /// Ends only without entries, when no node has a taint of ours, or where nodes cannot be read anyway.
    async fn keep(&self, entries: &[NodeTaint]) {
        let mut changes = self.watcher.follow::<TaintedNode>(Selection::default());
        let (mut queue, pace) = (Queue::default(), &Pace::new(PER_SECOND, BURST));
        let mut writes = FuturesUnordered::new();
        while !entries.is_empty() || !queue.is_settled() {
            if queue.is_settled() {
                self.conditions.set(FORBIDDEN, false);
            }
            let due = queue.next_due().filter(|_| writes.len() < WRITING);
            tokio::select! {
                Some(change) = changes.next() => {
                    match &change {
                        Change::Failed(ClusterError::Forbidden) if entries.is_empty() => return,
                        Change::Failed(error) => {
                            tracing::error!(%error, "{UNREAD}");
                            self.conditions.set(UNREAD, true);
                        }
                        Change::Complete => self.conditions.set(UNREAD, false),
                        _ => {}
                    }
                    self.tell(queue.take(change, entries));
                }
                Some((node, patch, written)) = writes.next() => {
                    let written: Written = written;
                    self.metrics.wrote(written);
                    match written {
                        Written::Changed => self.conditions.set(FORBIDDEN, false),
                        Written::Forbidden => self.conditions.set(FORBIDDEN, true),
                        _ => {}
                    }
                    self.tell(queue.end(node, patch, written));
                }
                () = at(due) => {
                    for (node, patch) in queue.begin(WRITING - writes.len()) {
                        writes.push(async move {
                            pace.turn().await;
                            let written = match self.leadership.holds() {
                                true => write(&self.cluster, &node, &patch).await,
                                false => Written::NotLeading,
                            };
                            (node, patch, written)
                        });
                    }
                }
            }
        }
    }

    fn tell(&self, news: Option<News>) {
        let Some(news) = news else { return };
        self.metrics.news(&news);
        match news {
            News::Contested(node) => tracing::warn!(
                node,
                "another controller changes the taints of a node again and again; it is tried less and less often"
            ),
            News::InTheWay(node) => tracing::warn!(
                node,
                "a node has a taint of the same key and effect with another value, set by another owner; it stays"
            ),
        }
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
