//! What the expander of a cluster-autoscaler makes of the groups of a pool.

use std::fmt;

use super::known::{Autoscaler, Expanders, KnownPriorities};
use super::priorities::Priorities;
use super::sides::Sides;
use super::status::NodeGroup;
use tolerarch_core::pod::Toleration;

/// Expanders that choose by the sizes of nodes or by lot. They may leave several groups, but no group comes first.
const INDIFFERENT: [&str; 4] = ["least-waste", "random", "most-pods", "least-nodes"];

/// Maximal number of groups that a sentence names.
const NAMED: usize = 5;

/// Where new nodes for the Pods of a pool come from, where a cluster-autoscaler makes them. It is judged for Pods
/// without other constraints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The pool's group, by its priority.
    First { own: String, priority: i64 },
    /// The pool's group, as Pods of the pool fit no other one.
    Alone { own: String },
    /// Any group that fits: the expander, `None` for the default, knows no order of groups.
    Chance { expander: Option<String> },
    /// Any group that fits, as there are no priorities, for this reason.
    NoPriorities { why: String },
    /// Other groups, as the priorities name none that may be the pool's. `own` are some of those known to be the pool's.
    Unnamed { own: Vec<String> },
    /// Another group before that of the pool.
    Behind { first: String, priority: i64, own: String },
    /// One of two groups by chance, as both have this priority.
    Tied { other: String, own: String, priority: i64 },
    /// Groups of the pool, also for Pods that cannot run there, as the taint with this key is ignored.
    Ignored { key: String },
    /// No group of the cluster-autoscaler: none has a taint of the pool.
    NoGroup,
    /// It cannot be seen, for this reason.
    Unseen { why: String },
}

