//! Follows the NodePools and nodes of the cluster, so that pools are what the cluster says.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream::{BoxStream, StreamExt};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use super::snapshot::{Discovered, Live};
use crate::config::Discover;
use tolerarch_kubernetes::cluster::{self, Change, ClusterError, Known, Node, NodePool, Watcher};
use tolerarch_kubernetes::discovery::{Inventory, NodeKind};
use tolerarch_support::health::{Reported, State};

/// How long readiness waits for the first reading. Pools of the configuration are open without it.
const FIRST_READING: Duration = Duration::from_secs(5);
/// Between two snapshots that follow from what the cluster shows: a thousand nodes that come at once are one change.
const SPACING: Duration = Duration::from_millis(500);

const NOT_READ: &str = "NodePools or nodes have not been read yet; the pools of the configuration count";
const STALE: &str = "NodePools or nodes cannot be read; what was read last counts, and the log says why";

pub(super) struct Discoverer {
    watcher: Watcher,
    live: Live,
    /// None where it is not to be followed.
    node_pools: Option<Followed<NodePool>>,
    nodes: Option<Followed<Arc<NodeKind>>>,
    /// The kinds of all nodes, each once.
    kinds: HashSet<Arc<NodeKind>>,
    state: Reported,
    is_read: Arc<AtomicBool>,
    /// Whether there is something that has not been published.
    is_new: bool,
}

struct Followed<V> {
    name: &'static str,
    known: Known<V>,
    failing: Option<ClusterError>,
}

impl<V: Clone + Default + PartialEq> Followed<V> {
    fn new(name: &'static str) -> Self {
        Self { name, known: Known::default(), failing: None }
    }

    /// Takes over a change. Returns whether something is new.
    fn take<K: cluster::Followed>(&mut self, change: Change<K>, keep: impl FnOnce(K) -> V) -> bool {
        let name = self.name;
        match &change {
            // A cluster without Karpenter may get it later.
            Change::Failed(ClusterError::NotFound) => {
                if self.failing.take().is_some() || !self.known.is_complete() {
                    tracing::info!("the cluster has no {name}");
                }
            }
            Change::Failed(error) => {
                if self.failing.replace(*error) != Some(*error) {
                    tracing::warn!(%error, "{name} cannot be read; what was read last counts, and they are tried again");
                }
            }
            Change::Begins | Change::Unread(_) => {}
            Change::Listed(_) | Change::Complete | Change::Applied(_) | Change::Deleted(_) => {
                if self.failing.take().is_some() {
                    tracing::info!("{name} are read again");
                }
            }
        }
        self.known.take(change, keep)
    }
}

impl Discoverer {
    pub(super) fn new(discover: Discover, watcher: Watcher, live: Live) -> Self {
        Self {
            watcher,
            live,
            node_pools: discover.node_pools.then(|| Followed::new("NodePools")),
            nodes: discover.nodes.then(|| Followed::new("nodes")),
            kinds: HashSet::new(),
            state: Reported::default(),
            is_read: Arc::default(),
            is_new: false,
        }
    }

    /// Whether all that is to be read has been read once.
    pub(super) fn is_read(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_read)
    }

    /// Whether the first reading is waited for, and how the last one went.
    pub(super) fn readiness(&self) -> impl Fn() -> State + Send + Sync + use<> {
        let (state, is_read, end) =
            (self.state.clone(), Arc::clone(&self.is_read), Instant::now() + FIRST_READING);
        move || match is_read.load(Ordering::Relaxed) {
            true => state.get(),
            false if Instant::now() < end => State::Starting(NOT_READ),
            false => State::Degraded(NOT_READ),
        }
    }

    pub(super) async fn run(&mut self) {
        let mut node_pools = self.node_pools.is_some().then(|| self.follow::<NodePool>());
        let mut nodes = self.nodes.is_some().then(|| self.follow::<Node>());
        let mut ticks = interval(SPACING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_new = tokio::select! {
                change = next(&mut node_pools) => {
                    self.node_pools.as_mut().is_some_and(|known| known.take(change, |pool| pool))
                }
                change = next(&mut nodes) => {
                    let kinds = &mut self.kinds;
                    let keep = |node: Node| intern(kinds, NodeKind::of(&node));
                    self.nodes.as_mut().is_some_and(|known| known.take(change, keep))
                }
                _ = ticks.tick(), if self.is_new => {
                    self.publish();
                    continue;
                }
            };
            self.is_new |= is_new;
            self.report();
        }
    }

    fn follow<K: cluster::Followed>(&self) -> BoxStream<'static, Change<K>> {
        self.watcher.follow(None)
    }

    fn is_complete(&self) -> bool {
        self.node_pools.as_ref().is_none_or(|pools| pools.known.is_complete())
            && self.nodes.as_ref().is_none_or(|nodes| nodes.known.is_complete())
    }

    fn report(&self) {
        let failing = self.node_pools.as_ref().is_some_and(|pools| pools.failing.is_some())
            || self.nodes.as_ref().is_some_and(|nodes| nodes.failing.is_some());
        self.state.set(if failing { State::Degraded(STALE) } else { State::Healthy });
    }

    fn publish(&mut self) {
        let node_pools = self.node_pools.iter().flat_map(|pools| pools.known.values()).cloned();
        let nodes = self.nodes.iter().flat_map(|nodes| nodes.known.values()).map(|kind| &**kind);
        let inventory = Inventory::of(node_pools, nodes);
        let is_complete = self.is_complete();
        self.live.discovered(Discovered { inventory, is_complete });
        self.kinds.retain(|kind| Arc::strong_count(kind) > 1);
        self.is_new = false;
        // What is read counts from now on.
        self.is_read.fetch_or(is_complete, Ordering::Relaxed);
    }
}

/// The one of these kinds that is equal.
fn intern(kinds: &mut HashSet<Arc<NodeKind>>, kind: NodeKind) -> Arc<NodeKind> {
    if let Some(known) = kinds.get(&kind) {
        return Arc::clone(known);
    }
    let kind = Arc::new(kind);
    kinds.insert(Arc::clone(&kind));
    kind
}

/// The next change, if any are followed.
async fn next<K>(changes: &mut Option<BoxStream<'static, Change<K>>>) -> Change<K> {
    if let Some(change) = async { changes.as_mut()?.next().await }.await {
        return change;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
