//! What the NodePools and nodes of a cluster say about pools, their platforms and what Karpenter would choose. Pure.

mod inventory;
mod metrics;
mod next_node;
mod platforms;
mod taints;

use std::collections::BTreeMap;

pub use inventory::{Inventory, NodeKind};
pub use metrics::DiscoveryMetrics;
pub use next_node::{Obstacle, Verdict, next_node_pool};
pub use taints::{Fit, fit};

use crate::cluster::{NodePool, Taint};
use platforms::of_node_pool;
use taints::{exact, is_tolerable, is_tolerated, is_wish};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::{Pool, is_pool_name};

/// The label by which a NodePool is a pool of this name.
pub(crate) const POOL_LABEL: &str = "tolerarch.io/pool";

/// Pools that are found: each has a label of metrics, and its tolerations may be in every Pod.
const MOST: usize = 64;

/// Who says that there is a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Configured,
    /// The label of a NodePool.
    Discovered,
}

/// A pool, and what the cluster says about it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPool<'a> {
    /// It, with the platforms that its nodes can have: those that are declared, and those that the cluster shows.
    pub pool: Pool,
    /// The platforms that the configuration, or the requirements of its NodePools, declare.
    pub declared: PlatformSet,
    pub source: Source,
    /// The NodePools that it opens, in the order in which Karpenter tries them.
    pub node_pools: Vec<&'a NodePool>,
    pub nodes: usize,
    pub verdict: Verdict<'a>,
}

impl KnownPool<'_> {
    /// The platforms of nodes that it opens and that are not declared.
    pub fn mismatch(&self) -> PlatformSet {
        self.pool.platforms.difference(self.declared)
    }
}

/// What the cluster says about all pools.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovery<'a> {
    /// Those of the configuration in its order, then those that were found, by name.
    pub pools: Vec<KnownPool<'a>>,
    /// The platforms of all NodePools and nodes; `None` if there are none.
    pub platforms: Option<PlatformSet>,
    /// NodePools with taints that no pool opens.
    pub closed: Vec<&'a NodePool>,
    /// Why labelled NodePools are no pools.
    pub warnings: Vec<String>,
}

impl<'a> Discovery<'a> {
    /// From the pools of the configuration and what there is in the cluster.
    pub fn of(configured: &[Pool], inventory: &'a Inventory) -> Self {
        let (found, warnings) = found(configured, inventory);
        let configured = configured.iter().map(|pool| (pool.clone(), Source::Configured));
        let all: Vec<(Pool, Source)> =
            configured.chain(found.into_iter().map(|pool| (pool, Source::Discovered))).collect();
        // A Pod may get the tolerations of several pools, which together open more than each of them.
        let together: Vec<Toleration<'_>> =
            all.iter().flat_map(|(pool, _)| pool.tolerations.iter().cloned()).collect();
        let known = |(pool, source): (Pool, Source)| inventory.know(pool, source, &together);
        let pools: Vec<KnownPool<'a>> = all.into_iter().map(known).collect();
        let closed = inventory.node_pools.iter().filter(|node_pool| {
            let opens =
                |known: &KnownPool<'_>| known.node_pools.iter().any(|own| own.name() == node_pool.name());
            node_pool.taints.iter().any(|taint| !is_wish(taint)) && !pools.iter().any(opens)
        });
        let closed = closed.collect();
        Self { pools, platforms: inventory.platforms(), closed, warnings }
    }

    /// What people are told of each pool that opens more platforms than are declared.
    pub fn mismatches(&self) -> impl Iterator<Item = String> {
        self.pools.iter().filter(|known| !known.mismatch().is_empty()).map(|known| {
            let (name, more) = (&known.pool.name, known.mismatch());
            let of = match known.source {
                Source::Configured => "the configuration",
                Source::Discovered => "the requirements of its NodePools",
            };
            format!("pool {name} opens nodes with {more}, which {of} does not say: its images have to run there, too")
        })
    }
}

