//! Node groups, sorted for the Pods of a pool.

use std::collections::HashMap;

use super::flags::IgnoredTaints;
use super::status::NodeGroup;
use crate::cluster::Node;
use crate::discovery::taints::{is_passing, is_tolerated, is_wish};
use tolerarch_core::policy::Pool;

/// The groups that may grow, by their nodes. Groups that Pods of the pool do not fit are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sides<'a> {
    /// Groups with a taint of the pool, or with the labels by which the pool is selected.
    pub(super) own: Vec<&'a NodeGroup>,
    /// Groups that all Pods fit.
    pub(super) rivals: Vec<&'a NodeGroup>,
    /// Groups whose taints cannot be seen: no node is known to be theirs, or their nodes differ. Only the provider knows
    /// which taints the next node has.
    pub(super) unseen: Vec<&'a NodeGroup>,
    /// A group of the pool and one that all Pods fit, which both have nodes of the same architecture.
    pub(super) alike: Option<(&'a NodeGroup, &'a NodeGroup)>,
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
            let place = nodes.and_then(|nodes| Place::of_all(nodes, ignored, pool));
            match place {
                Some(Place::Own) => sides.own.push(group),
                Some(Place::Open) => sides.rivals.push(group),
                Some(Place::Closed) => {}
                None => sides.unseen.push(group),
            }
        }
        sides.alike = sides.find_alike(members);
        sides
    }

    fn find_alike(
        &self,
        members: &HashMap<&str, Vec<&Node>>,
    ) -> Option<(&'a NodeGroup, &'a NodeGroup)> {
        for own in &self.own {
            for rival in &self.rivals {
                let is_shared = |node: &&Node| {
                    let mut others = members[rival.name.as_str()].iter();
                    others.any(|other| other.architecture == node.architecture)
                };
                if members[own.name.as_str()].iter().any(is_shared) {
                    return Some((own, rival));
                }
            }
        }
        None
    }
}

/// The relation of a node to Pods to which a pool is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Own,
    Open,
    Closed,
}

impl Place {
    /// Returns the place that all of these nodes have; `None` if they differ, or there are none.
    fn of_all(nodes: &[&Node], ignored: &IgnoredTaints, pool: &Pool) -> Option<Self> {
        let mut places = nodes.iter().map(|node| Self::of(node, ignored, pool));
        let first = places.next()?;
        if places.all(|place| place == first) {
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
        let mut place = if pool.select.is_empty() {
            Self::Open
        } else {
            Self::Own
        };
        for taint in &node.taints {
            if is_wish(taint) || is_passing(taint) || ignored.has(&taint.key) {
                continue;
            }
            if !is_tolerated(taint, &pool.tolerations) {
                return Self::Closed;
            }
            place = Self::Own;
        }
        place
    }
}
