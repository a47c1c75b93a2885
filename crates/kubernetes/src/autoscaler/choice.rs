//! The node group from which a cluster-autoscaler makes new nodes for a pool, by its expander and its priorities.

use std::fmt;

use super::known::{Autoscaler, Expanders, KnownPriorities};
use super::priorities::Priorities;
use super::sides::Sides;
use super::status::NodeGroup;
use tolerarch_core::pod::Toleration;

/// Expanders that choose by node size or at random. They may rule groups out, but give no group precedence.
const INDIFFERENT: [&str; 4] = ["least-waste", "random", "most-pods", "least-nodes"];

/// Maximum number of groups that a sentence names.
const NAMED: usize = 5;

/// Source of new nodes for the Pods of a pool, where a cluster-autoscaler makes the nodes. The Pods are taken to have
/// no further constraints. `group` is, or may be, a group of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The pool's group, by its priority.
    First { group: String, priority: i64 },
    /// The pool's group: Pods of the pool fit no other group.
    Alone { group: String },
    /// Any group that fits: the expander (`None` for the default) does not order groups.
    Chance { expander: Option<String> },
    /// Any group that fits: there are no priorities, for this reason.
    NoPriorities { why: String },
    /// Other groups: the priorities name no group of the pool. If they name no group at all, any group that fits.
    /// `groups` holds some groups of the pool, if any are known.
    Unnamed {
        groups: Vec<String>,
        is_any_named: bool,
    },
    /// Another group, which precedes the pool's groups; `group` is the first of these, if one is known.
    Behind {
        first: String,
        priority: i64,
        group: Option<String>,
    },
    /// One of two groups at random: both have this priority.
    Tied {
        other: String,
        group: String,
        priority: i64,
    },
    /// Groups of the pool, even for Pods that cannot run there: the cluster-autoscaler ignores the taint with this key.
    Ignored { key: String },
    /// No group of the cluster-autoscaler: none has a taint of the pool.
    NoGroup,
    /// Cannot be determined, for this reason.
    Unseen { why: String },
}

impl Choice {
    /// Judges for Pods with the tolerations of a pool. `sides` are the groups, sorted for these Pods; `None` if the
    /// groups are not known.
    pub(super) fn of(
        autoscaler: &Autoscaler,
        sides: Option<&Sides<'_>>,
        tolerations: &[Toleration<'_>],
    ) -> Self {
        let ignored_taints = &autoscaler.ignored_taints;
        let is_ignored = |toleration: &Toleration<'_>| ignored_taints.has(toleration.key.as_str());
        if let Some(first) = tolerations.first()
            && tolerations.iter().all(is_ignored)
        {
            return Self::Ignored {
                key: first.key.as_str().to_owned(),
            };
        }
        let Some(sides) = sides else {
            return Self::Unseen {
                why: "its status, which names the node groups, cannot be read".to_owned(),
            };
        };
        if sides.of_pool.is_empty() && sides.unseen.is_empty() {
            return Self::NoGroup;
        }
        if autoscaler.expanders == Expanders::Gke {
            return Self::Unseen {
                why: "GKE chooses among its node pools by rules of its own".to_owned(),
            };
        }
        if sides.open.is_empty() {
            match (sides.of_pool.as_slice(), sides.unseen.as_slice()) {
                ([group, ..], []) => {
                    return Self::Alone {
                        group: group.name.clone(),
                    };
                }
                ([], [only]) => return Self::unseen(&only.name),
                _ => {}
            }
        }
        by_expander(autoscaler, sides)
    }

    /// Returns the verdict for a cluster where all depends on a group whose taints are not known.
    fn unseen(group: &str) -> Self {
        let why = format!(
            "the taints of `{group}` are not known, as it has no node, none that is known to be its own, or nodes that differ"
        );
        Self::Unseen { why }
    }

    /// Returns whether new nodes are certain to come from the pool's groups.
    pub fn is_right(&self) -> bool {
        matches!(self, Self::First { .. } | Self::Alone { .. })
    }

    /// Returns whether new nodes come from other groups, always or at random.
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

fn by_expander(autoscaler: &Autoscaler, sides: &Sides<'_>) -> Choice {
    match &autoscaler.expanders {
        Expanders::Named(names) => match names.first() {
            None => Choice::Chance { expander: None },
            Some(first) if first == "priority" => by_priorities(autoscaler, sides),
            Some(first) if INDIFFERENT.contains(&first.as_str()) => Choice::Chance {
                expander: Some(first.clone()),
            },
            Some(first) => Choice::Unseen {
                why: format!("its expander `{first}` decides"),
            },
        },
        Expanders::Gke | Expanders::Unseen => match by_priorities(autoscaler, sides) {
            Choice::First { group, priority } => Choice::Unseen {
                why: format!(
                    "its priorities put `{group}` first ({priority}), and count with --expander=priority, but its flags cannot be read"
                ),
            },
            other => other,
        },
    }
}

/// Returns the priorities, or the verdict if they cannot be used.
fn priorities_of(autoscaler: &Autoscaler) -> Result<&Priorities, Choice> {
    let map = format!(
        "the ConfigMap {}/{}",
        autoscaler.namespace,
        Priorities::CONFIG_MAP
    );
    Err(match &autoscaler.priorities {
        KnownPriorities::Read(priorities) => return Ok(priorities),
        KnownPriorities::Missing => Choice::NoPriorities {
            why: format!("{map} is missing"),
        },
        KnownPriorities::Ignored(why) => Choice::NoPriorities {
            why: format!("{map} does not count: {why}"),
        },
        KnownPriorities::Unknown(why) => Choice::Unseen {
            why: format!("{map} cannot be judged: {why}"),
        },
    })
}

fn by_priorities(autoscaler: &Autoscaler, sides: &Sides<'_>) -> Choice {
    let priorities = match priorities_of(autoscaler) {
        Ok(priorities) => priorities,
        Err(choice) => return choice,
    };
    let of_pool = highest(priorities, &sides.of_pool);
    let open = highest(priorities, &sides.open);
    let unseen = highest(priorities, &sides.unseen);
    if let Some(unseen) = unseen {
        // It precedes all others, and may or may not be the pool's.
        let precedes_pool = of_pool.is_none_or(|group| group.priority <= unseen.priority);
        let precedes_open = open.is_none_or(|group| group.priority < unseen.priority);
        if precedes_pool && precedes_open {
            return Choice::unseen(unseen.name);
        }
    }
    match (of_pool, open) {
        (Some(group), Some(other)) if other.priority > group.priority => other.before(Some(group)),
        (Some(group), Some(other)) if other.priority == group.priority => other.tied_with(group),
        (Some(group), _) => Choice::First {
            group: group.name.to_owned(),
            priority: group.priority,
        },
        (None, Some(first)) if sides.of_pool.is_empty() => match unseen {
            Some(unseen) if unseen.priority == first.priority => first.tied_with(unseen),
            _ => first.before(None),
        },
        (None, _) => {
            let groups = sides.of_pool.iter().take(NAMED);
            Choice::Unnamed {
                groups: groups.map(|group| group.name.clone()).collect(),
                is_any_named: open.is_some() || unseen.is_some(),
            }
        }
    }
}

/// A group that the priorities name.
#[derive(Clone, Copy)]
struct Prioritized<'a> {
    name: &'a str,
    priority: i64,
}

impl Prioritized<'_> {
    fn before(self, group: Option<Self>) -> Choice {
        Choice::Behind {
            first: self.name.to_owned(),
            priority: self.priority,
            group: group.map(|group| group.name.to_owned()),
        }
    }

