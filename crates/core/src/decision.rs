//! The decision on a Pod: a reason and edits. Pure.

mod explanation;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::placement::{self, Edits, Placement};
use crate::pod::{Pod, REASON_KEY};
use crate::policy::{Blocker, Cause, ImageSupport, Mode, Policy, Pool, Rank};
use crate::reason::{LookupError, Reason};
use tolerarch_text::escape::shortened;

#[derive(Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    pub reason: Reason,
    /// The image that decided, as the Pod names it; `None` if no image did.
    pub image: Option<&'a str>,
    /// All known blockers, each once; empty if every image runs on all platforms of some pool.
    pub blockers: Vec<Blocker<'a>>,
    /// The pools that are open to the Pod by managed tolerations after this pass.
    pub opened: Vec<&'a Pool>,
    pub edits: Edits<'a>,
    /// Warnings for the creator of the Pod: short, and plain ASCII.
    pub warnings: Vec<String>,
    /// Why pull secrets of the Pod give no credential for the image that decides, where its registry refuses it.
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
    pub fn done(&self) -> &'static str {
        match self.reason {
            Reason::Tolerated => "tolerated",
            Reason::Placed if self.edits.steers => "placed",
            Reason::Retracted => "retracted",
            _ => "unchanged",
        }
    }

    /// Returns the first blockers for a log line; `None` without blockers.
    pub fn blocker_list(&self) -> Option<impl Display> {
        (!self.blockers.is_empty()).then_some(BlockerList(&self.blockers))
    }

    pub fn pools(&self) -> Cow<'_, str> {
        match &*self.opened {
            [one] => Cow::Borrowed(&one.name),
            several => {
                let names: Vec<&str> = several.iter().map(|pool| pool.name.as_str()).collect();
                names.join(",").into()
            }
        }
    }

    /// Decides without the images if they do not matter: the Pod is skipped, or tolerates every pool.
    pub fn without_images(policy: &Policy, pod: &Pod<'_>) -> Option<Self> {
        let reason = match pod.skipped() {
            Some(reason) => reason,
            None if pod.is_of_daemon_set() && !policy.daemon_sets => Reason::DaemonSet,
            None if !pod.has_containers() => Reason::Malformed,
            // The API server checks annotations after webhooks: it refuses the Pod anyway.
            None if pod.annotation_bytes() > placement::ANNOTATION_BYTES => Reason::NoRoom,
            None if !pod.has_annotation(REASON_KEY) && placement::is_needless(pod, policy) => {
                Reason::AlreadyTolerated
            }
            None => return None,
        };
        let warnings = pod
            .mode()
            .warning()
            .filter(|_| reason == Reason::OptedOut)
            .into_iter()
            .collect();
        Some(Self {
            warnings,
            ..Self::unchanged(reason)
        })
    }

    /// Decides by `images`, one for each image that counts. Some may be missing if one image closes every pool.
    pub fn of(policy: &'a Policy, pod: &Pod<'_>, rank: Rank, images: &[ImageSupport<'a>]) -> Self {
        Self::after(None, policy, pod, rank, images)
    }

    /// Decides on a template after an update: while an image is unknown, the managed additions of `before` stay.
    pub fn after(
        before: Option<&Pod<'_>>,
        policy: &'a Policy,
        pod: &Pod<'_>,
        rank: Rank,
        images: &[ImageSupport<'a>],
    ) -> Self {
        let verdicts = policy.verdicts(rank, images);
        let Placement {
            opened,
            is_steered,
            is_nowhere,
            mut edits,
        } = placement::place(pod, before, verdicts);
        let is_open = !opened.is_empty() || policy.pools.iter().any(|pool| verdicts.is_open(pool));
        let held_back = verdicts.held_back().filter(|_| !is_open);
        let is_tolerated = |pool: &Pool| placement::is_tolerated(pod, pool);
        // A profile may have no pools; then nothing is missing if no image narrows the nodes either.
        let nothing_opens = policy.pools.is_empty() && verdicts.narrowing().is_none();
        let is_kept = edits.remove.is_empty() && edits.spec.is_empty();
        let unknown = before.filter(|_| is_kept).and_then(|_| verdicts.unknown());
        let decisive = unknown.or_else(|| verdicts.decisive());
        let blocker =
            decisive.or_else(|| verdicts.narrowing().filter(|_| is_steered || is_nowhere));
        // The managed additions stay, and only their form changes.
        let is_only_rewritten = is_kept && (is_steered || before.is_some() && !opened.is_empty());
        let mut reason = if !edits.add.is_empty() {
            Reason::Tolerated
        } else if edits.steers {
            Reason::Placed
        } else if !edits.is_empty() && !is_only_rewritten {
            Reason::Retracted
        } else if let Some(unknown) = unknown {
            unknown.cause.into()
        } else if is_steered && opened.is_empty() {
            Reason::Placed
        } else if is_open || held_back.is_some_and(is_tolerated) || nothing_opens {
            Reason::AlreadyTolerated
        } else if is_nowhere {
            Reason::NoCommonPlatform
        } else if held_back.is_some() {
            Reason::NotInShare
        } else {
            blocker
                .or_else(|| verdicts.narrowing())
                .map_or(Reason::Unknown(LookupError::Internal), |blocker| {
                    blocker.cause.into()
                })
        };
        if !edits.fit(pod) {
            // Additions that have become wrong are removed even if there is no room for those that would replace them.
            let back = !is_kept && !images.is_empty();
            let back = back.then(|| Self::after(before, policy, pod, rank, &[]));
            let back =
                back.filter(|back| matches!(back.reason, Reason::Retracted | Reason::Observed));
            return back.unwrap_or_else(|| Self::unchanged(Reason::NoRoom));
        }
        let blockers = verdicts.blockers();
        let image = blocker.map(|blocker| blocker.image);
        let image = image.filter(|_| !matches!(reason, Reason::Tolerated | Reason::NotInShare));
        let is_observed = policy.mode_for(pod) == Mode::Observe;
        let warnings = pod.preference().warning().into_iter().collect();
        if is_observed && !edits.is_empty() {
            (reason, edits) = (Reason::Observed, Edits::default());
        }
        let explanation = match (held_back, blocker) {
            _ if is_observed => None,
            _ if is_open || reason == Reason::AlreadyTolerated && held_back.is_some() => {
                Some(String::new())
            }
            (None, None) => Some(String::new()),
            _ if !policy.explain => None,
            (Some(pool), _) => Some(explanation::by_share(pool)),
            (None, Some(blocker)) => Some(explanation::by_image(is_nowhere, blocker, &blockers)),
        };
        let explained = (pod.has_annotation(REASON_KEY), pod.annotation(REASON_KEY));
        if let Some(explanation) =
            explanation.filter(|text| explained != (!text.is_empty(), text.as_str()))
        {
            let is_all = edits.is_empty();
            edits.annotations.insert(REASON_KEY, explanation);
            if !edits.fit(pod) {
                if is_all {
                    return Self::unchanged(Reason::NoRoom);
                }
                edits.annotations.remove(REASON_KEY);
            }
        }
        Self {
            reason,
            image,
            blockers,
            opened,
            edits,
            warnings,
            unused_secrets: Vec::new(),
        }
    }
}

/// Images in a log line; most Pods have fewer.
const LISTED: usize = 5;

/// Writes `redis:7 (lacks linux/arm64), app:1 (not-found), and 3 more`.
struct BlockerList<'d>(&'d [Blocker<'d>]);

impl Display for BlockerList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, others) = self.0.split_at(self.0.len().min(LISTED));
        for (at, blocker) in first.iter().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            write!(
                f,
                "{before}{} ({})",
                shortened(blocker.image),
                blocker.cause
            )?;
        }
        if others.is_empty() {
            Ok(())
        } else {
            write!(f, ", and {} more", others.len())
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
