//! Pools, their platforms and Karpenter's choices, by the NodePools and nodes of a cluster. Pure.

mod inventory;
mod next_node;
mod platforms;
pub(crate) mod taints;

use std::collections::BTreeMap;

pub use inventory::{Inventory, NodeKind};
pub use next_node::Verdict;
pub use taints::{is_reserved_taint, lacking};

use crate::cluster::{NodePool, Taint};
use platforms::of_node_pool;
use taints::{exact, is_tolerable, is_tolerated, is_wish};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::{Pool, is_pool_name};

/// Label that makes a NodePool a pool of this name.
pub(crate) const POOL_LABEL: &str = "tolerarch.io/pool";

/// Maximal number of discovered pools: each has a label of metrics, and its tolerations may be in every Pod.
const MOST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Configured,
    /// A pool by the label of a NodePool.
    Discovered,
}

/// A pool, with its NodePools and nodes in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPool<'a> {
    /// The pool, with all platforms that its nodes can have: those declared, and those in the cluster.
    pub pool: Pool,
    /// Platforms that the configuration, or the requirements of the pool's NodePools, declare.
    pub declared: PlatformSet,
    pub source: Source,
    /// NodePools that the pool opens, in the order in which Karpenter tries them.
    pub node_pools: Vec<&'a NodePool>,
    pub nodes: usize,
    pub verdict: Verdict<'a>,
}

impl KnownPool<'_> {
    /// Returns the platforms of nodes that the pool opens, but does not declare.
    pub fn mismatch(&self) -> PlatformSet {
        self.pool.platforms.difference(self.declared)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Discovery<'a> {
    /// Configured pools in the configuration's order, then discovered ones by name.
    pub pools: Vec<KnownPool<'a>>,
    /// Platforms of all NodePools and nodes; `None` without either.
    pub platforms: Option<PlatformSet>,
    /// NodePools with taints that no pool opens.
    pub closed: Vec<&'a NodePool>,
    /// Reasons why labelled NodePools are no pools.
    pub warnings: Vec<String>,
}

impl<'a> Discovery<'a> {
    pub fn of(configured: &[Pool], inventory: &'a Inventory) -> Self {
        let (found, warnings) = found(configured, inventory);
        let configured = configured
            .iter()
            .map(|pool| (pool.clone(), Source::Configured));
        let all: Vec<(Pool, Source)> = configured
            .chain(found.into_iter().map(|pool| (pool, Source::Discovered)))
            .collect();
        // A Pod may get the tolerations of several pools, which together open more than each of them.
        let together: Vec<Toleration<'_>> = all
            .iter()
            .flat_map(|(pool, _)| pool.tolerations.iter().cloned())
            .collect();
        let known = |(pool, source): (Pool, Source)| inventory.know(pool, source, &together);
        let pools: Vec<KnownPool<'a>> = all.into_iter().map(known).collect();
        let closed = inventory.node_pools.iter().filter(|node_pool| {
            node_pool.taints.iter().any(|taint| !is_wish(taint))
                && !pools
                    .iter()
                    .any(|known| known.node_pools.contains(node_pool))
        });
        let closed = closed.collect();
        Self {
            pools,
            platforms: inventory.platforms(),
            closed,
            warnings,
        }
    }

    /// Returns a message for each pool that opens more platforms than are declared.
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

/// Returns the pools of labelled NodePools beside the configured ones, and why others with the label are none.
fn found(configured: &[Pool], inventory: &Inventory) -> (Vec<Pool>, Vec<String>) {
    let (mut pools, mut warnings) = (BTreeMap::<&str, Pool>::new(), Vec::new());
    for node_pool in &inventory.node_pools {
        let name = node_pool
            .metadata
            .labels
            .get(POOL_LABEL)
            .map(String::as_str);
        let (own, Some(name)) = (node_pool.name(), name) else {
            continue;
        };
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
            Some(
                "it has a taint that no toleration can name: the API server would refuse Pods with it",
            )
        } else if !pools.contains_key(name) && pools.len() == MOST {
            Some("there are too many pools")
        } else {
            None
        };
        if let Some(obstacle) = obstacle {
            warnings.push(format!(
                "NodePool {own} has the label {POOL_LABEL} and is no pool: {obstacle}"
            ));
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
    /// Describes a pool. `together` are the tolerations of all pools.
    fn know(&self, pool: Pool, source: Source, together: &[Toleration<'_>]) -> KnownPool<'_> {
        let declared = pool.platforms;
        let (mut platforms, mut nodes, mut node_pools) = (declared, 0, Vec::new());
        let of_pools = self.node_pools.iter().map(|node_pool| {
            let taints: Vec<&Taint> = node_pool
                .taints
                .iter()
                .filter(|taint| !is_wish(taint))
                .collect();
            (taints, self.platforms_of(node_pool), Some(node_pool), 0)
        });
        let of_nodes = self.nodes.iter().map(|(kind, count)| {
            (
                self.lasting_taints(kind).collect(),
                kind.platforms,
                None,
                *count,
            )
        });
        for (taints, own, node_pool, count) in of_pools.chain(of_nodes) {
            let open =
                |tolerations: &[_]| taints.iter().all(|taint| is_tolerated(taint, tolerations));
            // Nodes that are open anyway are none of the pool's.
            if !taints
                .iter()
                .any(|taint| is_tolerated(taint, &pool.tolerations))
            {
                continue;
            }
            if open(&pool.tolerations) {
                node_pools.extend(node_pool);
                nodes += count;
            }
            if open(together) {
                platforms = platforms.union(own);
            }
        }
        node_pools.sort_by(|a, b| (b.weight, b.name()).cmp(&(a.weight, a.name())));
        let verdict = Verdict::of(&self.node_pools, &node_pools, &pool.tolerations);
        KnownPool {
            pool: Pool { platforms, ..pool },
            declared,
            source,
            node_pools,
            nodes,
            verdict,
        }
    }
}

#[cfg(test)]
mod tests;
