//! Pools, their platforms, and the NodePools that Karpenter chooses, from the NodePools and nodes of a cluster. Pure.

mod instances;
mod inventory;
mod labels;
mod new_node;
mod next_node;
mod platforms;
mod prices;
pub(crate) mod taints;

use std::collections::BTreeMap;

pub use instances::without_instance;
pub use inventory::{Inventory, NodeKind};
pub use labels::selected_label_keys;
pub use new_node::{NewNode, Origin};
pub use next_node::{Obstacle, Verdict};
pub use prices::Shift;
pub use taints::{is_reserved_taint, lacking};

use crate::cluster::{NodePool, Taint};
use inventory::is_of_pool;
use platforms::of_node_pool;
use taints::{are_tolerated, exact, is_preference, is_tolerable};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::{Pool, is_pool_name};

/// Label of NodePools that form a pool; the value is the pool's name.
pub(crate) const POOL_LABEL: &str = "tolerarch.io/pool";

/// Maximum number of discovered pools: each is a label value of metrics, and its tolerations may be in every Pod.
const MAX_POOLS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Configured,
    /// The label of a NodePool.
    Discovered,
}

/// A pool, with its NodePools and nodes in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterPool<'a> {
    /// The pool, with all platforms that its nodes may have: declared, or in the cluster.
    pub pool: Pool,
    /// Platforms that the configuration declares, or the requirements of the pool's NodePools.
    pub declared: PlatformSet,
    pub source: Source,
    /// NodePools whose taints the pool tolerates, in the order in which Karpenter tries them.
    pub node_pools: Vec<&'a NodePool>,
    pub nodes: usize,
    pub verdict: Verdict<'a>,
}

impl ClusterPool<'_> {
    /// Returns the platforms of the pool's nodes that it does not declare.
    pub fn mismatch(&self) -> PlatformSet {
        self.pool.platforms.difference(self.declared)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Discovery<'a> {
    /// Configured pools in the configuration's order, then discovered ones by name.
    pub pools: Vec<ClusterPool<'a>>,
    /// Platforms of all NodePools and nodes; `None` without either.
    pub platforms: Option<PlatformSet>,
    /// NodePools with taints that no pool tolerates.
    pub closed: Vec<&'a NodePool>,
    /// For each labelled NodePool that is no pool, the reason.
    pub warnings: Vec<String>,
}

impl<'a> Discovery<'a> {
    pub fn of(configured: &[Pool], inventory: &'a Inventory) -> Self {
        let (discovered, warnings) = discover(configured, inventory);
        // A Pod may get the tolerations of several pools, which together tolerate more nodes than each pool alone.
        let mut all_tolerations = Vec::new();
        for pool in configured.iter().chain(&discovered) {
            all_tolerations.extend(pool.tolerations.iter().cloned());
        }
        let mut pools = Vec::new();
        for pool in configured {
            let source = Source::Configured;
            pools.push(inventory.describe_pool(pool.clone(), source, &all_tolerations));
        }
        for pool in discovered {
            pools.push(inventory.describe_pool(pool, Source::Discovered, &all_tolerations));
        }
        let mut closed = Vec::new();
        for node_pool in &inventory.node_pools {
            if node_pool.taints.iter().all(is_preference) {
                continue;
            }
            let has_node_pool = |pool: &ClusterPool<'_>| pool.node_pools.contains(&node_pool);
            if !pools.iter().any(has_node_pool) {
                closed.push(node_pool);
            }
        }
        Self {
            pools,
            platforms: inventory.platforms(),
            closed,
            warnings,
        }
    }

    /// Returns a message for each pool whose nodes have more platforms than it declares.
    pub fn mismatches(&self) -> impl Iterator<Item = String> {
        self.pools.iter().filter_map(|pool| {
            let undeclared = pool.mismatch();
            if undeclared.is_empty() {
                return None;
            }
            let name = &pool.pool.name;
            let declaration = match pool.source {
                Source::Configured => "the configuration",
                Source::Discovered => "the requirements of its NodePools",
            };
            Some(format!("pool {name} opens nodes with {undeclared}, which {declaration} does not say: its images have to run there, too"))
        })
    }
}

