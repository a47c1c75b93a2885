//! From verdicts to edits of the Pod. Pure. Adds the tolerations and node labels of each open pool, and removes those that
//! an earlier pass added for a pool that has closed since. [`Ownership`] tells managed additions from the user's own.

mod edits;
mod managed;
mod ownership;
mod preference;
mod selection;
mod steering;
mod update;

pub use edits::{ANNOTATION_BYTES, Edits, Placement};
pub use ownership::{Ownership, distinct};
pub use steering::prefers;

use serde::Serialize;

use crate::pod::{Pod, Scheduling, Toleration};
use crate::policy::{Policy, Pool, Verdicts};
use selection::Selection;

/// Returns whether the Pod tolerates every pool by itself and is not steered, so that its images do not matter.
pub(crate) fn is_needless(pod: &Pod<'_>, policy: &Policy) -> bool {
    if policy.placement.steer(pod) || Ownership::is_claimed(pod) {
        return false;
    }
    policy.pools.iter().all(|pool| is_tolerated(pod, pool))
}

/// Returns whether the Pod's tolerations, both managed and the user's, cover all those of the pool, and its node selector
/// has the labels by which the pool is selected.
pub fn is_tolerated(pod: &Pod<'_>, pool: &Pool) -> bool {
    for toleration in &pool.tolerations {
        let mut present = pod.tolerations().iter();
        if !present.any(|other| other.covers(toleration)) {
            return false;
        }
    }
    is_selected(pod, pool)
}

fn is_selected(pod: &Pod<'_>, pool: &Pool) -> bool {
    if pool.select.is_empty() || pod.is_of_daemon_set() {
        return true;
    }
    let selector = Scheduling::selector_of(pod).unwrap_or_default();
    for (key, value) in &pool.select {
        let Some(selected) = selector.get(key.as_str()) else {
            return false;
        };
        if *selected != **value {
            return false;
        }
    }
    true
}

/// Returns the pools that are closed to the Pod, whatever its images are, because the Pod itself names their node labels.
pub fn contradicted<'a>(pod: &Pod<'_>, pools: &'a [Pool]) -> Vec<&'a Pool> {
    let ownership = Ownership::of(pod, pools);
    let Some(selection) = Selection::of(pod, &ownership, pools) else {
        return Vec::new();
    };
    let mut contradicted = Vec::new();
    for pool in pools {
        if !selection.allows(pool) {
            contradicted.push(pool);
        }
    }
    contradicted
}

/// Places a Pod by the verdicts on its images.
pub fn place<'a>(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: Verdicts<'a, '_>,
) -> Placement<'a> {
    let pools = &verdicts.policy.pools;
    let selection = Selection::of(pod, ownership, pools);
    let mut placement = open(pod, ownership, &verdicts, selection.as_ref());
    placement.edits = toleration_edits(pod, ownership, pools, &placement.opened);
    let opened = &placement.opened;
    let edits = &mut placement.edits;
    let mut selector = None;
    if let Some(steering) = steering::steer(pod, ownership, &verdicts, opened) {
        placement.is_steered = steering.is_steered;
        placement.lacks_common_platform = steering.lacks_common_platform;
        edits.steers = steering.is_addition;
        edits.annotations.extend(steering.annotations);
        if let Some(affinity) = &steering.affinity {
            edits.spec.insert("affinity", member(affinity));
        }
        selector = steering.selector;
    }
    if let Some(selection) = selection {
        selector = selection.after(selector, opened);
        edits.selects = selection.is_new(opened);
        edits.steers |= edits.selects;
    }
    if let Some(selector) = &selector {
        edits.spec.insert("nodeSelector", member(selector));
    }
    placement
}

/// Renders a member of the spec as JSON; `null` if the member is empty.
fn member<T: Serialize + Default + PartialEq>(value: &T) -> String {
    if *value == T::default() {
        return "null".to_owned();
    }
    // Writing to memory does not fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns a placement with the pools that are open to the Pod by managed additions after this pass, and without edits.
fn open<'a>(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: &Verdicts<'a, '_>,
    selection: Option<&Selection<'_>>,
) -> Placement<'a> {
    // The nodes on which the Pod may run while an image is unknown.
    let possible = if ownership.is_lasting() {
        verdicts.possible_if_unknown()
    } else {
        None
    };
    let stays_open = |pool: &Pool| {
        ownership.is_lasting_for(pool)
            && possible.is_some_and(|possible| possible.contains(pool.platforms))
    };
    let mut placement = Placement::default();
    let mut is_selecting = false;
    for pool in &verdicts.policy.pools {
        let is_open = verdicts.is_open(pool);
        if !is_open && !stays_open(pool) {
            continue;
        }
        let mut selects = false;
        if let Some(selection) = selection {
            if !selection.allows(pool) {
                placement.contradicted.get_or_insert(pool);
                continue;
            }
            selects = !pool.select.is_empty();
            // There may be no node with the labels of two pools.
            if selects && is_selecting {
                continue;
            }
            is_selecting |= selects;
        }
        placement.is_open |= is_open;
        // All of a pool's tolerations are added, even if the user's cover some of them: the annotation names pools, and a
        // removal takes whole pools.
        let is_covered = |toleration| is_covered_by_user(pod, ownership, toleration);
        if selects || !pool.tolerations.iter().all(is_covered) {
            placement.opened.push(pool);
        }
    }
    placement
}

/// Returns whether a toleration that is not managed covers this one.
fn is_covered_by_user(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    toleration: &Toleration<'_>,
) -> bool {
    for (index, other) in pod.tolerations().iter().enumerate() {
        if other.covers(toleration) && !ownership.tolerations.contains(&index) {
            return true;
        }
    }
    false
}

/// Returns the edits that make the managed tolerations, and their annotation, those of the opened pools.
fn toleration_edits<'a>(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    pools: &[Pool],
    opened: &[&'a Pool],
) -> Edits<'a> {
    let present = pod.tolerations();
    let mut edits = Edits {
        add: distinct(opened.iter().copied()),
        ..Edits::default()
    };
    for &index in &ownership.tolerations {
        let managed = &present[index];
        if !edits.add.iter().any(|wanted| managed.same(wanted)) {
            edits.remove.push(index);
        }
    }
    edits.add.retain(|wanted| {
        let mut managed = ownership.tolerations.iter();
        !managed.any(|&index| present[index].same(wanted))
    });
    edits.annotations.extend(ownership.record(pools, opened));
    edits
}

#[cfg(test)]
mod tests;
