//! Nodes whose taints have to change, and when: at once, or after growing pauses if a change fails or is undone.

use std::collections::HashMap;

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::plan::{Plan, plan};
use crate::NodeTaint;
use crate::loops::Written;
use tolerarch_kubernetes::cluster::{Change, ClusterError, Node, ObjectStore};

/// Pause after the first change or failure; each further one doubles the pause.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(600);
/// Pause after a conflict: a node that registers changes a few times a second.
const CONFLICT: Duration = Duration::from_millis(200);
/// Time without an attempt after which the pauses start over; longer than the longest pause.
const CALM: Duration = Duration::from_secs(3600);
/// Number of changes of one node, each within [`CALM`] of the one before, after which the node is reported as
/// contested.
const CONTESTED: u32 = 4;

#[derive(Default)]
pub(super) struct Queue {
    nodes: ObjectStore<Plan>,
    /// Attempts to change nodes, by name of the node.
    attempts: HashMap<String, Attempts>,
}

#[derive(Default)]
struct Attempts {
    is_busy: bool,
    /// Set after a conflict: the next version of the node shows what remains to be changed.
    had_conflict: bool,
    /// Last patch that was written, or had a conflict. It is for one version of the node, so it is not tried again.
    last_patch: Option<Value>,
    changes: u32,
    failures: u32,
    last: Option<Instant>,
}

impl Attempts {
    fn pause(&self) -> Duration {
        let attempts = self.changes + self.failures;
        if self.had_conflict || attempts == 0 {
            return CONFLICT;
        }
        let doublings = (attempts - 1).min(16);
        FIRST.saturating_mul(1 << doublings).min(LONGEST)
    }
}

impl Queue {
    /// Applies a change. Returns the name of the node if another owner's taint has come to be in the way.
    pub(super) fn take(&mut self, change: Change<Node>, entries: &[NodeTaint]) -> Option<String> {
        let mut planned = Plan::default();
        let mut occupied = None;
        if let Change::Listed(node) | Change::Applied(node) = &change {
            planned = plan(node, entries);
            let was_in_the_way = match self.nodes.objects().get(node.name()) {
                Some(before) => before.is_in_the_way,
                None => false,
            };
            if planned.is_in_the_way && !was_in_the_way {
                occupied = Some(node.name().to_owned());
            }
        }
        // The node does not wait for the end of the list, which may be long, or fail.
        if let Change::Listed(node) = &change
            && planned.patch.is_some()
        {
            let applied = Change::Applied(node.clone());
            self.nodes.take(applied, |_| planned.clone());
        }
        let may_be_gone = matches!(change, Change::Complete | Change::Deleted(_));
        self.nodes.take(change, |_| planned);
        if may_be_gone {
            self.attempts.retain(|name, attempts| {
                attempts.is_busy || self.nodes.objects().contains_key(name)
            });
        }
        occupied
    }

    /// Iterates over the nodes that have to change and are not being changed.
    fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> {
        let now = Instant::now();
        self.nodes.objects().iter().filter_map(move |(name, plan)| {
            let patch = plan.patch.as_ref()?;
            let mut due = now;
            if let Some(attempts) = self.attempts.get(name) {
                if attempts.is_busy || attempts.last_patch.as_ref() == Some(patch) {
                    return None;
                }
                if let Some(last) = attempts.last {
                    due = last + attempts.pause();
                }
            }
            Some(Waiting { due, name, patch })
        })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting().map(|waiting| waiting.due).min()
    }

    /// Returns at most `free` due nodes with their patches, and marks them as busy.
    pub(super) fn begin(&mut self, free: usize) -> Vec<(String, Value)> {
        let due = self
            .waiting()
            .filter(|waiting| waiting.due <= Instant::now());
        let mut begun = Vec::new();
        for Waiting { name, patch, .. } in due.take(free) {
            begun.push((name.to_owned(), patch.clone()));
        }
        for (name, _) in &begun {
            self.attempts.entry(name.clone()).or_default().is_busy = true;
        }
        begun
    }

    /// Records the end of a change. Returns whether it shows that the node is contested.
    pub(super) fn end(&mut self, name: &str, patch: Value, written: Written) -> bool {
        let Some(attempts) = self.attempts.get_mut(name) else {
            return false;
        };
        let now = Instant::now();
        if let Some(last) = attempts.last
            && now.duration_since(last) >= CALM
        {
            *attempts = Attempts::default();
        }
        attempts.is_busy = false;
        attempts.last = Some(now);
        attempts.had_conflict = written == Some(Err(ClusterError::Conflict));
        match written {
            Some(Ok(())) => {
                attempts.changes += 1;
                attempts.failures = 0;
                attempts.last_patch = Some(patch);
                return attempts.changes == CONTESTED;
            }
            // The watch delivers the node's new version.
            Some(Err(ClusterError::Conflict)) => {
                attempts.failures = 0;
                attempts.last_patch = Some(patch);
            }
            Some(Err(ClusterError::NotFound)) => {
                *attempts = Attempts {
                    last_patch: Some(patch),
                    ..Attempts::default()
                }
            }
            _ => attempts.failures += 1,
        }
        false
    }

    /// Returns whether all nodes have the taints that they should have.
    pub(super) fn is_settled(&self) -> bool {
        if !self.nodes.is_complete() || self.waiting().next().is_some() {
            return false;
        }
        for (name, attempts) in &self.attempts {
            if attempts.is_busy {
                return false;
            }
            if attempts.had_conflict
                && let Some(plan) = self.nodes.objects().get(name)
                && plan.patch.is_some()
            {
                return false;
            }
        }
        true
    }
}

/// A node that has to change, with its patch.
struct Waiting<'q> {
    due: Instant,
    name: &'q str,
    patch: &'q Value,
}

#[cfg(test)]
mod tests;
