//! From verdicts to edits of the Pod, pure: adds what each open pool needs, and removes what an earlier pass added for
//! a pool that has closed since. [`Ownership`] tells managed additions from the user's own.

mod edits;
mod managed;
mod ownership;
mod preference;
mod steering;

pub use edits::{ANNOTATION_BYTES, Edits, Placement};
pub use ownership::{Ownership, distinct};

use crate::pod::{Pod, Toleration};
use crate::policy::{Policy, Pool, Verdicts};
use ownership::names;

/// Returns whether the Pod tolerates every pool by itself and is not steered, so that its images do not matter.
pub(crate) fn is_needless(
    pod: &Pod<'_>,
    Policy {
        pools, placement, ..
    }: &Policy,
) -> bool {
    !placement.steer(pod)
        && !Ownership::is_claimed(pod)
        && pools.iter().all(|pool| is_tolerated(pod, pool))
}

pub fn is_tolerated(pod: &Pod<'_>, pool: &Pool) -> bool {
    let covered = |own: &Toleration<'_>| pod.tolerations().iter().any(|there| there.covers(own));
    pool.tolerations.iter().all(covered)
}

/// Places a Pod by what its images mean for the pools. `before` is the template before an update: while an image is
/// unknown, managed additions of `before` stay, as far as the known images do not contradict them.
pub fn place<'a>(
    pod: &Pod<'_>,
    before: Option<&Pod<'_>>,
    verdicts: Verdicts<'a, '_>,
) -> Placement<'a> {
    let tolerations = pod.tolerations();
    let ownership = Ownership::of(pod, before, &verdicts.policy.pools);
    let possible = before.and_then(|_| verdicts.possible());
    let stays_open = |pool: &Pool| {
        ownership.was_open(pool) && possible.is_some_and(|known| known.contains(pool.platforms))
    };
    let covered_by_others = |own: &Toleration<'_>| {
        (0..)
            .zip(tolerations)
            .any(|(place, there)| there.covers(own) && !ownership.tolerations.contains(&place))
    };
    // A pool is opened with all its tolerations or not at all: the annotation names pools, so a later removal must
    // cover a whole pool, and nothing that was there before.
    let is_closed = |pool: &&Pool| !pool.tolerations.iter().all(covered_by_others);
    let open = verdicts
        .policy
        .pools
        .iter()
        .filter(|pool| verdicts.is_open(pool) || stays_open(pool));
    let opened: Vec<&Pool> = open.filter(is_closed).collect();
    let mut add = distinct(opened.iter().copied());

    let stays = |place: &usize| add.iter().any(|own| tolerations[*place].same(own));
    let remove = ownership
        .tolerations
        .iter()
        .copied()
        .filter(|place| !stays(place))
        .collect();
    add.retain(|own| {
        !ownership
            .tolerations
            .iter()
            .any(|&place| tolerations[place].same(own))
    });
    let annotations = ownership
        .record(&verdicts.policy.pools, &opened)
        .into_iter()
        .collect();
    let edits = Edits {
        remove,
        add,
        annotations,
        ..Edits::default()
    };
    let mut placement = Placement {
        opened,
        is_steered: false,
        is_nowhere: false,
        edits,
    };
    steering::steer(pod, before, &verdicts, &mut placement);
    placement
}

#[cfg(test)]
mod tests;