    fn tied_with(self, group: Self) -> Choice {
        Choice::Tied {
            other: self.name.to_owned(),
            group: group.name.to_owned(),
            priority: self.priority,
        }
    }
}

/// Returns the group with the highest priority, the first of several; `None` if the priorities name no group.
fn highest<'a>(priorities: &Priorities, groups: &[&'a NodeGroup]) -> Option<Prioritized<'a>> {
    let mut highest: Option<Prioritized<'_>> = None;
    for group in groups {
        let Some(priority) = priorities.of(&group.name) else {
            continue;
        };
        if highest.is_none_or(|highest| priority > highest.priority) {
            highest = Some(Prioritized {
                name: &group.name,
                priority,
            });
        }
    }
    highest
}

/// Writes a sentence whose subject is the cluster-autoscaler.
impl fmt::Display for Choice {
    #[expect(clippy::too_many_lines, reason = "a table of sentences")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { group, priority } => {
                write!(
                    f,
                    "the cluster-autoscaler takes `{group}` first (priority {priority})"
                )
            }
            Self::Alone { group } => {
                write!(
                    f,
                    "`{group}` is the only node group of the cluster-autoscaler that its Pods fit"
                )
            }
            Self::Chance { expander } => {
                let by = match expander {
                    Some(expander) => format!("its expander `{expander}`"),
                    None => "its default expander".to_owned(),
                };
                write!(
                    f,
                    "the cluster-autoscaler chooses node groups by {by} and not by priority: where another group fits as well, new nodes come from the pool by chance"
                )
            }
            Self::NoPriorities { why } => write!(
                f,
                "the cluster-autoscaler has no priorities of node groups, so that new nodes come from the pool by chance: {why}"
            ),
            Self::Unnamed {
                groups,
                is_any_named,
            } => {
                f.write_str("the priorities of the cluster-autoscaler name no node group of it")?;
                if !groups.is_empty() {
                    write!(f, " (`{}`)", groups.join("`, `"))?;
                }
                if *is_any_named {
                    f.write_str(": new nodes come from other groups first")
                } else {
                    f.write_str(", and no other one: new nodes come from the pool by chance")
                }
            }
            Self::Behind {
                first,
                priority,
                group: Some(group),
            } => {
                write!(
                    f,
                    "the cluster-autoscaler takes `{first}` (priority {priority}) before `{group}`"
                )
            }
            Self::Behind {
                first,
                priority,
                group: None,
            } => write!(
                f,
                "the cluster-autoscaler takes `{first}` (priority {priority}) before any node group that may be of it"
            ),
            Self::Tied {
                other,
                group,
                priority,
            } => write!(
                f,
                "`{other}` and `{group}` have the same priority ({priority}) for the cluster-autoscaler: new nodes come from the pool by chance"
            ),
            Self::Ignored { key } => write!(
                f,
                "the cluster-autoscaler ignores the taint {key}: it makes nodes of the pool for Pods that cannot run there, and these Pods wait"
            ),
            Self::NoGroup => f.write_str("no node group of the cluster-autoscaler has its taints"),
            Self::Unseen { why } => {
                write!(
                    f,
                    "which node group the cluster-autoscaler takes first cannot be seen: {why}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
