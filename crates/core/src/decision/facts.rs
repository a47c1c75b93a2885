//! What a reason depends on, and which reason follows from it.

use super::explanation;
use crate::placement::{Ownership, Placement, is_tolerated};
use crate::pod::Pod;
use crate::policy::{Blocker, Policy, Pool, Verdicts};
use crate::reason::{LookupError, Reason};

/// The facts about a Pod, its pools and its images that make the reason of a decision.
pub(super) struct Facts<'a, 'i> {
    verdicts: Verdicts<'a, 'i>,
    /// Set if a toleration, or the selector of a pool, is added.
    opens_pool: bool,
    /// Set if a node selector, a node affinity or a preference is added.
    adds_steering: bool,
    /// Set if additions of an earlier pass are removed, rather than only written in another form.
    retracts: bool,
    /// Set if the Pod is steered after this pass, and no pool is open to it by managed tolerations.
    is_only_steered: bool,
    /// Set if the Pod would be steered if its images had a platform in common.
    is_nowhere: bool,
    /// Set if a pool is open to the Pod: by its images, or because managed tolerations stay.
    is_open: bool,
    /// The pool that is closed although all images run there, where no other is open.
    withheld: Option<Withheld<'a>>,
    /// Set if the Pod's present tolerations cover that pool's, and it is only not open to the workload yet.
    is_held_back_tolerated: bool,
    /// The unknown image for which additions of an earlier pass stay.
    keeping: Option<Blocker<'a>>,
    /// The image that decides; `None` if no image keeps the Pod ineligible for a pool, or a toleration is added.
    blocker: Option<Blocker<'a>>,
}

/// Why a pool is closed to a Pod whose images run there.
#[derive(Clone, Copy)]
enum Withheld<'a> {
    /// The pool is not open to the Pod's workload yet.
    ByShare(&'a Pool),
    /// The Pod itself names node labels that the pool selects.
    BySelector(&'a Pool),
}

impl<'a, 'i> Facts<'a, 'i> {
    pub(super) fn of(
        pod: &Pod<'_>,
        ownership: &Ownership<'_>,
        verdicts: Verdicts<'a, 'i>,
        placement: &Placement<'a>,
    ) -> Self {
        let Placement {
            opened,
            is_open,
            contradicted,
            is_steered,
            is_nowhere,
            edits,
        } = placement;
        let is_open = *is_open || !opened.is_empty();
        let mut withheld = None;
        let mut is_held_back_tolerated = false;
        if !is_open {
            if let Some(pool) = contradicted {
                withheld = Some(Withheld::BySelector(pool));
            } else if let Some(pool) = verdicts.held_back() {
                withheld = Some(Withheld::ByShare(pool));
                is_held_back_tolerated = is_tolerated(pod, pool);
            }
        }
        let changes_existing = edits.changes_existing();
        let mut keeping = None;
        // Additions that stay may only change their form: in a Pod those that steer, in a template tolerations as well.
        let mut keeps_additions = *is_steered;
        if ownership.is_lasting() {
            keeps_additions |= !opened.is_empty();
            if !changes_existing {
                keeping = verdicts.unknown();
            }
        }
        let is_rewritten = keeps_additions && !changes_existing;
        let mut facts = Self {
            verdicts,
            opens_pool: !edits.add.is_empty() || edits.selects,
            adds_steering: edits.steers,
            retracts: !edits.is_empty() && !is_rewritten,
            is_only_steered: *is_steered && opened.is_empty(),
            is_nowhere: *is_nowhere,
            is_open,
            withheld,
            is_held_back_tolerated,
            keeping,
            blocker: None,
        };
        if !facts.opens_pool {
            facts.blocker = keeping.or_else(|| verdicts.decisive());
            if facts.blocker.is_none() && (*is_steered || *is_nowhere) {
                facts.blocker = verdicts.narrowing_image();
            }
        }
        facts
    }

    /// Returns the reason: that of the first line whose condition holds.
    pub(super) fn reason(&self) -> Reason {
        if self.opens_pool {
            Reason::Tolerated
        } else if self.adds_steering {
            Reason::Placed
        } else if self.retracts {
            Reason::Retracted
        } else if let Some(unknown) = self.keeping {
            unknown.cause.into()
        } else if self.is_only_steered {
            Reason::Placed
        } else if self.is_open || self.is_held_back_tolerated || self.needs_nothing() {
            Reason::AlreadyTolerated
        } else if self.is_nowhere {
            Reason::NoCommonPlatform
        } else if let Some(withheld) = self.withheld {
            match withheld {
                Withheld::ByShare(_) => Reason::NotInShare,
                Withheld::BySelector(_) => Reason::OwnSelector,
            }
        } else {
            match self.blocker.or_else(|| self.verdicts.narrowing_image()) {
                Some(blocker) => blocker.cause.into(),
                None => Reason::Unknown(LookupError::Internal),
            }
        }
    }

    /// Returns whether there are no pools, as in some profiles, and no image narrows the nodes either.
    fn needs_nothing(&self) -> bool {
        self.verdicts.policy.pools.is_empty() && self.verdicts.narrowing_image().is_none()
    }

    /// Returns the image that decides; `None` if no image does.
    pub(super) fn image(&self) -> Option<&'a str> {
        if matches!(self.reason(), Reason::NotInShare | Reason::OwnSelector) {
            return None;
        }
        Some(self.blocker?.image)
    }

    /// Returns the text of the Pod's annotation with the reason, empty to remove it; `None` to leave it.
    pub(super) fn explanation(&self, policy: &Policy, blockers: &[Blocker<'_>]) -> Option<String> {
        let is_tolerated_already = self.reason() == Reason::AlreadyTolerated;
        let text = match (self.withheld, self.blocker) {
            _ if self.is_open => String::new(),
            (Some(_), _) if is_tolerated_already => String::new(),
            (None, None) => String::new(),
            // What is written stays true while the Pod is ineligible.
            _ if !policy.explain => return None,
            (Some(Withheld::ByShare(pool)), _) => explanation::by_share(pool),
            (Some(Withheld::BySelector(pool)), _) => explanation::by_selector(pool),
            (None, Some(blocker)) => explanation::by_image(self.is_nowhere, blocker, blockers),
        };
        Some(text)
    }
}
