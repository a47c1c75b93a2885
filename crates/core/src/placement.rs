//! From verdicts to edits of the Pod, pure: what each open pool needs is added, and what an earlier pass added for one that
//! is closed by now is taken back. Which of it is ours, [`Ownership`] says.

mod ownership;
mod preference;
mod requirement;
mod room;
mod steering;

pub use ownership::{AnnotationEdit, Ownership, distinct};
pub use preference::{Preferred, PreferredEdit};
pub use requirement::{RequiredEdit, Requirement, SelectorEdit, TermEdit};
pub use steering::{NodeEdits, ParentEdit};

use serde_json::Value;

use crate::pod::{Pod, Toleration};
use crate::policy::{Policy, Pool, Verdicts};
use ownership::names;
use steering::Steering;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edits<'a> {
    /// Places in the Pod's list of tolerations, ascending: what an earlier pass added and is wrong by now.
    pub remove: Vec<usize>,
    pub add: Vec<&'a Toleration<'static>>,
    /// What changes in the node selector and the node affinity, if anything.
    pub nodes: Option<Box<NodeEdits>>,
    /// Annotations to set or to remove, each once.
    pub annotations: Vec<AnnotationEdit>,
    /// What becomes as it was before an update, instead of the edits above.
    pub restored: Option<Box<Restored>>,
}

/// Members of a Pod's spec that an update has changed and that become as they were: all that differs in them is ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The tolerations; `None` where they differ by more, or by nothing.
    pub tolerations: Option<Value>,
    /// The node selector, in the same way; null where there was none.
    pub node_selector: Option<Value>,
    /// The affinity, in the same way.
    pub affinity: Option<Value>,
}

impl Edits<'_> {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.add.is_empty()
            && self.nodes.is_none()
            && self.annotations.is_empty()
            && self.restored.is_none()
    }

    /// Whether the Pod gets something that steers it.
    pub fn steer(&self) -> bool {
        let steers = |restored: &Restored| restored.node_selector.is_some() || restored.affinity.is_some();
        self.nodes.as_ref().is_some_and(|nodes| nodes.adds()) || self.restored.as_deref().is_some_and(steers)
    }

    /// Whether the API server still stores the Pod with what is added.
    pub fn fit(&self, pod: &Pod<'_>) -> bool {
        room::is_enough(pod, self)
    }
}

#[derive(Debug)]
pub struct Placement<'a> {
    /// The pools that are open to the Pod through tolerarch, after this pass.
    pub opened: Vec<&'a Pool>,
    /// Whether something that tolerarch added steers it, after this pass.
    pub is_steered: bool,
    /// Whether it would be steered if its images had a platform in common.
    pub is_nowhere: bool,
    pub edits: Edits<'a>,
}

/// Whether the Pod tolerates every pool by itself, and is not steered: then its images do not matter.
pub(crate) fn is_needless(pod: &Pod<'_>, Policy { pools, placement, .. }: &Policy) -> bool {
    if placement.steer(pod) {
        return false;
    }
    !Ownership::is_claimed(pod) && pools.iter().all(|pool| is_tolerated(pod, pool))
}

pub fn is_tolerated(pod: &Pod<'_>, pool: &Pool) -> bool {
    let covered = |own: &Toleration<'_>| pod.tolerations().iter().any(|there| there.covers(own));
    pool.tolerations.iter().all(covered)
}

/// Whether the API server refuses the Pod anyway, for annotations that are too long: it checks them after webhooks.
pub(crate) fn is_refused_anyway(pod: &Pod<'_>) -> bool {
    pod.annotation_bytes() > room::ANNOTATIONS
}

/// Places a Pod by what its images mean for the pools. `before` is the template before an update: while an image is unknown,
/// what was managed there stays, as far as the known images do not contradict it.
pub fn place<'a>(pod: &Pod<'_>, before: Option<&Pod<'_>>, verdicts: Verdicts<'a, '_>) -> Placement<'a> {
    let tolerations = pod.tolerations();
    let ownership = Ownership::of(pod, before, verdicts.pools());
    let possible = before.and_then(|_| verdicts.possible());
    let stays_open =
        |pool| ownership.was_open(pool) && possible.is_some_and(|known| known.contains_all(pool.platforms));
    let covered_by_others = |own: &Toleration<'_>| {
        (0..).zip(tolerations).any(|(place, there)| there.covers(own) && !ownership.holds(place))
    };
    // A pool is opened with all its tolerations or not at all: the annotation names pools, so what is taken back later must
    // be all of a pool, and nothing that was there before.
    let is_closed = |pool: &&Pool| !pool.tolerations.iter().all(covered_by_others);
    let open = verdicts.of_pools().filter(|verdict| verdict.is_open || stays_open(verdict.pool));
    let opened: Vec<&Pool> = open.map(|verdict| verdict.pool).filter(is_closed).collect();
    let mut add = distinct(opened.iter().copied());

    let stays = |place: &usize| add.iter().any(|own| tolerations[*place].same(own));
    let remove = ownership.tolerations.iter().copied().filter(|place| !stays(place)).collect();
    add.retain(|own| !ownership.tolerations.iter().any(|&place| tolerations[place].same(own)));
    let mut annotations: Vec<AnnotationEdit> =
        ownership.record(verdicts.pools(), &opened).into_iter().collect();
    let Steering { edits: nodes, annotations: others, stands, is_nowhere } =
        steering::steer(pod, before, &verdicts, &opened);
    annotations.extend(others);
    let nodes = (nodes != NodeEdits::default()).then(|| Box::new(nodes));
    Placement {
        opened,
        is_steered: stands,
        is_nowhere,
        edits: Edits { remove, add, nodes, annotations, restored: None },
    }
}

#[cfg(test)]
mod tests;
