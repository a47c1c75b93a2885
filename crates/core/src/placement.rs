//! From verdicts to edits of the Pod, pure: adds what each open pool needs, and removes what an earlier pass added for
//! a pool that has closed since. [`Ownership`] tells managed additions from the user's own.

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
    !policy.placement.steer(pod)
        && !Ownership::is_claimed(pod)
        && policy.pools.iter().all(|pool| is_tolerated(pod, pool))
}

/// Returns whether the Pod's tolerations, managed ones and the user's, cover all those of the pool, and its node selector
/// has the labels by which the pool is selected.
pub fn is_tolerated(pod: &Pod<'_>, pool: &Pool) -> bool {
    let is_covered = |toleration| {
        let mut present = pod.tolerations().iter();
        present.any(|other| other.covers(toleration))
    };
    pool.tolerations.iter().all(is_covered) && is_selected(pod, pool)
}

fn is_selected(pod: &Pod<'_>, pool: &Pool) -> bool {
    if pool.select.is_empty() || pod.is_of_daemon_set() {
        return true;
    }
    let selector = Scheduling::selector_of(pod).unwrap_or_default();
    let mut labels = pool.select.iter();
    labels.all(|(key, value)| {
        let own = selector.get(key.as_str());
        own.is_some_and(|own| *own == **value)
    })
}

/// Returns the pools that the node labels which the Pod itself names keep closed, whatever its images are.
pub fn contradicted<'a>(pod: &Pod<'_>, pools: &'a [Pool]) -> Vec<&'a Pool> {
    let ownership = Ownership::of(pod, pools);
    let Some(selection) = Selection::of(pod, &ownership, pools) else {
        return Vec::new();
    };
    let is_closed = |pool: &&Pool| !selection.allows(pool);
    pools.iter().filter(is_closed).collect()
}

/// Places a Pod by what its images mean for the pools.
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
        placement.is_nowhere = steering.is_nowhere;
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

/// Renders a member of the spec as JSON: `null` if nothing is left.
fn member<T: Serialize + Default + PartialEq>(value: &T) -> String {
    if *value == T::default() {
        return "null".to_owned();
    }
    // Writing to memory does not fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// Finds the pools that are open to the Pod by managed additions after this pass.
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
            // No node need have the labels of two pools.
            if selects && is_selecting {
                continue;
            }
            is_selecting |= selects;
        }
        placement.is_open |= is_open;
        // A pool gets all of its tolerations, even those that the user covers in part: the annotation names pools, and a
        // removal takes whole pools.
        let covers = |toleration| is_covered_by_user(pod, ownership, toleration);
        if selects || !pool.tolerations.iter().all(covers) {
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
    let mut present = pod.tolerations().iter().enumerate();
    present
        .any(|(place, other)| other.covers(toleration) && !ownership.tolerations.contains(&place))
}

/// Returns the edits by which the managed tolerations, and their annotation, become those of the opened pools.
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
    for &place in &ownership.tolerations {
        if !edits.add.iter().any(|wanted| present[place].same(wanted)) {
            edits.remove.push(place);
        }
    }
    edits.add.retain(|wanted| {
        let mut managed = ownership.tolerations.iter();
        !managed.any(|&place| present[place].same(wanted))
    });
    edits.annotations.extend(ownership.record(pools, opened));
    edits
}

#[cfg(test)]
mod tests;
