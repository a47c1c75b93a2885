//! From verdicts to edits of the Pod, pure: what each open pool needs is added, and what an earlier pass added for one that
//! is closed by now is taken back. Which of it is ours, [`Ownership`] says.

mod ownership;
mod room;

pub use ownership::{AnnotationEdit, Ownership};

use crate::pod::{Pod, Toleration};
use crate::policy::{Pool, Verdicts};

/// What is to be changed in a Pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edits<'a> {
    /// Places in the Pod's list of tolerations, ascending: what an earlier pass added and is wrong by now.
    pub remove: Vec<usize>,
    /// Tolerations to append.
    pub add: Vec<&'a Toleration<'static>>,
    /// Annotations to set or to remove, each once.
    pub annotations: Vec<AnnotationEdit>,
}

impl Edits<'_> {
    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty() && self.annotations.is_empty()
    }

    /// Whether the API server still stores the Pod with what is added.
    pub fn fit(&self, pod: &Pod<'_>) -> bool {
        room::is_enough(pod, self)
    }
}

/// Where a Pod is placed.
#[derive(Debug)]
pub struct Placement<'a> {
    /// The pools that are open to the Pod through tolerarch, after this pass.
    pub opened: Vec<&'a Pool>,
    /// How the Pod has to be changed for that.
    pub edits: Edits<'a>,
}

/// Whether the Pod tolerates every pool by itself: then its images do not matter.
pub fn is_needless(pod: &Pod<'_>, pools: &[Pool]) -> bool {
    let covered = |own: &Toleration<'_>| pod.tolerations().iter().any(|there| there.covers(own));
    let tolerated = |pool: &Pool| pool.tolerations.iter().all(covered);
    !Ownership::is_claimed(pod) && pools.iter().all(tolerated)
}

/// Places a Pod by what its images mean for the pools.
pub fn place<'a>(pod: &Pod<'_>, verdicts: Verdicts<'a, '_>) -> Placement<'a> {
    let tolerations = pod.tolerations();
    let ownership = Ownership::of(pod, verdicts.pools());
    let covered_by_others = |own: &Toleration<'_>| {
        (0..).zip(tolerations).any(|(place, there)| there.covers(own) && !ownership.holds(place))
    };
    // A pool is opened with all its tolerations or not at all: the annotation names pools, so what is taken back later must
    // be all of a pool, and nothing that was there before.
    let is_closed = |pool: &&Pool| !pool.tolerations.iter().all(covered_by_others);
    let open = verdicts.of_pools().filter(|verdict| verdict.is_open).map(|verdict| verdict.pool);
    let opened: Vec<&Pool> = open.filter(is_closed).collect();
    let mut add = ownership::distinct(opened.iter().copied());

    let stays = |place: &usize| add.iter().any(|own| tolerations[*place].same(own));
    let remove = ownership.tolerations().iter().copied().filter(|place| !stays(place)).collect();
    add.retain(|own| !ownership.tolerations().iter().any(|&place| tolerations[place].same(own)));
    let annotations = ownership.record(verdicts.pools(), &opened).into_iter().collect();
    Placement { opened, edits: Edits { remove, add, annotations } }
}

#[cfg(test)]
mod tests;
