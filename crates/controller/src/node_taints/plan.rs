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
    let was_ours: Vec<&str> = node.own_taints.split(',').collect();
    let is_ours =
        |taint: &Taint| !is_reserved_taint(&taint.key) && was_ours.contains(&&*taint.to_string());
    let (mut wanted, mut is_in_the_way) = (wanted(node, entries), false);
    wanted.retain(|wanted| {
        let mut others = node.taints.iter().filter(|taint| !is_ours(taint));
        let other = others.find(|taint| taint.is_at_the_place_of(wanted));
        is_in_the_way |= other.is_some_and(|other| other != *wanted);
        other.is_none()
    });
    let kept = node
        .taints
        .iter()
        .zip(&node.raw_taints)
        .filter_map(|(taint, raw)| {
            match wanted
                .iter()
                .find(|wanted| wanted.is_at_the_place_of(taint))
            {
                Some(wanted) if *wanted != taint => Some(json!(wanted)),
                None if is_ours(taint) => None,
                _ => Some(raw.clone()),
            }
        });
    let is_missing = |wanted: &&&Taint| {
        !node
            .taints
            .iter()
            .any(|taint| taint.is_at_the_place_of(wanted))
    };
    let taints: Vec<Value> = kept
        .chain(wanted.iter().filter(is_missing).map(|wanted| json!(wanted)))
        .collect();
    let mut ours: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    ours.sort_unstable();
    let own = ours.join(",");
    if taints == node.raw_taints && own == node.own_taints {
        return Plan {
            patch: None,
            is_in_the_way,
        };
    }
    let own = if own.is_empty() {
        Value::Null
    } else {
        own.into()
    };
    let mut patch =
        json!({"metadata": {"resourceVersion": version, "annotations": {TAINTS_KEY: own}}});
    if taints != node.raw_taints {
        patch["spec"] = json!({"taints": taints});
    }
    Plan {
        patch: Some(patch),
        is_in_the_way,
    }
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
