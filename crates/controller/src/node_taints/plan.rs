//! Changes of the taints of one node. Pure.
//!
//! A taint is ours if the annotation names it and the list has it with exactly this value. Any other taint has another
//! owner, and stays; so does one that no configuration can have set, whatever the annotation says.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{NodeTaint, is_reserved_taint};
use tolerarch_kubernetes::cluster::{Node, TAINTS_KEY, Taint};

#[derive(Debug, Default, PartialEq)]
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
    let was_ours: Vec<&str> = node.own_taints.split(',').filter(|taint| !taint.is_empty()).collect();
    let is_marked =
        |taint: &Taint| !is_reserved_taint(&taint.key) && was_ours.contains(&taint.to_string().as_str());
    let (mut taints, mut ours, mut is_in_the_way) = (Vec::new(), Vec::new(), false);
    let mut missing = wanted(node, entries);
    for raw in &node.raw_taints {
        let mut kept = raw.clone();
        if let Ok(present) = Taint::deserialize(raw) {
            let at_its_place = missing.iter().position(|wanted| wanted.is_at_the_place_of(&present));
            match at_its_place.map(|at| missing.remove(at)) {
                Some(wanted) if is_marked(&present) => {
                    ours.push(wanted);
                    if *wanted != present {
                        kept = json!(wanted);
                    }
                }
                Some(wanted) => is_in_the_way |= *wanted != present,
                None if is_marked(&present) => continue,
                None => {}
            }
        }
        taints.push(kept);
    }
    for wanted in missing {
        ours.push(wanted);
        taints.push(json!(wanted));
    }
    let mut ours: Vec<String> = ours.into_iter().map(Taint::to_string).collect();
    ours.sort_unstable();
    let own = ours.join(",");
    if taints == node.raw_taints && own == node.own_taints {
        return Plan { patch: None, is_in_the_way };
    }
    let own = if own.is_empty() { Value::Null } else { own.into() };
    let mut patch = json!({"metadata": {"resourceVersion": version, "annotations": {TAINTS_KEY: own}}});
    if taints != node.raw_taints {
        patch["spec"] = json!({"taints": taints});
    }
    Plan { patch: Some(patch), is_in_the_way }
}

/// Returns the taints that the node should have, one for each key and effect.
fn wanted<'e>(node: &Node, entries: &'e [NodeTaint]) -> Vec<&'e Taint> {
    let selected = |entry: &&NodeTaint| {
        let has = |(key, value)| node.metadata.labels.get(key) == Some(value);
        !entry.selector.is_empty() && entry.selector.iter().all(has)
    };
    let mut wanted: Vec<&Taint> = Vec::new();
    for NodeTaint { taint, .. } in entries.iter().filter(selected) {
        if !wanted.iter().any(|other| other.is_at_the_place_of(taint)) {
            wanted.push(taint);
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
