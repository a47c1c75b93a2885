//! Priorities of node groups, read as the cluster-autoscaler does: YAML as by sigs.k8s.io/yaml, patterns as by Go's
//! `regexp`.

mod pattern;

use std::collections::BTreeMap;

use regex::{RegexSet, RegexSetBuilder};
use tolerarch_text::yaml::{self, Data, Dialect, Key, KeyKind, Node};

use pattern::Refusal;

/// Maximum bytes of a text: the maximum size of a ConfigMap.
const TEXT: usize = 1 << 20;
/// Maximum bytes of all patterns in Rust's syntax. A parsed pattern takes about a hundred times as many.
const PATTERNS: usize = 256 << 10;
/// Maximum bytes of the automaton of all patterns. A search goes through all of it for each byte of a name.
const AUTOMATON: usize = 4 << 20;
/// Number of patterns above which go-yaml counts aliases, and refuses a text that consists mostly of them.
const MANY: usize = 1000;
/// Lowest priority of a group that the expander takes: its search for the highest priority begins here.
const LEAST: i64 = -1;

/// Priorities of the cluster-autoscaler's node groups (`--expander=priority`), from the ConfigMap
/// `cluster-autoscaler-priority-expander` in the autoscaler's namespace.
#[derive(Debug)]
pub struct Priorities {
    patterns: RegexSet,
    /// The priority of each pattern.
    priorities: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrioritiesError {
    /// The autoscaler refuses the text as well, and works without priorities.
    #[error("{0}")]
    Invalid(String),
    /// The autoscaler may accept the text, but how it reads the text is not known.
    #[error("{0}")]
    Unknown(String),
}

impl Priorities {
    /// Name of the ConfigMap.
    pub const CONFIG_MAP: &str = "cluster-autoscaler-priority-expander";
    /// Key of the ConfigMap's text.
    pub const KEY: &str = "priorities";

    /// Parses the text of the ConfigMap: lists of patterns by priority.
    pub fn parse(text: &str) -> Result<Self, PrioritiesError> {
        if text.is_empty() {
            return Err(PrioritiesError::Invalid("it is empty".to_owned()));
        }
        if text.len() > TEXT {
            return Err(PrioritiesError::Unknown(format!(
                "it has more than {TEXT} bytes"
            )));
        }
        let mut unknown = None;
        let mut translated = Vec::new();
        let mut priorities = Vec::new();
        let mut bytes_left = PATTERNS;
        for (priority, patterns) in read(text)? {
            for pattern in patterns {
                let rust = match pattern::translate(&pattern, bytes_left) {
                    Ok(rust) => rust,
                    Err(Refusal::Invalid(why)) => {
                        let message = format!("priority {priority}, pattern {pattern:?}: {why}");
                        return Err(PrioritiesError::Invalid(message));
                    }
                    Err(Refusal::Unknown(why)) => {
                        // The autoscaler may refuse a later pattern, and then it refuses the whole text.
                        let message = format!("priority {priority}, pattern {pattern:?}: {why}");
                        unknown.get_or_insert(PrioritiesError::Unknown(message));
                        continue;
                    }
                };
                bytes_left -= rust.len();
                if priority >= LEAST {
                    translated.push(rust);
                    priorities.push(priority);
                }
            }
        }
        if let Some(unknown) = unknown {
            return Err(unknown);
        }
        let patterns = RegexSetBuilder::new(translated)
            .size_limit(AUTOMATON)
            .build();
        let patterns = patterns.map_err(|_too_large| {
            PrioritiesError::Unknown(
                "its patterns are too large together to be tried here".to_owned(),
            )
        })?;
        Ok(Self {
            patterns,
            priorities,
        })
    }

    /// Returns the highest priority of the patterns that match anywhere in the group's name. Priorities below -1 are
    /// left out, as the expander never takes such groups.
    pub fn of(&self, group: &str) -> Option<i64> {
        let matching = self.patterns.matches(group).into_iter();
        matching.map(|number| self.priorities[number]).max()
    }
}

/// Reads the patterns by priority, as `sigs.k8s.io/yaml` decodes them into `map[int][]string`.
fn read(source: &str) -> Result<BTreeMap<i64, Vec<String>>, PrioritiesError> {
    let document = match yaml::read_first(source, Dialect::Kubernetes) {
        Ok(document) => document,
        Err(fault) if fault.is_unsupported() => {
            return Err(PrioritiesError::Unknown(fault.to_string()));
        }
        Err(fault) => return Err(PrioritiesError::Invalid(fault.to_string())),
    };
    let Some(document) = document else {
        return Ok(BTreeMap::new());
    };
    let members = match document.data {
        Data::Null => return Ok(BTreeMap::new()),
        Data::Map(members) => members,
        _ => {
            return Err(invalid(
                document.line,
                "lists by their priority are expected",
            ));
        }
    };
    let mut lists = BTreeMap::new();
    let mut count = 0;
    for (text, (_, list)) in sorted_by_text(members)? {
        let Ok(priority) = text.parse() else {
            return Err(invalid(list.line, "a key that is no whole number"));
        };
        let patterns = read_patterns(list)?;
        count += patterns.len();
        if count > MANY && source.contains('&') {
            return Err(PrioritiesError::Unknown(
                "it has too many aliases, perhaps".to_owned(),
            ));
        }
        lists.insert(priority, patterns);
    }
    Ok(lists)
}

/// Sorts the members of a mapping by the texts of their keys, as Go decodes them: where `+1`, `01` and `1` are keys,
/// the last one counts.
fn sorted_by_text(
    members: Vec<(Key, Node)>,
) -> Result<BTreeMap<String, (KeyKind, Node)>, PrioritiesError> {
    let mut by_text = BTreeMap::<String, (KeyKind, Node)>::new();
    for (Key { line, text, kind }, list) in members {
        if let Some((earlier, _)) = by_text.get(&text)
            && *earlier != kind
        {
            let message =
                format!("line {line}: {text} is there as two keys, such as a number and a text");
            return Err(PrioritiesError::Unknown(message));
        }
        by_text.insert(text, (kind, list));
    }
    Ok(by_text)
}

fn read_patterns(list: Node) -> Result<Vec<String>, PrioritiesError> {
    let items = match list.data {
        Data::Null => Vec::new(),
        Data::List(items) => items,
        _ => return Err(invalid(list.line, "a list of patterns is expected")),
    };
    let mut patterns = Vec::new();
    for item in items {
        let line = item.line;
        let Some(pattern) = item.into_text() else {
            return Err(invalid(
                line,
                "a pattern is expected, not a list or a mapping",
            ));
        };
        patterns.push(pattern);
    }
    Ok(patterns)
}

fn invalid(line: usize, why: &str) -> PrioritiesError {
    PrioritiesError::Invalid(format!("line {line}: {why}"))
}

#[cfg(test)]
mod tests;
