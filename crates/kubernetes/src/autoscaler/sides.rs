//! Node groups, sorted for the Pods of a pool.

use std::collections::HashMap;

use super::flags::IgnoredTaints;
use super::status::NodeGroup;
use crate::cluster::{Node, Taint};
use crate::discovery::taints::{is_passing, is_tolerated, is_wish};
use tolerarch_core::pod::Toleration;

/// The groups that may grow, by their nodes. Groups that Pods of the pool do not fit are left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sides<'a> {
    /// Groups with a taint of the pool.
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
        tolerations: &[Toleration<'_>],
    ) -> Self {
        let mut sides = Self::default();
        for group in groups.iter().filter(|group| !group.is_fixed()) {
            let nodes = members
                .get(group.name.as_str())
                .map_or(&[][..], Vec::as_slice);
            let mut places = nodes
                .iter()
                .map(|node| Place::of(&node.taints, ignored, tolerations));
            let first = places.next();
            match first {
                Some(first) if places.all(|place| place == first) => match first {
                    Place::Own => sides.own.push(group),
                    Place::Open => sides.rivals.push(group),
                    Place::Closed => {}
                },
                _ => sides.unseen.push(group),
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
                let others = &members[rival.name.as_str()];
                let is_shared = |node: &&Node| {
                    others
                        .iter()
                        .any(|other| other.architecture == node.architecture)
                };
                if members[own.name.as_str()].iter().any(is_shared) {
                    return Some((own, rival));
                }
            }
        }
        None
    }
}

/// The relation of a node to Pods with the tolerations of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Own,
    Open,
    Closed,
}

impl Place {
    fn of(taints: &[Taint], ignored: &IgnoredTaints, tolerations: &[Toleration<'_>]) -> Self {
        let mut place = Self::Open;
        for taint in taints {
            if is_wish(taint) || is_passing(taint) || ignored.has(&taint.key) {
                continue;
            }
            if !is_tolerated(taint, tolerations) {
                return Self::Closed;
            }
            place = Self::Own;
        }
        place
    }
}
