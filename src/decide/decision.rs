//! What becomes of a Pod, in one word and in edits: pure.

use crate::placement::{self, Edits, Placement};
use crate::pod::Pod;
use crate::policy::{Blocker, Cause, ImageSupport, Mode, Policy, Pool};
use crate::reason::Reason;

/// What becomes of one Pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What, in one word.
    pub reason: Reason,
    /// The image that decided, as the Pod names it; `None` where none did.
    pub image: Option<&'a str>,
    /// The pools that are open to the Pod through tolerarch, after this pass.
    pub opened: Vec<&'a Pool>,
    /// What is to be changed, if anything.
    pub edits: Edits<'a>,
}

impl<'a> Decision<'a> {
    /// Leaves the Pod as it is.
    pub fn unchanged(reason: Reason) -> Self {
        Self { reason, image: None, opened: Vec::new(), edits: Edits::default() }
    }

    /// What is done: `tolerated`, `retracted` or `unchanged`.
    pub fn done(&self) -> &'static str {
        match &self.edits {
            edits if edits.is_empty() => "unchanged",
            edits if edits.add.is_empty() => "retracted",
            _ => "tolerated",
        }
    }

    /// The names of the opened pools, comma-separated.
    pub fn pools(&self) -> String {
        let mut names = String::new();
        for pool in &self.opened {
            if !names.is_empty() {
                names.push(',');
            }
            names.push_str(&pool.name);
        }
        names
    }

    /// The decision, where the images do not matter: the Pod is skipped, or it tolerates every pool.
    pub(crate) fn without_images(policy: &Policy, pod: &Pod<'_>) -> Option<Self> {
        let reason = match pod.skipped() {
            Some(reason) => reason,
            None if !pod.has_containers() => Reason::Malformed,
            None if placement::is_needless(pod, &policy.pools) => Reason::AlreadyTolerated,
            None => return None,
        };
        Some(Self::unchanged(reason))
    }

    /// The decision. `images` has one image for each image of the Pod that counts; some may be missing where one of them
    /// closes every pool.
    pub(crate) fn of(policy: &'a Policy, pod: &Pod<'_>, images: &[ImageSupport<'a>]) -> Self {
        let verdicts = policy.verdicts(images);
        let Placement { opened, edits } = placement::place(pod, verdicts);
        let blocker = verdicts.decisive();
        let reason = if !edits.add.is_empty() {
            Reason::Tolerated
        } else if !edits.is_empty() {
            Reason::Retracted
        } else if verdicts.of_pools().any(|verdict| verdict.is_open) {
            Reason::AlreadyTolerated
        } else {
            blocker.map_or(Reason::Internal, Reason::from)
        };
        if !edits.fit(pod) {
            return Self::unchanged(Reason::NoRoom);
        }
        let image = blocker.map(|blocker| blocker.image).filter(|_| reason != Reason::Tolerated);
        if policy.mode == Mode::Observe && !edits.is_empty() {
            return Self { reason: Reason::Observed, image, opened, edits: Edits::default() };
        }
        Self { reason, image, opened, edits }
    }
}

impl From<Blocker<'_>> for Reason {
    fn from(blocker: Blocker<'_>) -> Self {
        match blocker.cause {
            Cause::Lacks(_) => Self::PlatformMissing,
            Cause::Unknown(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
