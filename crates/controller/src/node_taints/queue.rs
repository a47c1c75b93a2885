//! Nodes whose taints are to be changed, and when: at once, and ever later where that does not last.

use std::collections::HashMap;

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::plan::{Plan, plan};
use crate::NodeTaint;
use crate::loops::Written;
use crate::metrics::{CONTESTED, IN_THE_WAY};
use tolerarch_kubernetes::cluster::{Change, ClusterError, Node};

/// The pause after a change of a node, doubled with each one until it is the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);
/// The same after a try that came too late: a node that registers changes a few times a second.
const FIRST_CONFLICT: Duration = Duration::from_millis(200);
const LONGEST_CONFLICT: Duration = Duration::from_secs(10);
/// After so long without a try a node counts as any other. Longer than the longest pause, so none is fought more often.
const CALM: Duration = Duration::from_secs(3600);
/// So many changes of one node, each within [`CALM`] of the one before, are a fight.
const FIGHT: u32 = 4;

/// What is known of the nodes.
#[derive(Default)]
pub(super) struct Queue {
    nodes: HashMap<String, Known>,
    is_complete: bool,
}

#[derive(Default)]
struct Known {
    wanted: Option<Value>,
    is_busy: bool,
    /// Whether a taint of another owner is in the way.
    is_in_the_way: bool,
    /// Whether there is one since the list began.
    is_listed: bool,
    tries: Tries,
}

/// What came of a node so far.
#[derive(Default)]
struct Tries {
    changes: u32,
    failures: u32,
    conflicts: u32,
    last: Option<Instant>,
}

impl Known {
    /// When it is due; `None` where nothing is to be changed, or it is being changed.
    fn due(&self, now: Instant) -> Option<Instant> {
        let is_waiting = self.wanted.is_some() && !self.is_busy;
        is_waiting.then(|| self.tries.last.map_or(now, |last| last + self.tries.pause()))
    }
}

impl Tries {
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

/// What is new about a node, and worth being told: one of these.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) node: String,
    pub(super) result: &'static str,
}

impl Queue {
    /// Takes over what happened to the nodes.
    pub(super) fn take(&mut self, change: Change<Node>, entries: &[NodeTaint]) -> Option<News> {
        match change {
            // What is known may be out of date; all of it comes again.
            Change::Begins => {
                self.is_complete = false;
                for known in self.nodes.values_mut() {
                    (known.wanted, known.is_listed) = (None, false);
                }
            }
            Change::Complete => {
                self.is_complete = true;
                // Nodes that are gone since, without an event that would have told.
                self.nodes.retain(|_, known| known.is_listed || known.is_busy);
            }
            Change::Listed(node) | Change::Applied(node) => {
                let Plan { patch, is_in_the_way } = plan(&node, entries);
                let known = self.nodes.entry(node.name().to_owned()).or_default();
                (known.wanted, known.is_listed) = (patch, true);
                let was_in_the_way = std::mem::replace(&mut known.is_in_the_way, is_in_the_way);
                let node = node.name().to_owned();
                return (is_in_the_way && !was_in_the_way).then_some(News { node, result: IN_THE_WAY });
            }
            Change::Unread(node) => {
                let known = self.nodes.entry(node.name.unwrap_or_default()).or_default();
                (known.wanted, known.is_listed) = (None, true);
            }
            Change::Deleted(node) => {
                self.nodes.remove(&node.name.unwrap_or_default());
            }
            Change::Failed(_) => {}
        }
        None
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        self.nodes.values().filter_map(|known| known.due(now)).min()
    }

    /// At most so many nodes that are due, which are busy from now on, and what is to be changed about them.
    pub(super) fn begin(&mut self, free: usize) -> Vec<(String, Value)> {
        let now = Instant::now();
        let due = self.nodes.iter_mut().filter(|(_, known)| known.due(now).is_some_and(|due| due <= now));
        let begun = due.take(free).filter_map(|(name, known)| {
            known.is_busy = true;
            Some((name.clone(), known.wanted.take()?))
        });
        begun.collect()
    }

    pub(super) fn end(&mut self, name: String, patch: Value, written: Written) -> Option<News> {
        let known = self.nodes.get_mut(&name)?;
        known.is_busy = false;
        let (tries, now) = (&mut known.tries, Instant::now());
        if tries.last.is_some_and(|last| now.duration_since(last) >= CALM) {
            *tries = Tries::default();
        }
        tries.last = Some(now);
        match written {
            Some(Ok(())) => {
                (tries.changes, tries.failures, tries.conflicts) = (tries.changes.saturating_add(1), 0, 0);
                return (tries.changes == FIGHT).then_some(News { node: name, result: CONTESTED });
            }
            // What it is by now has been told, or will be.
            Some(Err(ClusterError::Conflict)) => tries.conflicts = tries.conflicts.saturating_add(1),
            Some(Err(ClusterError::NotFound)) => *tries = Tries::default(),
            _ => {
                tries.failures = tries.failures.saturating_add(1);
                // Unless something newer is known by now.
                known.wanted.get_or_insert(patch);
            }
        }
        None
    }

    /// Whether all nodes are as they are to be.
    pub(super) fn is_settled(&self) -> bool {
        self.is_complete && self.nodes.values().all(|known| known.wanted.is_none() && !known.is_busy)
    }
}

#[cfg(test)]
mod tests;
