//! The node selector for pools whose nodes are selected by labels. Some autoscalers create no node for a toleration alone,
//! for example for a ComputeClass of GKE. So a Pod gets the selector and the tolerations together, or neither.

use super::ownership::{Ownership, labels_of};
use super::steering::managed_preferences;
use crate::pod::{Pod, Scheduling, Text, Texts};
use crate::policy::Pool;

/// Label by which Pods select a ComputeClass. GKE rejects a Pod that selects Spot VMs or a machine family as well
/// (cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes).
const COMPUTE_CLASS: &str = "cloud.google.com/compute-class";
const GKE_PREFIX: &str = "cloud.google.com/";

/// The node labels that a Pod selects, requires or prefers.
pub(super) struct Selection<'p> {
    /// The node selector; empty if it cannot be parsed.
    selector: Texts<'p>,
    /// Keys of the node selector that are managed.
    managed: Vec<String>,
    /// Keys of the labels that the user selects, requires or prefers; `None` if they cannot be parsed.
    users: Option<Vec<Text<'p>>>,
}

impl<'p> Selection<'p> {
    /// Reads the Pod's node labels; `None` if no pool is selected by labels. `None` also for the template of a DaemonSet: a
    /// selector would remove the DaemonSet from all other nodes.
    pub(super) fn of(pod: &'p Pod<'_>, ownership: &Ownership<'_>, pools: &[Pool]) -> Option<Self> {
        if pod.is_of_daemon_set() || pools.iter().all(|pool| pool.select.is_empty()) {
            return None;
        }
        let selector = Scheduling::selector_of(pod).unwrap_or_default();
        let mut managed = Vec::new();
        // A selector that the owner has set by server-side apply is the user's.
        if !pod.applied.node_selector {
            for (key, value) in &ownership.labels {
                if let Some(selected) = selector.get(key.as_str())
                    && *selected == **value
                {
                    managed.push(key.clone());
                }
            }
        }
        let users = users_keys(pod, &managed, ownership.preferred, pools);
        Some(Self {
            selector,
            managed,
            users,
        })
    }

    /// Returns whether the Pod may select the pool's nodes: the user names none of the pool's labels.
    pub(super) fn allows(&self, pool: &Pool) -> bool {
        if pool.select.is_empty() {
            return true;
        }
        let Some(users_keys) = &self.users else {
            return false;
        };
        for key in pool.select.keys() {
            let mut users_keys = users_keys.iter();
            if users_keys.any(|users_key| contradicts(key, users_key.as_str())) {
                return false;
            }
        }
        true
    }

    /// Returns the node selector with the labels of the opened pools; `None` if it is the Pod's present one. `steered` is
    /// the selector after steering, if steering changes it.
    pub(super) fn after(&self, steered: Option<Texts<'p>>, opened: &[&Pool]) -> Option<Texts<'p>> {
        let mut after = match steered {
            Some(steered) => steered,
            None => self.selector.clone(),
        };
        for key in &self.managed {
            after.remove(key.as_str());
        }
        for (key, value) in labels_of(opened) {
            after.insert(key.into(), value.into());
        }
        if after == self.selector {
            return None;
        }
        Some(after)
    }

    /// Returns whether the opened pools have a label that the Pod does not select yet.
    pub(super) fn is_new(&self, opened: &[&Pool]) -> bool {
        for (key, value) in labels_of(opened) {
            match self.selector.get(key.as_str()) {
                Some(selected) if *selected == *value => {}
                _ => return true,
            }
        }
        false
    }
}

/// Returns the keys of the node labels that the user selects, requires or prefers; `None` if they cannot be parsed.
/// `managed` are keys of the node selector, `preferred` is the list of managed preferences.
fn users_keys<'p>(
    pod: &'p Pod<'_>,
    managed: &[String],
    preferred: &str,
    pools: &[Pool],
) -> Option<Vec<Text<'p>>> {
    let Scheduling { selector, affinity } = Scheduling::of(pod)?;
    let mut keys: Vec<Text<'p>> = Vec::new();
    for key in selector.into_keys() {
        if !managed.iter().any(|managed| key == **managed) {
            keys.push(key);
        }
    }
    if let Some(required) = affinity.nodes.required {
        for term in required.terms {
            keys.extend(term.into_keys());
        }
    }
    let preferences = managed_preferences(preferred, pools);
    for weighted in affinity.nodes.preferred {
        if !preferences.iter().any(|managed| managed.term == weighted) {
            keys.extend(weighted.preference.into_keys());
        }
    }
    Some(keys)
}

/// Returns whether a Pod whose user names the label `users_key` cannot select nodes by the label `key`.
fn contradicts(key: &str, users_key: &str) -> bool {
    key == users_key || key == COMPUTE_CLASS && users_key.starts_with(GKE_PREFIX)
}
