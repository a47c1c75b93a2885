//! Nodes whose taints have to change, and when: at once, and with growing pauses if a change fails or does not last.

use std::collections::HashMap;

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::plan::{Plan, plan};
use crate::NodeTaint;
use crate::loops::Written;
use tolerarch_kubernetes::cluster::{Change, ClusterError, Known, Node};

/// Pause after a change or a failure, doubled with each one, and its maximum.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);
/// Pause after a conflict: a node that registers changes a few times a second.
const CONFLICT: Duration = Duration::from_millis(200);
/// Time without a try after which the pauses begin again; longer than the longest pause.
const CALM: Duration = Duration::from_secs(3600);
/// Number of changes of one node, each within [`CALM`] of the one before, that is reported as contested.
const FIGHT: u32 = 4;

#[derive(Default)]
pub(super) struct Queue {
    nodes: Known<Plan>,
    /// Tries to change nodes, by their names.
    tries: HashMap<String, Tries>,
}

#[derive(Default)]
struct Tries {
    is_busy: bool,
    /// True after a conflict: the node's next version tells what is left to do.
    is_late: bool,
    /// Patch that was written, or that came too late. As it is for one version of the node, it is not tried again.
    done: Option<Value>,
    changes: u32,
    failures: u32,
    last: Option<Instant>,
}

impl Tries {
    fn pause(&self) -> Duration {
        match self.changes + self.failures {
            tries @ 1.. if !self.is_late => {
                FIRST.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST)
            }
            _ => CONFLICT,
        }
    }
}

impl Queue {
    /// Takes over a change. Returns the name of a node where another owner's taint is newly in the way.
    pub(super) fn take(&mut self, change: Change<Node>, entries: &[NodeTaint]) -> Option<String> {
        let mut planned = Plan::default();
        let mut occupied = None;
        if let Change::Listed(node) | Change::Applied(node) = &change {
            planned = plan(node, entries);
            let before = self.nodes.objects().get(node.name());
            let was_in_the_way = before.is_some_and(|plan| plan.is_in_the_way);
            if planned.is_in_the_way && !was_in_the_way {
                occupied = Some(node.name().to_owned());
            }
        }
        // A long list may take its time, or fail.
        if let Change::Listed(node) = &change
            && planned.patch.is_some()
        {
            self.nodes
                .take(Change::Applied(node.clone()), |_| planned.clone());
        }
        let may_be_gone = matches!(change, Change::Complete | Change::Deleted(_));
        self.nodes.take(change, |_| planned);
        if may_be_gone {
            self.tries
                .retain(|name, tries| tries.is_busy || self.nodes.objects().contains_key(name));
        }
        occupied
    }

    /// Iterates over the nodes that have to change and are not being changed, with their patches, and when they are due.
    fn waiting(&self) -> impl Iterator<Item = (Instant, &String, &Value)> {
        let now = Instant::now();
        self.nodes.objects().iter().filter_map(move |(name, plan)| {
            let patch = plan.patch.as_ref()?;
            let Some(tries) = self.tries.get(name) else {
                return Some((now, name, patch));
            };
            if tries.is_busy || tries.done.as_ref() == Some(patch) {
                return None;
            }
            let due = tries.last.map_or(now, |last| last + tries.pause());
            Some((due, name, patch))
        })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting().map(|(due, ..)| due).min()
    }

    /// Returns at most `free` due nodes with their patches, and marks them as busy.
    pub(super) fn begin(&mut self, free: usize) -> Vec<(String, Value)> {
        let is_due = |(due, ..): &(Instant, &String, &Value)| *due <= Instant::now();
        let due = self.waiting().filter(is_due).take(free);
        let begun: Vec<(String, Value)> = due
            .map(|(_, name, patch)| (name.clone(), patch.clone()))
            .collect();
        for (name, _) in &begun {
            self.tries.entry(name.clone()).or_default().is_busy = true;
        }
        begun
    }

    /// Takes over the end of a change. Returns whether it shows that the node is contested.
    pub(super) fn end(&mut self, name: &str, patch: Value, written: Written) -> bool {
        let Some(tries) = self.tries.get_mut(name) else {
            return false;
        };
        let now = Instant::now();
        if let Some(last) = tries.last
            && now.duration_since(last) >= CALM
        {
            *tries = Tries::default();
        }
        tries.is_busy = false;
        tries.last = Some(now);
        tries.is_late = written == Some(Err(ClusterError::Conflict));
        match written {
            Some(Ok(())) => {
                tries.changes += 1;
                tries.failures = 0;
                tries.done = Some(patch);
                return tries.changes == FIGHT;
            }
            // The watch has delivered the node's new version, or will.
            Some(Err(ClusterError::Conflict)) => {
                tries.failures = 0;
                tries.done = Some(patch);
            }
            Some(Err(ClusterError::NotFound)) => {
                *tries = Tries {
                    done: Some(patch),
                    ..Tries::default()
                }
            }
            _ => tries.failures += 1,
        }
        false
    }

    /// Returns whether all nodes have the taints that they should have.
    pub(super) fn is_settled(&self) -> bool {
        let is_open = |(name, tries): (&String, &Tries)| {
            let has_to_change = |plan: &Plan| plan.patch.is_some();
            tries.is_busy
                || tries.is_late && self.nodes.objects().get(name).is_some_and(has_to_change)
        };
        self.nodes.is_complete()
            && !self.tries.iter().any(is_open)
            && self.waiting().next().is_none()
    }
}

#[cfg(test)]
mod tests;
