//! A cluster-autoscaler, as far as the Kubernetes API shows it.

use super::flags::IgnoredTaints;
use super::priorities::Priorities;
use super::status::NodeGroup;

#[derive(Debug)]
pub struct Autoscaler {
    /// Namespace of its ConfigMaps.
    pub namespace: String,
    pub expanders: Expanders,
    pub priorities: KnownPriorities,
    /// Node groups by its status; `None` if there is no status that can be read.
    pub groups: Option<Vec<NodeGroup>>,
    /// Taints that its flags have it ignore, as far as these are known.
    pub ignored_taints: IgnoredTaints,
    /// Whether it divides new nodes between similar groups.
    pub balances: bool,
}

/// Expanders of a cluster-autoscaler, by its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expanders {
    /// Names in their order; empty for the default.
    Named(Vec<String>),
    /// GKE's own cluster-autoscaler, whose flags users neither see nor set.
    Gke,
    /// Flags that cannot be seen.
    Unseen,
}

/// The priorities of node groups, as far as they are known.
#[derive(Debug)]
pub enum KnownPriorities {
    Read(Priorities),
    /// The ConfigMap does not exist, so that no group comes before another.
    Missing,
    /// The cluster-autoscaler refuses the ConfigMap or may not read it, for this reason, and goes on as without it.
    Ignored(String),
    /// The ConfigMap cannot be read or judged, for this reason.
    Unknown(String),
}

impl Autoscaler {
    /// Returns the priority of a group; `None` without one, or where the priorities are not known or do not count.
    pub fn priority(&self, group: &NodeGroup) -> Option<i64> {
        match (&self.expanders, &self.priorities) {
            (Expanders::Named(names), KnownPriorities::Read(priorities))
                if names.iter().any(|name| name == "priority") =>
            {
                priorities.of(&group.name)
            }
            _ => None,
        }
    }

    /// Returns the names of the groups that have no node, and of which the cluster therefore shows no architecture.
    pub fn empty_groups(&self) -> Vec<&str> {
        let groups = self.groups.iter().flatten();
        groups
            .filter(|group| group.nodes() == 0 && group.most() != Some(0))
            .map(|group| group.name.as_str())
            .collect()
    }
}
