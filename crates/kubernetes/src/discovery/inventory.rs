//! NodePools and nodes of a cluster, reduced to what matters to pools.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::labels::NODE_POOL;
use super::platforms::{of_node, of_node_pool};
use super::taints::{are_tolerated, is_any_tolerated, is_passing, is_wish};
use crate::cluster::{Node, NodePool, Taint};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    pub node_pools: Vec<NodePool>,
    /// Number of nodes of each kind. Thousands of nodes are of a few kinds.
    pub nodes: HashMap<NodeKind, usize>,
}

/// Nodes that do not differ in what matters to pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeKind {
    /// Taints without those that come and go with the state of a node.
    taints: Vec<Taint>,
    /// Platform; none for a node that does not run linux, or has not reported its architecture yet.
    pub(super) platforms: PlatformSet,
    node_pool: Option<String>,
    /// Labels by which pools are selected.
    labels: BTreeMap<String, String>,
}

impl NodeKind {
    /// Reduces a node to what matters where pools are selected by the labels with these keys.
    pub fn of(node: &Node, selected: &BTreeSet<String>) -> Self {
        let mut taints = node.taints.clone();
        taints.retain(|taint| !is_passing(taint) && !is_wish(taint));
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

/// Returns whether nodes with these taints, and with the labels by which the pool is selected, are more than what is open to
/// all Pods.
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
        let nodes = counts
            .into_iter()
            .map(|(kind, count)| (kind.clone(), count))
            .collect();
        Self {
            node_pools: node_pools.into_iter().collect(),
            nodes,
        }
    }

    /// Returns the platforms of all NodePools and nodes; `None` without either.
    pub(super) fn platforms(&self) -> Option<PlatformSet> {
        let pools = self.node_pools.iter().map(of_node_pool);
        let nodes = self.nodes.keys().map(|kind| kind.platforms);
        let all = pools
            .chain(nodes)
            .fold(PlatformSet::EMPTY, PlatformSet::union);
        if all.is_empty() { None } else { Some(all) }
    }

    /// Returns the platforms that the nodes of a NodePool can have, or have.
    pub fn platforms_of(&self, pool: &NodePool) -> PlatformSet {
        let mut platforms = of_node_pool(pool);
        for kind in self.nodes.keys() {
            if kind.node_pool.as_deref() == Some(pool.name()) {
                platforms = platforms.union(kind.platforms);
            }
        }
        platforms
    }

    /// Returns the number of nodes with all of these platforms that a pool opens.
    pub fn count_nodes(&self, platforms: PlatformSet, pool: &Pool) -> usize {
        let mut number = 0;
        for (kind, count) in &self.nodes {
            let taints: Vec<&Taint> = self.lasting_taints(kind).collect();
            let is_opened = kind.has(&pool.select)
                && is_of_pool(&taints, pool)
                && are_tolerated(&taints, &pool.tolerations);
            if is_opened && kind.platforms.contains(platforms) {
                number += count;
            }
        }
        number
    }

    /// Returns the taints of nodes of this kind, without those that the nodes have only while they start.
    pub(super) fn lasting_taints<'a>(
        &'a self,
        kind: &'a NodeKind,
    ) -> impl Iterator<Item = &'a Taint> {
        let mut pools = self.node_pools.iter();
        let pool = pools.find(|pool| kind.node_pool.as_deref() == Some(pool.name()));
        let startup = pool.map_or(&[][..], |pool| &pool.startup_taints);
        kind.taints.iter().filter(|taint| !startup.contains(taint))
    }
}