impl Choice {
    /// Judges for Pods with the tolerations of a pool, to which the groups are this; `None` if the groups are not known.
    pub(super) fn of(
        autoscaler: &Autoscaler,
        sides: Option<&Sides<'_>>,
        tolerations: &[Toleration<'_>],
    ) -> Self {
        if sides.is_some_and(|sides| sides.own.is_empty() && sides.unseen.is_empty()) {
            return Self::NoGroup;
        }
        if let Some(ignored) = tolerations.iter().find(|own| autoscaler.ignored_taints.has(own.key.as_str()))
        {
            return Self::Ignored { key: ignored.key.as_str().to_owned() };
        }
        if let Some(Sides { own, rivals, unseen, .. }) = sides
            && rivals.is_empty()
        {
            match (own.as_slice(), unseen.as_slice()) {
                ([own, ..], []) => return Self::Alone { own: own.name.clone() },
                ([], [only]) => return Self::Unseen { why: has_no_node(&only.name) },
                _ => {}
            }
        }
        match &autoscaler.expanders {
            Expanders::Gke => {
                Self::Unseen { why: "GKE chooses among its node pools by rules of its own".to_owned() }
            }
            Expanders::Named(names) => match names.first() {
                None => Self::Chance { expander: None },
                Some(first) if first == "priority" => by_priorities(autoscaler, sides),
                Some(first) if INDIFFERENT.contains(&first.as_str()) => {
                    Self::Chance { expander: Some(first.clone()) }
                }
                Some(first) => Self::Unseen { why: format!("its expander `{first}` decides") },
            },
            Expanders::Unseen => match by_priorities(autoscaler, sides) {
                Self::First { own, priority } => Self::Unseen {
                    why: format!(
                        "its priorities put `{own}` first ({priority}), and count with --expander=priority, but its flags cannot be read"
                    ),
                },
                other => other,
            },
        }
    }

    /// Returns whether new nodes come from the pool's groups, for certain.
    pub fn is_right(&self) -> bool {
        matches!(self, Self::First { .. } | Self::Alone { .. })
    }

    /// Returns whether new nodes come from other groups, at least by chance.
    pub fn is_wrong(&self) -> bool {
        match self {
            Self::First { .. } | Self::Alone { .. } | Self::NoGroup | Self::Unseen { .. } => false,
            Self::Chance { .. }
            | Self::NoPriorities { .. }
            | Self::Unnamed { .. }
            | Self::Behind { .. }
            | Self::Ignored { .. }
            | Self::Tied { .. } => true,
        }
    }
}

fn by_priorities(autoscaler: &Autoscaler, sides: Option<&Sides<'_>>) -> Choice {
    let map = format!("the ConfigMap {}/{}", autoscaler.namespace, Priorities::CONFIG_MAP);
    let priorities = match &autoscaler.priorities {
        KnownPriorities::Read(priorities) => priorities,
        KnownPriorities::Missing => return Choice::NoPriorities { why: format!("{map} is missing") },
        KnownPriorities::Ignored(why) => {
            return Choice::NoPriorities { why: format!("{map} does not count: {why}") };
        }
        KnownPriorities::Unknown(why) => {
            return Choice::Unseen { why: format!("{map} cannot be judged: {why}") };
        }
    };
    let Some(sides) = sides else {
        return Choice::Unseen { why: "its status, which names the node groups, cannot be read".to_owned() };
    };
    let highest = |groups: &[&NodeGroup]| {
        let ranked =
            groups.iter().filter_map(|group| Some((priorities.of(&group.name)?, group.name.clone())));
        // Of equal ones the first of the status.
        ranked.reduce(|best, next| if next.0 > best.0 { next } else { best })
    };
    let rival = highest(&sides.rivals);
    let unseen = highest(&sides.unseen);
    match highest(&sides.own) {
        Some((priority, own)) => match (rival, unseen) {
            (Some((more, first)), _) if more > priority => Choice::Behind { first, priority: more, own },
            (Some((same, other)), _) if same == priority => Choice::Tied { other, own, priority },
            (_, Some((more, first))) if more >= priority => Choice::Unseen { why: has_no_node(&first) },
            _ => Choice::First { own, priority },
        },
        None if !sides.own.is_empty() => {
            Choice::Unnamed { own: sides.own.iter().take(NAMED).map(|group| group.name.clone()).collect() }
        }
        None => match (rival, unseen) {
            (_, None) => Choice::Unnamed { own: Vec::new() },
            (Some((more, first)), Some((less, own))) if more > less => {
                Choice::Behind { first, priority: more, own }
            }
            (Some((same, other)), Some((priority, own))) if same == priority => {
                Choice::Tied { other, own, priority }
            }
            (_, Some((_, first))) => Choice::Unseen { why: has_no_node(&first) },
        },
    }
}

fn has_no_node(group: &str) -> String {
    format!("no node is known to be of `{group}`, so that its taints are not seen")
}

/// Writes a sentence whose subject is the cluster-autoscaler.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { own, priority } => {
                write!(f, "the cluster-autoscaler takes `{own}` first (priority {priority})")
            }
            Self::Alone { own } => {
                write!(f, "`{own}` is the only node group of the cluster-autoscaler that its Pods fit")
            }
            Self::Chance { expander } => {
                let by = match expander {
                    Some(expander) => format!("its expander `{expander}`"),
                    None => "its default expander".to_owned(),
                };
                write!(
                    f,
                    "the cluster-autoscaler chooses node groups by {by} and not by priority: new nodes come from the pool by chance"
                )
            }
            Self::NoPriorities { why } => write!(
                f,
                "the cluster-autoscaler has no priorities of node groups, so that new nodes come from the pool by chance: {why}"
            ),
            Self::Unnamed { own } if own.is_empty() => f.write_str(
                "the priorities of the cluster-autoscaler name no node group that may be the pool's: new nodes come from others",
            ),
            Self::Unnamed { own } => write!(
                f,
                "the priorities of the cluster-autoscaler do not name `{}`: new nodes come from other groups first",
                own.join("`, `")
            ),
            Self::Behind { first, priority, own } => write!(
                f,
                "the cluster-autoscaler takes `{first}` (priority {priority}) before `{own}`"
            ),
            Self::Tied { other, own, priority } => write!(
                f,
                "`{other}` and `{own}` have the same priority ({priority}) for the cluster-autoscaler: new nodes come from the pool by chance"
            ),
            Self::Ignored { key } => write!(
                f,
                "the cluster-autoscaler ignores the taint {key}: it makes nodes of the pool for Pods that cannot run there, and these Pods wait"
            ),
            Self::NoGroup => f.write_str("no node group of the cluster-autoscaler has its taints"),
            Self::Unseen { why } => {
                write!(f, "which node group the cluster-autoscaler takes first cannot be seen: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
