//! Whether a pool gets new nodes, by the node groups of a cluster-autoscaler and the nodes of the cluster.

use std::collections::{BTreeSet, HashMap};

use super::choice::Choice;
use super::known::Autoscaler;
use super::membership::members;
use super::sides::Sides;
use super::status::NodeGroup;
use crate::cluster::Node;
use crate::discovery::ClusterPool;
use tolerarch_core::policy::Pool;

/// Nodes of a cluster by their node group.
pub struct Grouped<'a> {
    autoscaler: &'a Autoscaler,
    members: HashMap<&'a str, Vec<&'a Node>>,
}

/// The node groups of a pool, and whether new nodes come from these groups.
#[derive(Debug, PartialEq)]
pub struct Outlook<'a> {
    /// Groups of the pool: they may grow, and their nodes have a taint of the pool or its labels.
    pub groups: Vec<&'a NodeGroup>,
    /// Whether the taints of some groups are not known.
    pub is_partly_unseen: bool,
    pub choice: Choice,
    /// A group of the pool and a group outside it, of one architecture, between which new nodes are balanced.
    pub balanced: Option<(&'a NodeGroup, &'a NodeGroup)>,
}

impl Outlook<'_> {
    /// Returns whether the outlook matters to a pool: a pool of Karpenter's NodePools needs no node group.
    pub fn concerns(&self, pool: &ClusterPool<'_>) -> bool {
        !self.groups.is_empty() || pool.node_pools.is_empty()
    }

    /// Returns a sentence for each obstacle that keeps some or all new nodes from the pool's groups at present.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some((group, other)) = self.balanced {
            warnings.push(format!(
                "--balance-similar-node-groups divides new nodes between `{}` and `{}` unless they differ in size or in a label, as it compares no taints",
                group.name, other.name
            ));
        }
        for group in &self.groups {
            if let Some(obstacle) = group.obstacle() {
                warnings.push(format!("the node group `{}` {obstacle}", group.name));
            }
        }
        warnings
    }
}

impl Autoscaler {
    /// Sorts all nodes of the cluster by the groups of this autoscaler.
    pub fn grouped<'a>(&'a self, nodes: &'a [Node]) -> Grouped<'a> {
        let members = match &self.groups {
            Some(groups) => members(groups, nodes),
            None => HashMap::new(),
        };
        Grouped {
            autoscaler: self,
            members,
        }
    }
}

impl<'a> Grouped<'a> {
    /// Returns the architectures of a group's nodes; none if no node is known to be in the group.
    pub fn architectures(&self, group: &str) -> BTreeSet<&'a str> {
        let nodes = self.members.get(group).into_iter().flatten();
        let names = nodes.map(|node| node.architecture.as_str());
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Judges for Pods with the pool's tolerations.
    pub fn outlook(&self, pool: &Pool) -> Outlook<'a> {
        let Autoscaler {
            groups,
            ignored_taints,
            balances,
            ..
        } = self.autoscaler;
        let Some(groups) = groups else {
            return Outlook {
                groups: Vec::new(),
                is_partly_unseen: true,
                choice: Choice::of(self.autoscaler, None, &pool.tolerations),
                balanced: None,
            };
        };
        let sides = Sides::of(groups, &self.members, ignored_taints, pool);
        let choice = Choice::of(self.autoscaler, Some(&sides), &pool.tolerations);
        Outlook {
            groups: sides.of_pool,
            is_partly_unseen: !sides.unseen.is_empty(),
            choice,
            balanced: if *balances { sides.similar } else { None },
        }
    }
}
