//! Nodes whose taints have to change, and when: at once, and with growing pauses if a change fails or does not last.

use std::collections::HashMap;

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::plan::{Plan, plan};
use crate::NodeTaint;
use crate::loops::Written;
use tolerarch_kubernetes::cluster::{Change, ClusterError, Node};

/// Pause after a change of a node, doubled with each one, and its maximum.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);
/// These pauses after a conflict: a node that registers changes a few times a second.
const FIRST_CONFLICT: Duration = Duration::from_millis(200);
const LONGEST_CONFLICT: Duration = Duration::from_secs(10);
/// Time without a try after which the pauses begin again; longer than the longest pause.
const CALM: Duration = Duration::from_secs(3600);
/// Number of changes of one node, each within [`CALM`] of the one before, that is reported as contested.
const FIGHT: u32 = 4;

#[derive(Default)]
pub(super) struct Queue {
    nodes: HashMap<String, Known>,
    is_complete: bool,
}

#[derive(Default)]
struct Known {
    wanted: Option<Value>,
    is_busy: bool,
    /// Set if another owner's taint has the key and effect of ours.
    is_in_the_way: bool,
    /// Set if the node has been listed or changed since the list began.
    is_listed: bool,
    tries: Tries,
}

#[derive(Default)]
struct Tries {
    changes: u32,
    failures: u32,
    conflicts: u32,
    last: Option<Instant>,
}

impl Known {
    /// Returns when the node is due; `None` if nothing has to change, or a change is under way.
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

impl Queue {
    /// Takes over a change. Returns the name of a node where another owner's taint is newly in the way.
    pub(super) fn take(&mut self, change: Change<Node>, entries: &[NodeTaint]) -> Option<String> {
        match change {
            // The state may be out of date; all nodes are listed again.
            Change::Begins => {
                self.is_complete = false;
                for known in self.nodes.values_mut() {
                    (known.wanted, known.is_listed) = (None, false);
                }
            }
            Change::Complete => {
                self.is_complete = true;
                // Removes nodes that were deleted while nothing was watched.
                self.nodes.retain(|_, known| known.is_listed || known.is_busy);
            }
            Change::Listed(node) | Change::Applied(node) => {
                let Plan { patch, is_in_the_way } = plan(&node, entries);
                let known = self.nodes.entry(node.name().to_owned()).or_default();
                (known.wanted, known.is_listed) = (patch, true);
                let was_in_the_way = std::mem::replace(&mut known.is_in_the_way, is_in_the_way);
                return (is_in_the_way && !was_in_the_way).then_some(node.metadata.name);
            }
            Change::Unread(node) => {
                let known = self.nodes.entry(node.name).or_default();
                (known.wanted, known.is_listed) = (None, true);
            }
            Change::Deleted(node) => {
                self.nodes.remove(&node.name);
            }
            Change::Failed(_) => {}
        }
        None
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        self.nodes.values().filter_map(|known| known.due(now)).min()
    }

    /// Returns at most `free` due nodes with their patches, and marks them as busy.
    pub(super) fn begin(&mut self, free: usize) -> Vec<(String, Value)> {
        let now = Instant::now();
        let due = self.nodes.iter_mut().filter(|(_, known)| known.due(now).is_some_and(|due| due <= now));
        let begun = due.take(free).filter_map(|(name, known)| {
            known.is_busy = true;
            Some((name.clone(), known.wanted.take()?))
        });
        begun.collect()
    }

    /// Takes over the end of a change. Returns whether it shows that the node is contested.
    pub(super) fn end(&mut self, name: &str, patch: Value, written: Written) -> bool {
        let Some(known) = self.nodes.get_mut(name) else { return false };
        known.is_busy = false;
        let (tries, now) = (&mut known.tries, Instant::now());
        if tries.last.is_some_and(|last| now.duration_since(last) >= CALM) {
            *tries = Tries::default();
        }
        tries.last = Some(now);
        match written {
            Some(Ok(())) => {
                (tries.changes, tries.failures, tries.conflicts) = (tries.changes.saturating_add(1), 0, 0);
                return tries.changes == FIGHT;
            }
            // The watch has delivered the node's new version, or will.
            Some(Err(ClusterError::Conflict)) => tries.conflicts = tries.conflicts.saturating_add(1),
            Some(Err(ClusterError::NotFound)) => *tries = Tries::default(),
            _ => {
                tries.failures = tries.failures.saturating_add(1);
                // A newer patch counts, if there is one by now.
                known.wanted.get_or_insert(patch);
            }
        }
        false
    }

    /// Returns whether all nodes have the taints that they should have.
    pub(super) fn is_settled(&self) -> bool {
        self.is_complete && self.nodes.values().all(|known| known.wanted.is_none() && !known.is_busy)
    }
}

#[cfg(test)]
mod tests;