/// The pools that NodePools are by their label, and why others with it are none; not what the configuration names itself.
fn found(configured: &[Pool], inventory: &Inventory) -> (Vec<Pool>, Vec<String>) {
    let (mut pools, mut warnings) = (BTreeMap::<&str, Pool>::new(), Vec::new());
    for node_pool in &inventory.node_pools {
        let (own, Some(name)) = (node_pool.name(), node_pool.label(POOL_LABEL)) else { continue };
        if configured.iter().any(|pool| pool.name == name) {
            continue;
        }
        let platforms = of_node_pool(node_pool);
        let obstacle = if !is_pool_name(name) {
            Some("its label names no pool: at most 63 lower-case letters, digits, '-' and '.'")
        } else if platforms.is_empty() {
            Some("it never runs linux")
        } else if node_pool.taints.is_empty() {
            Some("it has no taint, so that Pods use it anyway")
        } else if node_pool.taints.iter().all(is_wish) {
            Some("its taints are only PreferNoSchedule, so that Pods use it anyway")
        } else if !node_pool.taints.iter().all(is_tolerable) {
            Some("it has a taint that no toleration can name: the API server would refuse Pods with it")
        } else if !pools.contains_key(name) && pools.len() == MOST {
            Some("there are too many pools")
        } else {
            None
        };
        if let Some(obstacle) = obstacle {
            warnings.push(format!("NodePool {own} has the label {POOL_LABEL} and is no pool: {obstacle}"));
            continue;
        }
        let pool = pools.entry(name).or_insert_with(|| Pool {
            name: name.to_owned(),
            platforms: PlatformSet::EMPTY,
            tolerations: Vec::new(),
            share: Pool::ALL,
            prefer: None,
        });
        pool.platforms = pool.platforms.union(platforms);
        for toleration in node_pool.taints.iter().map(exact) {
            if !pool.tolerations.iter().any(|known| known.same(&toleration)) {
                pool.tolerations.push(toleration);
            }
        }
    }
    (pools.into_values().collect(), warnings)
}

impl Inventory {
    /// What there is to know of a pool. `together` are the tolerations of all pools.
    fn know(&self, pool: Pool, source: Source, together: &[Toleration<'_>]) -> KnownPool<'_> {
        let declared = pool.platforms;
        let (mut platforms, mut nodes) = (declared, 0);
        let mut node_pools = Vec::new();
        for node_pool in &self.node_pools {
            if opens(&pool, &pool.tolerations, &node_pool.taints) {
                node_pools.push(node_pool);
            }
            if opens(&pool, together, &node_pool.taints) {
                platforms = platforms.union(self.platforms_of(node_pool));
            }
        }
        for (kind, count) in &self.nodes {
            let taints = self.lasting_taints(kind);
            if opens(&pool, &pool.tolerations, taints.clone()) {
                nodes += count;
            }
            if opens(&pool, together, taints) {
                platforms = platforms.union(kind.platforms());
            }
        }
        node_pools.sort_by(|a, b| (b.weight, b.name()).cmp(&(a.weight, a.name())));
        let verdict = Verdict::of(&self.node_pools, &node_pools, &pool.tolerations);
        KnownPool { pool: Pool { platforms, ..pool }, declared, source, node_pools, nodes, verdict }
    }
}

/// Whether these tolerations open what has these taints, which no Pod could use without a toleration of the pool.
fn opens<'t>(
    pool: &Pool,
    tolerations: &[Toleration<'_>],
    taints: impl IntoIterator<Item = &'t Taint> + Clone,
) -> bool {
    let hard = || taints.clone().into_iter().filter(|taint| !is_wish(taint));
    hard().any(|taint| is_tolerated(taint, &pool.tolerations))
        && hard().all(|taint| is_tolerated(taint, tolerations))
}

#[cfg(test)]
mod tests;
