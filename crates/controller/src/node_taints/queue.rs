//! Nodes whose taints are to be changed, and when: at once, and ever later where that does not last.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::plan::{Plan, plan};
use super::write::Written;
use crate::NodeTaint;
use tolerarch_kubernetes::cluster::{Change, TaintedNode};

/// The pause after a change of a node, doubled with each one until it is the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);
/// The same after a try that came too late: a node that registers changes a few times a second.
const FIRST_CONFLICT: Duration = Duration::from_millis(200);
const LONGEST_CONFLICT: Duration = Duration::from_secs(10);
/// After so long without a try a node counts as any other. Longer than the longest pause, so that another controller is never
/// fought more often.
const CALM: Duration = Duration::from_secs(3600);
/// So many changes of one node, each within [`CALM`] of the one before, are a fight.
const FIGHT: u32 = 4;

/// What is known of the nodes.
#[derive(Default)]
pub(super) struct Queue {
    /// What is to be changed, by the names of the nodes.
    wanted: HashMap<String, Value>,
    /// Nodes that are being changed.
    busy: HashSet<String>,
    tried: HashMap<String, Tried>,
    /// Nodes where a taint of another owner is in the way.
    in_the_way: HashSet<String>,
    /// Those that were listed since the list began.
    listed: HashSet<String>,
    is_complete: bool,
}

/// What came of a node so far.
struct Tried {
    changes: u32,
    failures: u32,
    conflicts: u32,
    last: Instant,
}

impl Tried {
    fn pause(&self) -> Duration {
        let doubled = |first: Duration, times: u32, longest: Duration| {
            first.saturating_mul(1 << times.saturating_sub(1).min(16)).min(longest)
        };
        match (self.conflicts, self.changes + self.failures) {
            (0, 0) => Duration::ZERO,
            (0, tries) => doubled(FIRST, tries, LONGEST),
            (conflicts, _) => doubled(FIRST_CONFLICT, conflicts, LONGEST_CONFLICT),
        }
    }
}

/// What is new about a node, and worth being told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// This node has a taint of another owner, of the same key and effect, with another value.
    InTheWay(String),
    /// What was changed of this node does not last: another controller wants it otherwise.
    Contested(String),
}

impl Queue {
    /// Takes over what happened to the nodes.
    pub(super) fn take(&mut self, change: Change<TaintedNode>, entries: &[NodeTaint]) -> Option<News> {
        match change {
            // What is known may be out of date; all of it comes again.
            Change::Begins => {
                self.is_complete = false;
                self.wanted.clear();
                self.listed.clear();
            }
            Change::Complete => {
                self.is_complete = true;
                // Nodes that are gone since, without an event that would have told.
                let listed = std::mem::take(&mut self.listed);
                self.in_the_way.retain(|name| listed.contains(name));
                self.tried.retain(|name, _| listed.contains(name));
            }
            Change::Listed(node) | Change::Applied(node) => {
                let Plan { patch, is_in_the_way } = plan(&node, entries);
                let name = node.name();
                if !self.is_complete {
                    self.listed.insert(name.to_owned());
                }
                match patch {
                    Some(patch) => self.wanted.insert(name.to_owned(), patch),
                    None => self.wanted.remove(name),
                };
                match is_in_the_way {
                    true => {
                        let is_new = self.in_the_way.insert(name.to_owned());
                        return is_new.then(|| News::InTheWay(name.to_owned()));
                    }
                    false => self.in_the_way.remove(name),
                };
            }
            Change::Unread(node) => {
                let name = node.name.unwrap_or_default();
                self.wanted.remove(&name);
                self.listed.insert(name);
            }
            Change::Deleted(node) => self.forget(&node.name.unwrap_or_default()),
            Change::Failed(_) => {}
        }
        None
    }

    fn forget(&mut self, name: &str) {
        self.wanted.remove(name);
        self.in_the_way.remove(name);
        self.tried.remove(name);
    }

    /// When the next node is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        for name in self.wanted.keys().filter(|name| !self.busy.contains(*name)) {
            let due = self.due(name).unwrap_or(now);
            if due <= now {
                return Some(due);
            }
            next = Some(next.map_or(due, |next: Instant| next.min(due)));
        }
        next
    }

    /// When a node is due; `None` for at once.
    fn due(&self, name: &str) -> Option<Instant> {
        self.tried.get(name).map(|tried| tried.last + tried.pause())
    }

    /// At most so many nodes that are due, which are busy from now on, and what is to be changed about them.
    pub(super) fn begin(&mut self, free: usize) -> Vec<(String, Value)> {
        let now = Instant::now();
        self.tried.retain(|_, tried| now.duration_since(tried.last) < CALM);
        let is_due =
            |name: &&String| !self.busy.contains(*name) && self.due(name).is_none_or(|due| due <= now);
        let names: Vec<String> = self.wanted.keys().filter(is_due).take(free).cloned().collect();
        let taken = names.into_iter().filter_map(|name| self.wanted.remove_entry(&name));
        let taken: Vec<(String, Value)> = taken.collect();
        self.busy.extend(taken.iter().map(|(name, _)| name.clone()));
        taken
    }

    /// This came of a change.
    pub(super) fn end(&mut self, name: String, patch: Value, written: Written) -> Option<News> {
        self.busy.remove(&name);
        let last = Instant::now();
        let first = Tried { changes: 0, failures: 0, conflicts: 0, last };
        let tried = self.tried.entry(name.clone()).or_insert(first);
        tried.last = last;
        match written {
            Written::Changed => {
                (tried.changes, tried.failures, tried.conflicts) = (tried.changes.saturating_add(1), 0, 0);
                return (tried.changes == FIGHT).then_some(News::Contested(name));
            }
            // What it is by now has been told, or will be.
            Written::Conflict => tried.conflicts = tried.conflicts.saturating_add(1),
            Written::Gone => {
                self.tried.remove(&name);
            }
            Written::Refused | Written::Forbidden | Written::Failed | Written::NotLeading => {
                tried.failures = tried.failures.saturating_add(1);
                // Unless something newer is known by now.
                self.wanted.entry(name).or_insert(patch);
            }
        }
        None
    }

    /// Whether all nodes are as they are to be.
    pub(super) fn is_settled(&self) -> bool {
        self.is_complete && self.wanted.is_empty() && self.busy.is_empty()
    }
}

#[cfg(test)]
mod tests;
