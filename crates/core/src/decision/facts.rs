//! The facts that a reason depends on, and the reason that follows from them.

use super::explanation;
use crate::placement::{Ownership, Placement, is_tolerated};
use crate::pod::Pod;
use crate::policy::{Blocker, Policy, Pool, Verdicts};
use crate::reason::{LookupError, Reason};

/// The facts about a Pod, its pools and its images from which the reason of a decision follows.
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
    lacks_common_platform: bool,
    /// Set if a pool is open to the Pod: by its images, or because managed tolerations stay.
    is_open: bool,
    /// The closed pool on which all images run, if no pool is open.
    withheld: Option<Restriction<'a>>,
    /// Set if the Pod already tolerates the withheld pool, and only the share closes the pool.
    is_held_back_tolerated: bool,
    /// The unknown image because of which additions of an earlier pass stay.
    preserving_image: Option<Blocker<'a>>,
    /// The decisive image; `None` if no image keeps the Pod ineligible for a pool, or if a toleration is added.
    blocker: Option<Blocker<'a>>,
}

/// Reason why a pool is closed to a Pod whose images run there.
#[derive(Clone, Copy)]
enum Restriction<'a> {
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
            is_steered,
            lacks_common_platform,
            edits,
            ..
        } = placement;
        let is_steered = *is_steered;
        let lacks_common_platform = *lacks_common_platform;
        let changes_existing = edits.changes_existing();
        let mut preserving_image = None;
        // Additions that stay may change their form: in a Pod only those that steer, in a template tolerations as well.
        let mut keeps_additions = is_steered;
        if ownership.is_lasting() {
            keeps_additions |= !opened.is_empty();
            if !changes_existing {
                preserving_image = verdicts.unknown();
            }
        }
        let is_rewritten = keeps_additions && !changes_existing;
        let mut facts = Self {
            verdicts,
            opens_pool: !edits.add.is_empty() || edits.selects,
            adds_steering: edits.steers,
            retracts: !edits.is_empty() && !is_rewritten,
            is_only_steered: is_steered && opened.is_empty(),
            lacks_common_platform,
            is_open: placement.is_open || !opened.is_empty(),
            withheld: None,
            is_held_back_tolerated: false,
            preserving_image,
            blocker: None,
        };
        if !facts.is_open {
            facts.set_withheld(pod, placement.contradicted);
        }
        if !facts.opens_pool {
            facts.blocker = preserving_image.or_else(|| verdicts.decisive());
            if facts.blocker.is_none() && (is_steered || lacks_common_platform) {
                facts.blocker = verdicts.narrowing_image();
            }
        }
        facts
    }

    /// Sets the closed pool on which all images run. `contradicted` is the pool that the Pod's own node labels close.
    fn set_withheld(&mut self, pod: &Pod<'_>, contradicted: Option<&'a Pool>) {
        if let Some(pool) = contradicted {
            self.withheld = Some(Restriction::BySelector(pool));
        } else if let Some(pool) = self.verdicts.held_back() {
            self.withheld = Some(Restriction::ByShare(pool));
            self.is_held_back_tolerated = is_tolerated(pod, pool);
        }
    }

    /// Returns the reason of the first line whose condition holds.
    pub(super) fn reason(&self) -> Reason {
        if self.opens_pool {
            Reason::Tolerated
        } else if self.adds_steering {
            Reason::Placed
        } else if self.retracts {
            Reason::Retracted
        } else if let Some(unknown) = self.preserving_image {
            unknown.cause.into()
        } else if self.is_only_steered {
            Reason::Placed
        } else if self.is_open || self.is_held_back_tolerated || self.needs_nothing() {
            Reason::AlreadyTolerated
        } else if self.lacks_common_platform {
            Reason::NoCommonPlatform
        } else if let Some(withheld) = self.withheld {
            match withheld {
                Restriction::ByShare(_) => Reason::NotInShare,
                Restriction::BySelector(_) => Reason::OwnSelector,
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

    /// Returns the decisive image; `None` if no image decides.
    pub(super) fn image(&self) -> Option<&'a str> {
        match self.reason() {
            Reason::NotInShare | Reason::OwnSelector => None,
            _ => Some(self.blocker?.image),
        }
    }

    /// Returns the text of the Pod's annotation with the reason, empty to remove the annotation; `None` to leave it as it
    /// is.
    pub(super) fn explanation(&self, policy: &Policy, blockers: &[Blocker<'_>]) -> Option<String> {
        let is_explained = match (self.withheld, self.blocker) {
            _ if self.is_open => false,
            (Some(_), _) => self.reason() != Reason::AlreadyTolerated,
            (None, blocker) => blocker.is_some(),
        };
        if !is_explained {
            return Some(String::new());
        }
        // An annotation of an earlier pass stays true while the Pod is ineligible.
        if !policy.explain {
            return None;
        }
        let text = match self.withheld {
            Some(Restriction::ByShare(pool)) => explanation::by_share(pool),
            Some(Restriction::BySelector(pool)) => explanation::by_selector(pool),
            None => explanation::by_image(self.lacks_common_platform, self.blocker?, blockers),
        };
        Some(text)
    }
}
