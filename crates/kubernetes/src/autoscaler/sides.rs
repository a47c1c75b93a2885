//! Node groups by what they are to the Pods of a pool.

use std::collections::HashMap;

use super::membership::group_of;
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
    /// Groups without a node that is known to be theirs. Only the provider knows their taints.
    pub(super) unseen: Vec<&'a NodeGroup>,
    /// A group of the pool and one that all Pods fit, which both have nodes of the same architecture.
    pub(super) alike: Option<(&'a NodeGroup, &'a NodeGroup)>,
}

impl<'a> Sides<'a> {
    pub(super) fn of(groups: &'a [NodeGroup], nodes: &[Node], tolerations: &[Toleration<'_>]) -> Self {
        let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let mut members = HashMap::<&str, Vec<&Node>>::new();
        for node in nodes {
            if let Some(group) = group_of(node, &names) {
                members.entry(group).or_default().push(node);
            }
        }
        let mut sides = Self::default();
        for group in groups.iter().filter(|group| !group.is_fixed()) {
            let Some(nodes) = members.get(group.name.as_str()) else {
                sides.unseen.push(group);
                continue;
            };
            let places: Vec<Place> = nodes.iter().map(|node| Place::of(&node.taints, tolerations)).collect();
            if places.contains(&Place::Own) {
                sides.own.push(group);
            } else if places.contains(&Place::Open) {
                sides.rivals.push(group);
            }
        }
        for own in &sides.own {
            for rival in &sides.rivals {
                let mut architectures = members[own.name.as_str()].iter().map(|node| &node.architecture);
                let others = &members[rival.name.as_str()];
                if architectures.any(|own| others.iter().any(|other| other.architecture == *own)) {
                    sides.alike = Some((own, rival));
                }
            }
        }
        sides
    }
}

/// What a node is to Pods with the tolerations of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Own,
    Open,
    Closed,
}

impl Place {
    fn of(taints: &[Taint], tolerations: &[Toleration<'_>]) -> Self {
        let mut place = Self::Open;
        for taint in taints.iter().filter(|taint| !is_wish(taint) && !is_passing(taint)) {
            if !is_tolerated(taint, tolerations) {
                return Self::Closed;
            }
            place = Self::Own;
        }
        place
    }
}
