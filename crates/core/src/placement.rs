//! From verdicts to edits of the Pod, pure: adds what each open pool needs, and removes what an earlier pass added for
//! a pool that has closed since. [`Ownership`] tells managed additions from the user's own.

mod edits;
mod managed;
mod ownership;
mod preference;
mod steering;
mod update;

pub use edits::{ANNOTATION_BYTES, Edits, Placement};
pub use ownership::{Ownership, distinct};
pub use steering::prefers;

use crate::pod::{Pod, Toleration};
use crate::policy::{Policy, Pool, Verdicts};

/// Returns whether the Pod tolerates every pool by itself and is not steered, so that its images do not matter.
pub(crate) fn is_needless(pod: &Pod<'_>, policy: &Policy) -> bool {
    !policy.placement.steer(pod)
        && !Ownership::is_claimed(pod)
        && policy.pools.iter().all(|pool| is_tolerated(pod, pool))
}

/// Returns whether the Pod's tolerations, managed ones and the user's, cover all those of the pool.
pub fn is_tolerated(pod: &Pod<'_>, pool: &Pool) -> bool {
    let is_covered = |toleration| {
        let mut present = pod.tolerations().iter();
        present.any(|other| other.covers(toleration))
    };
    pool.tolerations.iter().all(is_covered)
}

/// Places a Pod by what its images mean for the pools.
pub fn place<'a>(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: Verdicts<'a, '_>,
) -> Placement<'a> {
    let opened = opened(pod, ownership, &verdicts);
    let edits = toleration_edits(pod, ownership, &verdicts.policy.pools, &opened);
    let mut placement = Placement {
        opened,
        is_steered: false,
        is_nowhere: false,
        edits,
    };
    if let Some(steering) = steering::steer(pod, ownership, &verdicts, &placement.opened) {
        placement.is_steered = steering.is_steered;
        placement.is_nowhere = steering.is_nowhere;
        placement.edits.spec = steering.spec;
        placement.edits.steers = steering.is_addition;
        placement.edits.annotations.extend(steering.annotations);
    }
    placement
}

/// Returns the pools that are open to the Pod by managed tolerations after this pass.
fn opened<'a>(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: &Verdicts<'a, '_>,
) -> Vec<&'a Pool> {
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
    let mut opened = Vec::new();
    for pool in &verdicts.policy.pools {
        if !verdicts.is_open(pool) && !stays_open(pool) {
            continue;
        }
        // A pool gets all of its tolerations, even those that the user covers in part: the annotation names pools, and a
        // removal takes whole pools.
        let covers = |toleration| is_covered_by_user(pod, ownership, toleration);
        if !pool.tolerations.iter().all(covers) {
            opened.push(pool);
        }
    }
    opened
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
