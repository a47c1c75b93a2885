//! The annotation that says why a Pod stays closed, for people who cannot read audit logs.

use crate::pod::{Pod, REASON_KEY};
use crate::policy::{Blocker, Cause, Pool};
use crate::reason::Reason;
use tolerarch_text::escape::is_unsafe;

/// Maximal length of the annotation, in characters.
const LENGTH: usize = 256;

#[derive(Clone, Copy)]
pub(super) enum Closed<'a> {
    /// A reason, the image that it is about, and the number of other blockers.
    By(Reason, Blocker<'a>, usize),
    NotInShare(&'a Pool),
}

impl<'a> Closed<'a> {
    /// Explains by the image that decides. The text is independent of this pass's edits, so that the next pass agrees.
    pub(super) fn by(is_nowhere: bool, decisive: Blocker<'a>, all: &[Blocker<'a>]) -> Self {
        let whole = all.iter().find(|blocker| blocker.image == decisive.image).copied().unwrap_or(decisive);
        let reason = if is_nowhere { Reason::NoCommonPlatform } else { whole.cause.into() };
        Self::By(reason, whole, all.len().saturating_sub(1))
    }

    /// Renders `platform-missing: app lacks linux/arm64 (and 2 more images)`, a long image by its end, which says more.
    fn text(self) -> String {
        let (reason, blocker, others) = match self {
            Self::NotInShare(Pool { name, share, .. }) => {
                return format!(
                    "{}: the pool {name} is open to {share} % of the workloads",
                    Reason::NotInShare
                );
            }
            Self::By(reason, blocker, others) => (reason, blocker, others),
        };
        let before = format!("{reason}: ");
        let mut after = match blocker.cause {
            Cause::Unknown(_) => String::new(),
            known => format!(" {known}"),
        };
        match others {
            0 => {}
            1 => after += " (and 1 more image)",
            _ => after += &format!(" (and {others} more images)"),
        }
        // All platforms together have some 150 characters, so that some are left for the image.
        let room = LENGTH.saturating_sub(before.len() + after.len());
        let image = blocker.image;
        let length = image.chars().count();
        let (mark, skipped) = if length > room { ("…", length + 1 - room) } else { ("", 0) };
        let kept = image.chars().skip(skipped).map(|c| if is_unsafe(c) { '\u{fffd}' } else { c });
        [before.as_str(), mark].into_iter().flat_map(str::chars).chain(kept).chain(after.chars()).collect()
    }
}

/// Returns why the Pod stays closed, or an empty text to remove the annotation; `None` if nothing changes.
pub(super) fn edit(pod: &Pod<'_>, closed: Option<Closed<'_>>) -> Option<String> {
    let value = closed.map(Closed::text).unwrap_or_default();
    let same = match &*value {
        "" => !pod.has_annotation(REASON_KEY),
        value => pod.annotation(REASON_KEY) == value,
    };
    (!same).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{LookupError, PlatformSet};

    #[test]
    fn the_annotation_is_short_whatever_the_image_is_called() {
        let (long, wide) = ("x".repeat(300_000), "é\u{1b}\u{202e}\u{200b}".repeat(200));
        for image in ["", "nginx", &long, &wide] {
            for cause in [Cause::Lacks(PlatformSet::ALL), Cause::Unknown(LookupError::NotAllowed)] {
                for others in [0, 1, 4095] {
                    let text = Closed::By(Reason::NoCommonPlatform, Blocker { image, cause }, others).text();
                    assert!(text.chars().count() <= LENGTH, "{text}");
                    assert!(!text.chars().any(is_unsafe), "{text}");
                    assert!(text.contains(": ") && (image.len() < 9 || text.contains('…')), "{text}");
                }
            }
        }
        let lacks = Cause::Lacks(crate::testing::platforms(&["linux/arm64"]));
        let told = |others| {
            Closed::By(Reason::PlatformMissing, Blocker { image: "nginx", cause: lacks }, others).text()
        };
        assert_eq!(told(0), "platform-missing: nginx lacks linux/arm64");
        assert_eq!(told(2), "platform-missing: nginx lacks linux/arm64 (and 2 more images)");
    }
}
