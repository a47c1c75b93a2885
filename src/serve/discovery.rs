//! Follows the NodePools and nodes of the cluster to discover pools.

use std::collections::BTreeSet;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use super::snapshot::{ClusterState, Live};
use crate::config::Discover;
use tolerarch_kubernetes::cluster::{
    self, Change, ClusterError, Node, NodePool, ObjectStore, Watcher,
};
use tolerarch_kubernetes::discovery::{Inventory, NodeKind};
use tolerarch_support::health::{Reported, State};

/// Maximum time for which readiness waits for the first reading. The pools of the configuration do not depend on it.
const FIRST_READING: Duration = Duration::from_secs(5);
/// Minimum time between two snapshots of the cluster: a thousand nodes that appear at once are one change.
const SPACING: Duration = Duration::from_millis(500);

const NOT_READ: &str =
    "NodePools or nodes have not been read yet; the pools of the configuration count";
const STALE: &str =
    "NodePools or nodes cannot be read; the last state counts, and the log says why";

pub(super) struct Discoverer {
    watcher: Watcher,
    live: Live,
    node_pools: FollowedObjects<NodePool>,
    nodes: FollowedObjects<NodeKind>,
    /// Keys of the node labels that are kept.
    labels: BTreeSet<String>,
    state: Reported,
    /// True if a change has not been published yet.
    is_unpublished: bool,
}

/// Objects of a kind that is followed.
struct FollowedObjects<V> {
    name: &'static str,
    is_on: bool,
    objects: ObjectStore<V>,
    failing: Option<ClusterError>,
}

impl<V: Clone + Default + PartialEq> FollowedObjects<V> {
    fn new(name: &'static str, is_on: bool) -> Self {
        Self {
            name,
            is_on,
            objects: ObjectStore::default(),
            failing: None,
        }
    }

    /// Returns the changes of the objects; none if the kind is off.
    fn changes<K: cluster::WatchedKind>(&self, watcher: &Watcher) -> BoxStream<'static, Change<K>> {
        if self.is_on {
            watcher.follow(None)
        } else {
            stream::pending().boxed()
        }
    }

    fn is_complete(&self) -> bool {
        !self.is_on || self.objects.is_complete()
    }

    /// Applies a change. Returns whether the objects differ from before.
    #[expect(
        clippy::cognitive_complexity,
        reason = "three log lines, whose macros count"
    )]
    fn apply<K: cluster::WatchedKind>(
        &mut self,
        change: Change<K>,
        keep: impl FnOnce(K) -> V,
    ) -> bool {
        let name = self.name;
        match &change {
            // Karpenter may be installed later.
            Change::Failed(ClusterError::NotFound) => {
                if self.failing.take().is_some() || !self.objects.is_complete() {
                    tracing::info!("the cluster has no {name}");
                }
            }
            Change::Failed(error) => {
                if self.failing.replace(*error) != Some(*error) {
                    tracing::warn!(%error, "{name} cannot be read; the last state counts until a retry succeeds");
                }
            }
            Change::Begins | Change::Unread(_) => {}
            Change::Listed(_) | Change::Complete | Change::Applied(_) | Change::Deleted(_) => {
                if self.failing.take().is_some() {
                    tracing::info!("{name} can be read again");
                }
            }
        }
        self.objects.take(change, keep)
    }
}

impl Discoverer {
    pub(super) fn new(discover: Discover, watcher: Watcher, live: Live) -> Self {
        let labels = live.selected_label_keys();
        Self {
            watcher,
            live,
            node_pools: FollowedObjects::new("NodePools", discover.node_pools),
            nodes: FollowedObjects::new("nodes", discover.nodes),
            labels,
            state: Reported::default(),
            is_unpublished: false,
        }
    }

    /// Returns a health check: starting until the first reading, then the outcome of the last reading.
    pub(super) fn readiness(&self) -> impl Fn() -> State + Send + Sync + use<> {
        let state = self.state.clone();
        let live = self.live.clone();
        let end = Instant::now() + FIRST_READING;
        move || match live.is_discovered() {
            true => state.get(),
            false if Instant::now() < end => State::Starting(NOT_READ),
            false => State::Degraded(NOT_READ),
        }
    }

    pub(super) async fn run(&mut self) {
        let mut node_pools = self.node_pools.changes(&self.watcher);
        let mut nodes = self.nodes.changes(&self.watcher);
        let mut ticks = interval(SPACING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_changed = tokio::select! {
                Some(change) = node_pools.next() => self.node_pools.apply(change, |pool: NodePool| pool),
                Some(change) = nodes.next() => {
                    self.nodes.apply(change, |node: Node| NodeKind::of(&node, &self.labels))
                }
                _ = ticks.tick() => {
                    let labels = self.live.selected_label_keys();
                    if labels != self.labels {
                        // A new configuration selects pools by other labels: list the nodes again with these.
                        self.labels = labels;
                        nodes = self.nodes.changes(&self.watcher);
                    }
                    if self.is_unpublished {
                        self.publish();
                    }
                    continue;
                }
            };
            self.is_unpublished |= has_changed;
            let failing = self.node_pools.failing.is_some() || self.nodes.failing.is_some();
            self.state.set(if failing {
                State::Degraded(STALE)
            } else {
                State::Healthy
            });
        }
    }

    fn publish(&mut self) {
        let node_pools = self.node_pools.objects.objects().values().cloned();
        let inventory = Inventory::of(node_pools, self.nodes.objects.objects().values());
        let is_complete = self.node_pools.is_complete() && self.nodes.is_complete();
        self.live.publish_cluster_state(ClusterState {
            inventory,
            is_complete,
        });
        self.is_unpublished = false;
    }
}

#[cfg(test)]
mod tests;
