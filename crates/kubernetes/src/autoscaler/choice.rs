//! What the expander of a cluster-autoscaler makes of the groups of a pool.

use std::fmt;

use super::known::{Autoscaler, Expanders, KnownPriorities};
use super::priorities::Priorities;
use super::sides::Sides;
use super::status::NodeGroup;
use tolerarch_core::pod::Toleration;

/// Expanders that choose by the sizes of nodes or by lot. They may leave several groups, but no group comes first.
const INDIFFERENT: [&str; 4] = ["least-waste", "random", "most-pods", "least-nodes"];

/// Maximum number of groups that a sentence names.
const NAMED: usize = 5;

/// Source of new nodes for the Pods of a pool, where a cluster-autoscaler makes nodes. Judged for Pods without other
/// constraints.
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
    /// Other groups, or any that fits if the priorities name none at all: they do not name the pool's. `own` are some of
    /// these, as far as they are known.
    Unnamed {
        own: Vec<String>,
        is_any_named: bool,
    },
    /// Another group before those of the pool; `own` is the first of these, if one is known.
    Behind {
        first: String,
        priority: i64,
        own: Option<String>,
    },
    /// One of two groups by chance, as both have this priority.
    Tied {
        other: String,
        own: String,
        priority: i64,
    },
    /// Groups of the pool, also for Pods that cannot run there, as the taint with this key is ignored.
    Ignored { key: String },
    /// No group of the cluster-autoscaler: none has a taint of the pool.
    NoGroup,
    /// It cannot be seen, for this reason.
    Unseen { why: String },
}

impl Choice {
    /// Judges for Pods with the tolerations of a pool. `sides` are the groups, sorted for these Pods; `None` if no group is
    /// known.
    pub(super) fn of(
        autoscaler: &Autoscaler,
        sides: Option<&Sides<'_>>,
        tolerations: &[Toleration<'_>],
    ) -> Self {
        let is_ignored = |own: &Toleration<'_>| autoscaler.ignored_taints.has(own.key.as_str());
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
        if sides.own.is_empty() && sides.unseen.is_empty() {
            return Self::NoGroup;
        }
        if autoscaler.expanders == Expanders::Gke {
            return Self::Unseen {
                why: "GKE chooses among its node pools by rules of its own".to_owned(),
            };
        }
        if sides.rivals.is_empty() {
            match (sides.own.as_slice(), sides.unseen.as_slice()) {
                ([own, ..], []) => {
                    return Self::Alone {
                        own: own.name.clone(),
                    };
                }
                ([], [only]) => return Self::unseen(&only.name),
                _ => {}
            }
        }
        by_expander(autoscaler, sides)
    }

    /// Says that the place of a group whose taints are not known decides.
    fn unseen(group: &str) -> Self {
        let why = format!(
            "the taints of `{group}` are not known, as it has no node, none that is known to be its own, or nodes that differ"
        );
        Self::Unseen { why }
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
            Choice::First { own, priority } => Choice::Unseen {
                why: format!(
                    "its priorities put `{own}` first ({priority}), and count with --expander=priority, but its flags cannot be read"
                ),
            },
            other => other,
        },
    }
}

/// Returns the priorities, or what follows if there are none.
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
    let own = highest(priorities, &sides.own);
    let rival = highest(priorities, &sides.rivals);
    let unseen = highest(priorities, &sides.unseen);
    // A group that may be the pool's or not comes before all others.
    if let Some((priority, group)) = unseen
        && own.is_none_or(|(own, _)| own <= priority)
        && rival.is_none_or(|(rival, _)| rival < priority)
    {
        return Choice::unseen(group);
    }
    match (own, rival) {
        (Some((priority, own)), Some((more, first))) if more > priority => Choice::Behind {
            first: first.to_owned(),
            priority: more,
            own: Some(own.to_owned()),
        },
        (Some((priority, own)), Some((same, other))) if same == priority => Choice::Tied {
            other: other.to_owned(),
            own: own.to_owned(),
            priority,
        },
        (Some((priority, own)), _) => Choice::First {
            own: own.to_owned(),
            priority,
        },
        (None, Some((priority, first))) if sides.own.is_empty() => match unseen {
            Some((same, own)) if same == priority => Choice::Tied {
                other: first.to_owned(),
                own: own.to_owned(),
                priority,
            },
            _ => Choice::Behind {
                first: first.to_owned(),
                priority,
                own: None,
            },
        },
        (None, _) => {
            let groups = sides.own.iter().take(NAMED);
            Choice::Unnamed {
                own: groups.map(|group| group.name.clone()).collect(),
                is_any_named: rival.is_some() || unseen.is_some(),
            }
        }
    }
}

/// Returns the group with the highest priority, of equal ones the first; `None` if no group has one.
fn highest<'a>(priorities: &Priorities, groups: &[&'a NodeGroup]) -> Option<(i64, &'a str)> {
    let mut highest: Option<(i64, &str)> = None;
    for group in groups {
        let Some(priority) = priorities.of(&group.name) else {
            continue;
        };
        if highest.is_none_or(|(highest, _)| priority > highest) {
            highest = Some((priority, &group.name));
        }
    }
    highest
}

/// Writes a sentence whose subject is the cluster-autoscaler.
impl fmt::Display for Choice {
    #[expect(clippy::too_many_lines, reason = "a table of sentences")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First { own, priority } => {
                write!(
                    f,
                    "the cluster-autoscaler takes `{own}` first (priority {priority})"
                )
            }
            Self::Alone { own } => {
                write!(
                    f,
                    "`{own}` is the only node group of the cluster-autoscaler that its Pods fit"
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
            Self::Unnamed { own, is_any_named } => {
                f.write_str("the priorities of the cluster-autoscaler name no node group of it")?;
                if !own.is_empty() {
                    write!(f, " (`{}`)", own.join("`, `"))?;
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
                own: Some(own),
            } => {
                write!(
                    f,
                    "the cluster-autoscaler takes `{first}` (priority {priority}) before `{own}`"
                )
            }
            Self::Behind {
                first,
                priority,
                own: None,
            } => write!(
                f,
                "the cluster-autoscaler takes `{first}` (priority {priority}) before any node group that may be of it"
            ),
            Self::Tied {
                other,
                own,
                priority,
            } => write!(
                f,
                "`{other}` and `{own}` have the same priority ({priority}) for the cluster-autoscaler: new nodes come from the pool by chance"
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
