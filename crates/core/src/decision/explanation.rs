//! The annotation that says why a Pod stays closed, for people who cannot read audit logs.

use crate::policy::{Blocker, Cause, Pool};
use crate::reason::Reason;
use tolerarch_text::escape::{last_chars, sanitized};

/// Maximum length of the annotation, in characters.
const LENGTH: usize = 256;

/// Explains by a pool that is not open to the Pod's workload yet.
pub(super) fn by_share(Pool { name, share, .. }: &Pool) -> String {
    format!(
        "{}: the pool {name} is open to {share} % of the workloads",
        Reason::NotInShare
    )
}

/// Explains by the labels of a pool's nodes, which the Pod itself names.
pub(super) fn by_selector(Pool { name, select, .. }: &Pool) -> String {
    let keys: Vec<&str> = select.keys().map(String::as_str).collect();
    let text = format!(
        "{}: the Pod itself says which nodes it wants, and the pool {name} is selected by {}",
        Reason::OwnSelector,
        keys.join(", ")
    );
    text.chars().take(LENGTH).collect()
}

/// Explains by the image that decides: `platform-missing: app lacks linux/arm64 (and 2 more images)`. A long image is
/// cut at its beginning, as its end says more. The text is independent of this pass's edits, so that the next pass agrees.
pub(super) fn by_image(is_nowhere: bool, decisive: Blocker<'_>, all: &[Blocker<'_>]) -> String {
    let whole = all.iter().find(|blocker| blocker.image == decisive.image);
    let Blocker { image, cause } = *whole.unwrap_or(&decisive);
    let reason = if is_nowhere {
        Reason::NoCommonPlatform
    } else {
        cause.into()
    };
    let before = format!("{reason}: ");
    let mut after = match cause {
        Cause::Unknown(_) => String::new(),
        Cause::Lacks(_) | Cause::Failed(_) => format!(" {cause}"),
    };
    match all.len() {
        0 | 1 => {}
        2 => after += " (and 1 more image)",
        count => after += &format!(" (and {} more images)", count - 1),
    }
    // All platforms together have some 150 characters, so that some are left for the image.
    let room = LENGTH.saturating_sub(before.len() + after.len());
    if image.chars().count() <= room {
        return [before, sanitized(image), after].concat();
    }
    let end = last_chars(image, room.saturating_sub(1));
    [&before, "…", &sanitized(end), &after].concat()
}

#[cfg(test)]
mod tests {
    use tolerarch_text::escape::is_unsafe;

    use super::*;
    use crate::image::{LookupError, PlatformSet};

    #[test]
    fn the_annotation_is_short_whatever_the_image_is_called() {
        let (long, wide) = ("x".repeat(300_000), "é\u{1b}\u{202e}\u{200b}".repeat(200));
        for image in ["", "nginx", &long, &wide] {
            for cause in [
                Cause::Lacks(PlatformSet::ALL),
                Cause::Unknown(LookupError::NotAllowed),
            ] {
                let blocker = Blocker { image, cause };
                for others in [0, 1, 4095] {
                    let text = by_image(true, blocker, &vec![blocker; 1 + others]);
                    assert!(text.chars().count() <= LENGTH, "{text}");
                    assert!(!text.chars().any(is_unsafe), "{text}");
                    assert!(
                        text.contains(": ") && (image.len() < 9 || text.contains('…')),
                        "{text}"
                    );
                }
            }
        }
        let cause = Cause::Lacks(crate::testing::platforms(&["linux/arm64"]));
        let blocker = Blocker {
            image: "nginx",
            cause,
        };
        let told = |others: usize| by_image(false, blocker, &vec![blocker; 1 + others]);
        assert_eq!(told(0), "platform-missing: nginx lacks linux/arm64");
        assert_eq!(
            told(2),
            "platform-missing: nginx lacks linux/arm64 (and 2 more images)"
        );
    }
}
