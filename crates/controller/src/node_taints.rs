//! Taints of nodes, set as nodes register, and removed where an entry is gone or a node is not meant any more.

mod plan;
mod queue;

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use prometheus::IntCounterVec;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use self::queue::{News, Queue};
use super::loops::{Writer, Written, tell, word};
use super::pace::Pace;
use super::{ControllerSettings, Leadership, NodeTaint};
use tolerarch_kubernetes::cluster::{Change, Cluster, ClusterError, Node, PatchType, TAINTS_KEY, Watcher};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::metrics::Metrics;

/// Changes a second, so that a large cluster is no load for the API server; and how many may be made at once.
const PER_SECOND: u32 = 20;
const BURST: u32 = 40;
/// Changes under way at a time.
const WRITING: usize = 8;

pub struct NodeTaints {
    pub leadership: Leadership,
    pub cluster: Arc<Cluster>,
    pub watcher: Watcher,
    pub settings: watch::Receiver<ControllerSettings>,
    pub metrics: NodeTaintMetrics,
    pub state: Reported,
}

const UNREAD: &str = "the nodes cannot be read, and get no taints";
const FORBIDDEN: &str = "nodes cannot be changed: a right is missing";

impl NodeTaints {
    pub async fn run(&mut self) {
        loop {
            // Ends when another replica may lead.
            self.leadership.lead(self.work()).await;
            self.state.set(State::Healthy);
        }
    }

    /// Keeps up the taints until others are wanted.
    async fn work(&self) {
        let mut settings = self.settings.clone();
        let entries = settings.borrow_and_update().node_taints.clone();
        let kept = async {
            self.keep(&entries).await;
            self.state.set(State::Healthy);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // The sender lives as long as the process.
            _ = settings.wait_for(|settings| settings.node_taints != entries) => {}
            () = kept => {}
        }
    }

    /// Ends only without entries, when no node has a taint of ours, or where nodes cannot be read anyway.
    async fn keep(&self, entries: &[NodeTaint]) {
        let mut changes = self.watcher.follow::<Node>(None);
        let pace = Pace::new(PER_SECOND, BURST);
        let writer = &Writer { cluster: &self.cluster, leadership: &self.leadership, pace };
        let mut queue = Queue::default();
        let mut writes = FuturesUnordered::new();
        while !entries.is_empty() || !queue.is_settled() {
            if queue.is_settled() {
                self.state.set_fault(FORBIDDEN, false);
            }
            let due = queue.next_due().filter(|_| writes.len() < WRITING);
            tokio::select! {
                Some(change) = changes.next() => {
                    if matches!(change, Change::Failed(ClusterError::Forbidden)) && entries.is_empty() {
                        return;
                    }
                    tell(&self.state, UNREAD, &change);
                    self.notice(queue.take(change, entries));
                }
                Some((node, patch, written)) = writes.next() => {
                    let written: Written = written;
                    match written {
                        Some(Ok(())) => self.state.set_fault(FORBIDDEN, false),
                        Some(Err(ClusterError::Forbidden | ClusterError::Unauthorized)) => {
                            self.state.set_fault(FORBIDDEN, true);
                        }
                        _ => {}
                    }
                    self.notice(queue.end(node, patch, written));
                }
                () = at(due) => {
                    for (node, patch) in queue.begin(WRITING - writes.len()) {
                        writes.push(async move {
                            let written = self.write(writer, &node, &patch).await;
                            (node, patch, written)
                        });
                    }
                }
            }
        }
    }

    async fn write(&self, writer: &Writer<'_>, node: &str, patch: &Value) -> Written {
        let written = writer.patch(&format!("{}/{node}", Node::PATH), PatchType::Merge, patch).await?;
        let result = self.metrics.count(word(written));
        // Those that it has of ours from now on.
        let taints = patch["metadata"]["annotations"][TAINTS_KEY].as_str().unwrap_or_default();
        match written {
            Ok(()) => tracing::info!(node, taints, "the taints of a node are changed"),
            Err(ClusterError::Conflict | ClusterError::NotFound) => {
                tracing::debug!(node, result, "the taints of a node are not changed");
            }
            Err(error) => tracing::warn!(node, %error, "the taints of a node cannot be changed"),
        }
        Some(written)
    }

    fn notice(&self, news: Option<News>) {
        match news {
            Some(News::Contested(node)) => {
                self.metrics.count(CONTESTED);
                tracing::warn!(
                    node,
                    "another controller changes the taints of a node again and again; it is tried less and less often"
                );
            }
            Some(News::InTheWay(node)) => {
                self.metrics.count(IN_THE_WAY);
                tracing::warn!(
                    node,
                    "a node has a taint of the same key and effect with another value, set by another owner; it stays"
                );
            }
            None => {}
        }
    }
}

const CONTESTED: &str = "contested";
const IN_THE_WAY: &str = "in-the-way";

/// What is counted of it. Clones count the same.
#[derive(Clone)]
pub struct NodeTaintMetrics(IntCounterVec);

impl NodeTaintMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let results = metrics.counters(
            "tolerarch_controller_node_taints_total",
            "Tries to change the taints of nodes, by what came of them; and nodes where others want them otherwise.",
            &["result"],
        )?;
        // They are shown before they are counted.
        for result in ["changed", "gone", "conflict", "refused", "forbidden", "failed", CONTESTED, IN_THE_WAY]
        {
            results.with_label_values(&[result]);
        }
        Ok(Self(results))
    }

    fn count(&self, result: &'static str) -> &'static str {
        self.0.with_label_values(&[result]).inc();
        result
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
