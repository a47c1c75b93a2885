//! NodePools and nodes of a cluster, with the properties that matter to pools.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::labels::NODE_POOL;
use super::platforms::{of_node, of_node_pool};
use super::taints::{are_tolerated, is_any_tolerated, is_preference, is_transient};
use crate::cluster::{Node, NodePool, Taint};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    pub node_pools: Vec<NodePool>,
    /// Number of nodes of each kind. Thousands of nodes are of a few kinds.
    pub nodes: HashMap<NodeKind, usize>,
}

/// The properties of a node that matter to pools, which many nodes share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeKind {
    /// Taints, without those that come and go with the state of a node.
    taints: Vec<Taint>,
    /// Platform; empty for a node that does not run linux, or has not reported its architecture yet.
    pub(super) platforms: PlatformSet,
    node_pool: Option<String>,
    /// Labels that select pools.
    labels: BTreeMap<String, String>,
}

impl NodeKind {
    /// Reads the kind of a node. `selected` are the keys of the labels that select pools.
    pub fn of(node: &Node, selected: &BTreeSet<String>) -> Self {
        let mut taints = node.taints.clone();
        taints.retain(|taint| !is_transient(taint) && !is_preference(taint));
        taints.sort_unstable();
        let mut labels = BTreeMap::new();
        for key in selected {
            if let Some(value) = node.metadata.labels.get(key) {
                labels.insert(key.clone(), value.clone());
            }
        }
        Self {
            taints,
            platforms: of_node(node),
            node_pool: node.metadata.labels.get(NODE_POOL).cloned(),
            labels,
        }
    }

    /// Returns whether the nodes have all of these labels.
    pub(super) fn has(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut labels = labels.iter();
        labels.all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

/// Returns whether nodes with these taints belong to the pool, rather than being open to all Pods. The nodes have the
/// labels that select the pool.
pub(super) fn is_of_pool(taints: &[&Taint], pool: &Pool) -> bool {
    !pool.select.is_empty() || is_any_tolerated(taints, &pool.tolerations)
}

impl Inventory {
    pub fn of<'a>(
        node_pools: impl IntoIterator<Item = NodePool>,
        nodes: impl IntoIterator<Item = &'a NodeKind>,
    ) -> Self {
        let mut counts = HashMap::<&NodeKind, usize>::new();
        for kind in nodes {
            *counts.entry(kind).or_default() += 1;
        }
        let mut nodes = HashMap::new();
        for (kind, count) in counts {
            nodes.insert(kind.clone(), count);
        }
        Self {
            node_pools: node_pools.into_iter().collect(),
            nodes,
        }
    }

    /// Returns the platforms of all NodePools and nodes; `None` without either.
    pub(super) fn platforms(&self) -> Option<PlatformSet> {
        let mut all = PlatformSet::EMPTY;
        for node_pool in &self.node_pools {
            all = all.union(of_node_pool(node_pool));
        }
        for kind in self.nodes.keys() {
            all = all.union(kind.platforms);
        }
        if all.is_empty() { None } else { Some(all) }
    }

    /// Returns the platforms that the nodes of a NodePool may have, and those that existing nodes have.
    pub fn platforms_of(&self, pool: &NodePool) -> PlatformSet {
        let mut platforms = of_node_pool(pool);
        for kind in self.nodes.keys() {
            if kind.node_pool.as_deref() == Some(pool.name()) {
                platforms = platforms.union(kind.platforms);
            }
        }
        platforms
    }

    /// Returns the number of a pool's nodes that have all of these platforms.
    pub fn count_nodes(&self, platforms: PlatformSet, pool: &Pool) -> usize {
        let mut number = 0;
        for (kind, count) in &self.nodes {
            if !kind.has(&pool.select) || !kind.platforms.contains(platforms) {
                continue;
            }
            let taints: Vec<&Taint> = self.lasting_taints(kind).collect();
            if is_of_pool(&taints, pool) && are_tolerated(&taints, &pool.tolerations) {
                number += count;
            }
        }
        number
    }

    /// Returns the taints of nodes of this kind, without the startup taints of their NodePool.
    pub(super) fn lasting_taints<'a>(
        &'a self,
        kind: &'a NodeKind,
    ) -> impl Iterator<Item = &'a Taint> {
        let name = kind.node_pool.as_deref();
        let mut node_pools = self.node_pools.iter();
        let startup_taints = match node_pools.find(|pool| name == Some(pool.name())) {
            Some(pool) => pool.startup_taints.as_slice(),
            None => &[],
        };
        let taints = kind.taints.iter();
        taints.filter(|taint| !startup_taints.contains(taint))
    }
}
