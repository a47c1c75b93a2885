//! The state of a cluster-autoscaler that the Kubernetes API shows.

use super::flags::IgnoredTaints;
use super::priorities::Priorities;
use super::status::NodeGroup;

#[derive(Debug)]
pub struct Autoscaler {
    /// Namespace of its ConfigMaps.
    pub namespace: String,
    pub expanders: Expanders,
    pub priorities: KnownPriorities,
    /// Node groups in its status; `None` if no status can be read.
    pub groups: Option<Vec<NodeGroup>>,
    /// Taints that it ignores, by those of its flags that are known.
    pub ignored_taints: IgnoredTaints,
    /// Whether it divides new nodes between similar groups.
    pub balances: bool,
}

/// Expanders that the flags of a cluster-autoscaler name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expanders {
    /// Names in their order; empty for the default.
    Named(Vec<String>),
    /// GKE's own cluster-autoscaler, whose flags users can neither see nor set.
    Gke,
    /// Flags that cannot be read.
    Unseen,
}

/// The ConfigMap of priorities, and what the cluster-autoscaler does with it.
#[derive(Debug)]
pub enum KnownPriorities {
    Read(Priorities),
    /// The ConfigMap does not exist: no group precedes another.
    Missing,
    /// The cluster-autoscaler refuses the ConfigMap or may not read it, for this reason, and works without priorities.
    Ignored(String),
    /// The ConfigMap cannot be read or judged, for this reason.
    Unknown(String),
}

impl Autoscaler {
    /// Returns the priority of a group; `None` if it has none, or if the priorities are not known or not used.
    pub fn priority(&self, group: &NodeGroup) -> Option<i64> {
        let Expanders::Named(expanders) = &self.expanders else {
            return None;
        };
        if !expanders.iter().any(|name| name == "priority") {
            return None;
        }
        match &self.priorities {
            KnownPriorities::Read(priorities) => priorities.of(&group.name),
            _ => None,
        }
    }

    /// Returns the names of the groups that may grow and have no node: the cluster does not show their architectures.
    pub fn empty_groups(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for group in self.groups.iter().flatten() {
            if group.nodes() == 0 && group.max_size() != Some(0) {
                names.push(group.name.as_str());
            }
        }
        names
    }
}
