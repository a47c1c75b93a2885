//! Changes of the taints of one node. Pure.
//!
//! A taint is managed if the annotation names it and the node has it with exactly this value. Any other taint has
//! another owner, and stays. So does a taint that no configuration can set, even if the annotation names it.

use serde_json::{Value, json};

use crate::NodeTaint;
use tolerarch_kubernetes::cluster::{Node, TAINTS_KEY, Taint};
use tolerarch_kubernetes::discovery::is_reserved_taint;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Merge patch for one version of the node, as it replaces the list of taints. `None` if nothing has to change.
    pub(super) patch: Option<Value>,
    /// Set if the node has another owner's taint of the same key and effect, with another value.
    pub(super) is_in_the_way: bool,
}

/// Plans to make exactly the taints of these entries the managed ones. Of two entries for one key and effect, the first
/// counts.
pub(super) fn plan(node: &Node, entries: &[NodeTaint]) -> Plan {
    // Without a version the patch could undo concurrent changes. The API server always sets one.
    let version = &node.metadata.resource_version;
    if version.is_empty() || node.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let recorded: Vec<&str> = node.own_taints.split(',').collect();
    let is_managed = |taint: &Taint| {
        let text = taint.to_string();
        !is_reserved_taint(&taint.key) && recorded.contains(&text.as_str())
    };
    let mut managed = Vec::new();
    let mut is_in_the_way = false;
    for desired in desired(node, entries) {
        let mut others = node.taints.iter().filter(|taint| !is_managed(taint));
        match others.find(|taint| taint.has_same_key_and_effect(desired)) {
            Some(other) => is_in_the_way |= other != desired,
            None => managed.push(desired),
        }
    }
    let taints = changed_taints(node, &managed, is_managed);
    let annotation = annotation(&managed);
    if taints == node.raw_taints && annotation == node.own_taints {
        return Plan {
            patch: None,
            is_in_the_way,
        };
    }
    let annotation = if annotation.is_empty() {
        Value::Null
    } else {
        annotation.into()
    };
    let mut patch =
        json!({"metadata": {"resourceVersion": version, "annotations": {TAINTS_KEY: annotation}}});
    if taints != node.raw_taints {
        patch["spec"] = json!({"taints": taints});
    }
    Plan {
        patch: Some(patch),
        is_in_the_way,
    }
}

fn annotation(managed: &[&Taint]) -> String {
    let mut taints: Vec<String> = managed.iter().map(ToString::to_string).collect();
    taints.sort_unstable();
    taints.join(",")
}

/// Returns the list of taints in which the managed ones are exactly the desired ones. All others stay unchanged.
fn changed_taints(
    node: &Node,
    desired: &[&Taint],
    is_managed: impl Fn(&Taint) -> bool,
) -> Vec<Value> {
    let mut taints = Vec::new();
    for (taint, raw) in node.taints.iter().zip(&node.raw_taints) {
        match find_same_key_and_effect(taint, desired.iter().copied()) {
            Some(desired) if desired != taint => taints.push(json!(desired)),
            None if is_managed(taint) => {}
            _ => taints.push(raw.clone()),
        }
    }
    for desired in desired {
        if find_same_key_and_effect(desired, &node.taints).is_none() {
            taints.push(json!(desired));
        }
    }
    taints
}

/// Returns the taints that the node should have, one for each key and effect.
fn desired<'e>(node: &Node, entries: &'e [NodeTaint]) -> Vec<&'e Taint> {
    let mut desired: Vec<&Taint> = Vec::new();
    for NodeTaint { selector, taint } in entries {
        let has = |(key, value)| node.metadata.labels.get(key) == Some(value);
        let is_selected = !selector.is_empty() && selector.iter().all(has);
        if is_selected && find_same_key_and_effect(taint, desired.iter().copied()).is_none() {
            desired.push(taint);
        }
    }
    desired
}

fn find_same_key_and_effect<'t>(
    taint: &Taint,
    taints: impl IntoIterator<Item = &'t Taint>,
) -> Option<&'t Taint> {
    let mut taints = taints.into_iter();
    taints.find(|other| other.has_same_key_and_effect(taint))
}

#[cfg(test)]
mod tests;
