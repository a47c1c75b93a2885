//! Node groups, sorted for the Pods of a pool.

use std::collections::HashMap;

use super::flags::IgnoredTaints;
use super::status::NodeGroup;
use crate::cluster::Node;
use crate::discovery::taints::{is_preference, is_tolerated, is_transient};
use tolerarch_core::policy::Pool;

/// The groups that may grow, sorted by their nodes. Groups that Pods of the pool do not fit are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sides<'a> {
    /// Groups of the pool: their nodes have a taint of the pool, or the labels that select the pool.
    pub(super) of_pool: Vec<&'a NodeGroup>,
    /// Groups that all Pods fit.
    pub(super) open: Vec<&'a NodeGroup>,
    /// Groups whose taints are not known: no node is known to be in the group, or its nodes differ. Only the provider
    /// knows the taints of the next node.
    pub(super) unseen: Vec<&'a NodeGroup>,
    /// A group of the pool and one that all Pods fit, both with nodes of one architecture.
    pub(super) similar: Option<(&'a NodeGroup, &'a NodeGroup)>,
}

impl<'a> Sides<'a> {
    pub(super) fn of(
        groups: &'a [NodeGroup],
        members: &HashMap<&'a str, Vec<&Node>>,
        ignored: &IgnoredTaints,
        pool: &Pool,
    ) -> Self {
        let mut sides = Self::default();
        for group in groups.iter().filter(|group| !group.is_fixed()) {
            let nodes = members.get(group.name.as_str());
            let side = nodes.and_then(|nodes| Side::of_all(nodes, ignored, pool));
            match side {
                Some(Side::Pool) => sides.of_pool.push(group),
                Some(Side::Open) => sides.open.push(group),
                Some(Side::Closed) => {}
                None => sides.unseen.push(group),
            }
        }
        sides.similar = sides.find_similar(members);
        sides
    }

    fn find_similar(
        &self,
        members: &HashMap<&str, Vec<&Node>>,
    ) -> Option<(&'a NodeGroup, &'a NodeGroup)> {
        for of_pool in &self.of_pool {
            let pool_nodes = &members[of_pool.name.as_str()];
            for open in &self.open {
                let open_nodes = &members[open.name.as_str()];
                if share_architecture(pool_nodes, open_nodes) {
                    return Some((of_pool, open));
                }
            }
        }
        None
    }
}

fn share_architecture(nodes: &[&Node], others: &[&Node]) -> bool {
    for node in nodes {
        let is_same = |other: &&Node| other.architecture == node.architecture;
        if others.iter().any(is_same) {
            return true;
        }
    }
    false
}

/// Which Pods a node is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    /// Pods with the pool's tolerations.
    Pool,
    /// All Pods.
    Open,
    /// Other Pods.
    Closed,
}

impl Side {
    /// Returns the side that all of these nodes share; `None` if they differ, or if there are none.
    fn of_all(nodes: &[&Node], ignored: &IgnoredTaints, pool: &Pool) -> Option<Self> {
        let mut sides = nodes.iter().map(|node| Self::of(node, ignored, pool));
        let first = sides.next()?;
        if sides.all(|side| side == first) {
            Some(first)
        } else {
            None
        }
    }

    fn of(node: &Node, ignored: &IgnoredTaints, pool: &Pool) -> Self {
        let labels = &node.metadata.labels;
        let mut selected = pool.select.iter();
        if selected.any(|(key, value)| labels.get(key) != Some(value)) {
            return Self::Closed;
        }
        let mut side = if pool.select.is_empty() {
            Self::Open
        } else {
            Self::Pool
        };
        for taint in &node.taints {
            if is_preference(taint) || is_transient(taint) || ignored.has(&taint.key) {
                continue;
            }
            if !is_tolerated(taint, &pool.tolerations) {
                return Self::Closed;
            }
            side = Self::Pool;
        }
        side
    }
}
