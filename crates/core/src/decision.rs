//! The decision on a Pod: its reason, and the edits that carry it out. Pure.

mod explanation;
mod facts;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::borrow::Cow;

use crate::placement::{self, Edits, Ownership};
use crate::pod::{Pod, REASON_KEY};
use crate::policy::{Blocker, Cause, ImageSupport, Mode, Policy, Pool, Rank};
use crate::reason::Reason;
use facts::Facts;
use tolerarch_text::escape::shortened;
use tolerarch_text::list::List;

/// Format of the blockers in a log line: `redis:7 (lacks linux/arm64), app:1 (not-found), and 3 more`. Most Pods have fewer
/// than the limit.
const BLOCKERS: List = List {
    separator: ", ",
    before_rest: ", ",
    after_rest: "",
    items: 5,
    bytes: usize::MAX,
};

#[derive(Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    pub reason: Reason,
    /// The decisive image, as the Pod names it; `None` if no image decided.
    pub image: Option<&'a str>,
    /// All blockers, each once; empty if every image runs on all platforms of some pool.
    pub blockers: Vec<Blocker<'a>>,
    /// The pools that managed tolerations open to the Pod after this pass. In the mode `observe`: the pools that they would
    /// open.
    pub opened: Vec<&'a Pool>,
    pub edits: Edits<'a>,
    /// Warnings for the creator of the Pod: short, and plain ASCII.
    pub warnings: Vec<String>,
    /// Reasons why the Pod's pull secrets gave no credential for the decisive image, if its registry refused it.
    pub unused_secrets: Vec<String>,
}

impl<'a> Decision<'a> {
    pub fn unchanged(reason: Reason) -> Self {
        Self {
            reason,
            image: None,
            blockers: Vec::new(),
            opened: Vec::new(),
            edits: Edits::default(),
            warnings: Vec::new(),
            unused_secrets: Vec::new(),
        }
    }

    /// Returns the outcome: `tolerated`, `placed`, `retracted` or `unchanged`.
    pub fn outcome(&self) -> &'static str {
        match self.reason {
            Reason::Tolerated => "tolerated",
            Reason::Placed if self.edits.steers => "placed",
            Reason::Retracted => "retracted",
            _ => "unchanged",
        }
    }

    /// Returns the first blockers for a log line; `None` without blockers.
    pub fn blocker_list(&self) -> Option<String> {
        if self.blockers.is_empty() {
            return None;
        }
        let list = BLOCKERS.write(&self.blockers, |blocker| {
            format!("{} ({})", shortened(blocker.image), blocker.cause)
        });
        Some(list)
    }

    pub fn pools(&self) -> Cow<'_, str> {
        match &*self.opened {
            [pool] => Cow::Borrowed(&pool.name),
            pools => {
                let mut names = Vec::with_capacity(pools.len());
                for pool in pools {
                    names.push(pool.name.as_str());
                }
                Cow::Owned(names.join(","))
            }
        }
    }

    /// Decides without the images if they cannot matter; `None` if they can.
    pub fn without_images(policy: &Policy, pod: &Pod<'_>) -> Option<Self> {
        if let Some(reason) = pod.skipped() {
            let mut decision = Self::unchanged(reason);
            if reason == Reason::OptedOut {
                decision.warnings.extend(pod.mode().warning());
            }
            return Some(decision);
        }
        let reason = if pod.is_of_daemon_set() && !policy.daemon_sets {
            Reason::DaemonSet
        } else if !pod.has_containers() {
            Reason::Malformed
        } else if pod.annotation_bytes() > placement::ANNOTATION_BYTES {
            // The API server checks the size of annotations after webhooks, so it refuses the Pod anyway.
            Reason::NoRoom
        } else if !pod.has_annotation(REASON_KEY) && placement::is_needless(pod, policy) {
            Reason::AlreadyTolerated
        } else {
            return None;
        };
        Some(Self::unchanged(reason))
    }

    /// Decides by `images`, one for each usage of an image in the Pod. Some may be missing if one image closes every pool.
    pub fn of(policy: &'a Policy, pod: &Pod<'_>, rank: Rank, images: &[ImageSupport<'a>]) -> Self {
        let ownership = Ownership::of(pod, &policy.pools);
        Self::with_ownership(&ownership, policy, pod, rank, images)
    }

    /// Decides like [`Decision::of`]; `ownership` names the managed additions of the Pod.
    pub fn with_ownership(
        ownership: &Ownership<'_>,
        policy: &'a Policy,
        pod: &Pod<'_>,
        rank: Rank,
        images: &[ImageSupport<'a>],
    ) -> Self {
        let verdicts = policy.verdicts(rank, images);
        let placement = placement::place(pod, ownership, verdicts);
        if !placement.edits.fit(pod) {
            if placement.edits.changes_existing() && !images.is_empty() {
                return Self::retract(ownership, policy, pod, rank);
            }
            return Self::unchanged(Reason::NoRoom);
        }
        let facts = Facts::of(pod, ownership, verdicts, &placement);
        let mut decision = Self::unchanged(facts.reason());
        decision.image = facts.image();
        decision.blockers = verdicts.blockers();
        decision.warnings.extend(pod.preference().warning());
        if policy.mode_for(pod) == Mode::Observe {
            decision.opened = placement.opened;
            if !placement.edits.is_empty() {
                decision.reason = Reason::Observed;
            }
            return decision;
        }
        let explanation = facts.explanation(policy, &decision.blockers);
        decision.opened = placement.opened;
        decision.edits = placement.edits;
        if let Some(text) = explanation
            && !decision.edits.explain(pod, text)
        {
            return Self::unchanged(Reason::NoRoom);
        }
        decision
    }

    /// Removes additions that no longer hold, if there is no room for their replacements.
    fn retract(ownership: &Ownership<'_>, policy: &'a Policy, pod: &Pod<'_>, rank: Rank) -> Self {
        let decision = Self::with_ownership(ownership, policy, pod, rank, &[]);
        match decision.reason {
            Reason::Retracted | Reason::Observed => decision,
            _ => Self::unchanged(Reason::NoRoom),
        }
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Lacks(_) => Self::PlatformMissing,
            Cause::Failed(_) => Self::FailedThere,
            Cause::Unknown(error) => Self::Unknown(error),
        }
    }
}

#[cfg(test)]
mod tests;
