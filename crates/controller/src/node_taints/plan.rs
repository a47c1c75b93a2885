//! Changes of the taints of one node. Pure.
//!
//! A taint is ours if the annotation names it and the list has it with exactly this value. Any other taint has another
//! owner, and stays; so does one that no configuration can have set, whatever the annotation says.

use serde_json::{Value, json};

use crate::NodeTaint;
use tolerarch_kubernetes::cluster::{Node, TAINTS_KEY, Taint};
use tolerarch_kubernetes::discovery::is_reserved_taint;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Merge patch, if one is needed, for one version of the node: it replaces the list of taints.
    pub(super) patch: Option<Value>,
    /// Set if the node has another owner's taint of the same key and effect, with another value.
    pub(super) is_in_the_way: bool,
}

/// Plans to give the node exactly these entries' taints as ours; of two for the same key and effect the first counts.
pub(super) fn plan(node: &Node, entries: &[NodeTaint]) -> Plan {
    // Without a version the patch could undo concurrent changes. The API server always sets one.
    let version = &node.metadata.resource_version;
    if version.is_empty() || node.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let recorded: Vec<&str> = node.own_taints.split(',').collect();
    let is_ours =
        |taint: &Taint| !is_reserved_taint(&taint.key) && recorded.contains(&&*taint.to_string());
    let mut desired = desired(node, entries);
    let mut is_in_the_way = false;
    desired.retain(|desired| {
        let mut others = node.taints.iter().filter(|taint| !is_ours(taint));
        let other = others.find(|taint| taint.is_at_the_place_of(desired));
        is_in_the_way |= other.is_some_and(|other| other != *desired);
        other.is_none()
    });
    let taints = changed_taints(node, &desired, is_ours);
    let mut ours: Vec<String> = desired.iter().map(ToString::to_string).collect();
    ours.sort_unstable();
    let annotation = ours.join(",");
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

/// Returns the list of taints in which ours are exactly the desired ones. All others stay as they are.
fn changed_taints(node: &Node, desired: &[&Taint], is_ours: impl Fn(&Taint) -> bool) -> Vec<Value> {
    let mut taints = Vec::new();
    for (taint, raw) in node.taints.iter().zip(&node.raw_taints) {
        match find_at_the_place_of(taint, desired.iter().copied()) {
            Some(desired) if desired != taint => taints.push(json!(desired)),
            None if is_ours(taint) => {}
            _ => taints.push(raw.clone()),
        }
    }
    for desired in desired {
        if find_at_the_place_of(desired, &node.taints).is_none() {
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
        if is_selected && find_at_the_place_of(taint, desired.iter().copied()).is_none() {
            desired.push(taint);
        }
    }
    desired
}

fn find_at_the_place_of<'t>(
    taint: &Taint,
    taints: impl IntoIterator<Item = &'t Taint>,
) -> Option<&'t Taint> {
    taints
        .into_iter()
        .find(|other| other.is_at_the_place_of(taint))
}

#[cfg(test)]
mod tests;
