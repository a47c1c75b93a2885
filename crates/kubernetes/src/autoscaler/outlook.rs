//! From the node groups of a cluster-autoscaler to where the next node for a pool comes from.

use super::choice::Choice;
use super::known::Autoscaler;
use super::sides::Sides;
use super::status::NodeGroup;
use crate::cluster::Node;
use tolerarch_core::pod::Toleration;

/// What a cluster-autoscaler is to a pool.
#[derive(Debug, PartialEq)]
pub struct Outlook<'a> {
    /// Groups that may grow and have nodes with a taint of the pool.
    pub own: Vec<&'a NodeGroup>,
    /// Whether the taints of some groups cannot be seen, as these have no node, or none that is known to be theirs.
    pub is_partly_unseen: bool,
    pub choice: Choice,
    /// A group of the pool and another one of the same architecture, between which new nodes may be divided.
    pub divided: Option<(&'a NodeGroup, &'a NodeGroup)>,
}

impl Outlook<'_> {
    /// Returns sentences on what keeps new nodes from the pool's groups for now, or in part.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some((own, other)) = self.divided {
            warnings.push(format!(
                "--balance-similar-node-groups divides new nodes between `{}` and `{}` unless they differ in size or in a label, as it compares no taints",
                own.name, other.name
            ));
        }
        for group in &self.own {
            if let Some(obstacle) = group.obstacle() {
                warnings.push(format!("the node group `{}` {obstacle}", group.name));
            }
        }
        warnings
    }
}

impl Autoscaler {
    /// Judges for Pods with the tolerations of a pool; `nodes` are all of the cluster.
    pub fn outlook(&self, nodes: &[Node], tolerations: &[Toleration<'_>]) -> Outlook<'_> {
        let sides = self.groups.as_ref().map(|groups| Sides::of(groups, nodes, tolerations));
        let choice = Choice::of(self, sides.as_ref(), tolerations);
        match sides {
            Some(Sides { own, unseen, alike, .. }) => Outlook {
                own,
                is_partly_unseen: !unseen.is_empty(),
                choice,
                divided: alike.filter(|_alike| self.balances),
            },
            None => Outlook { own: Vec::new(), is_partly_unseen: true, choice, divided: None },
        }
    }
}