/// Returns the pools of labelled NodePools, without configured pools. Returns a warning for each labelled NodePool that
/// is no pool.
fn discover(configured: &[Pool], inventory: &Inventory) -> (Vec<Pool>, Vec<String>) {
    let mut pools = BTreeMap::<&String, Pool>::new();
    let mut warnings = Vec::new();
    for node_pool in &inventory.node_pools {
        let Some(name) = node_pool.metadata.labels.get(POOL_LABEL) else {
            continue;
        };
        if configured.iter().any(|pool| pool.name == *name) {
            continue;
        }
        let platforms = of_node_pool(node_pool);
        let is_too_many = pools.len() == MAX_POOLS && !pools.contains_key(name);
        if let Some(obstacle) = obstacle_to_pool(node_pool, name, platforms, is_too_many) {
            let node_pool = node_pool.name();
            warnings.push(format!(
                "NodePool {node_pool} has the label {POOL_LABEL} and is no pool: {obstacle}"
            ));
            continue;
        }
        let pool = pools.entry(name).or_insert_with(|| Pool {
            name: name.clone(),
            platforms: PlatformSet::EMPTY,
            tolerations: Vec::new(),
            ..Pool::default()
        });
        pool.platforms = pool.platforms.union(platforms);
        for toleration in node_pool.taints.iter().map(exact) {
            if !pool.tolerations.iter().any(|other| other.same(&toleration)) {
                pool.tolerations.push(toleration);
            }
        }
    }
    (pools.into_values().collect(), warnings)
}

/// Returns why a NodePool is no pool of this name; `None` if it is one.
fn obstacle_to_pool(
    node_pool: &NodePool,
    name: &str,
    platforms: PlatformSet,
    is_too_many: bool,
) -> Option<&'static str> {
    let taints = &node_pool.taints;
    if !is_pool_name(name) {
        Some("its label names no pool: at most 63 lower-case letters, digits, '-' and '.'")
    } else if platforms.is_empty() {
        Some("it never runs linux")
    } else if taints.is_empty() {
        Some("it has no taint, so that Pods use it anyway")
    } else if taints.iter().all(is_preference) {
        Some("its taints are only PreferNoSchedule, so that Pods use it anyway")
    } else if !taints.iter().all(is_tolerable) {
        Some("it has a taint that no toleration can name: the API server would refuse Pods with it")
    } else if is_too_many {
        Some("there are too many pools")
    } else {
        None
    }
}

impl Inventory {
    /// Describes a pool. `all_tolerations` are those of all pools.
    fn describe_pool(
        &self,
        pool: Pool,
        source: Source,
        all_tolerations: &[Toleration<'_>],
    ) -> ClusterPool<'_> {
        let declared = pool.platforms;
        let mut platforms = declared;
        let mut nodes = 0;
        let mut node_pools = Vec::new();
        let mut selected: Vec<&NodePool> = self.node_pools.iter().collect();
        selected.retain(|node_pool| labels::may_have(node_pool, &pool.select));
        for &node_pool in &selected {
            let mut taints: Vec<&Taint> = node_pool.taints.iter().collect();
            taints.retain(|taint| !is_preference(taint));
            if !is_of_pool(&taints, &pool) {
                continue;
            }
            if are_tolerated(&taints, &pool.tolerations) {
                node_pools.push(node_pool);
            }
            if are_tolerated(&taints, all_tolerations) {
                platforms = platforms.union(self.platforms_of(node_pool));
            }
        }
        for (kind, count) in &self.nodes {
            let taints: Vec<&Taint> = self.lasting_taints(kind).collect();
            if !kind.has(&pool.select) || !is_of_pool(&taints, &pool) {
                continue;
            }
            if are_tolerated(&taints, &pool.tolerations) {
                nodes += count;
            }
            if are_tolerated(&taints, all_tolerations) {
                platforms = platforms.union(kind.platforms);
            }
        }
        node_pools.sort_by(|a, b| (b.weight, b.name()).cmp(&(a.weight, a.name())));
        let verdict = Verdict::of(&selected, &node_pools, &pool.tolerations);
        ClusterPool {
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
