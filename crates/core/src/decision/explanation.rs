//! The annotation that says why a Pod stays ineligible, for people who cannot read audit logs.

use crate::policy::{Blocker, Cause, Pool};
use crate::reason::Reason;
use tolerarch_text::escape::{last_chars, sanitized};

/// Maximum length of the annotation, in characters.
const LENGTH: usize = 256;

/// Explains that the pool is not open to the Pod's workload yet.
pub(super) fn by_share(pool: &Pool) -> String {
    let Pool { name, share, .. } = pool;
    let reason = Reason::NotInShare;
    format!("{reason}: the pool {name} is open to {share} % of the workloads")
}

/// Explains that the Pod itself names labels of the pool's nodes.
pub(super) fn by_selector(pool: &Pool) -> String {
    let Pool { name, select, .. } = pool;
    let reason = Reason::OwnSelector;
    let keys: Vec<&str> = select.keys().map(String::as_str).collect();
    let keys = keys.join(", ");
    let text = format!(
        "{reason}: the Pod itself says which nodes it wants, and the pool {name} is selected by {keys}"
    );
    text.chars().take(LENGTH).collect()
}

/// Explains by the decisive image: `platform-missing: app lacks linux/arm64 (and 2 more images)`. A long image is cut at
/// its beginning, as its end says more. The text does not depend on this pass's edits, so the next pass writes it again.
pub(super) fn by_image(
    lacks_common_platform: bool,
    decisive: Blocker<'_>,
    all: &[Blocker<'_>],
) -> String {
    // `all` names every platform that the image lacks.
    let complete = all.iter().find(|blocker| blocker.image == decisive.image);
    let Blocker { image, cause } = *complete.unwrap_or(&decisive);
    let reason = if lacks_common_platform {
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
    // The names of all platforms together take some 150 characters, which leaves some for the image.
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
    fn annotation_is_short_and_safe_for_any_image_name() {
        let long = "x".repeat(300_000);
        let wide = "é\u{1b}\u{202e}\u{200b}".repeat(200);
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
                    assert!(text.contains(": "), "{text}");
                    assert!(image.len() < 9 || text.contains('…'), "{text}");
                }
            }
        }
        let cause = Cause::Lacks(crate::testing::platforms(&["linux/arm64"]));
        let blocker = Blocker {
            image: "nginx",
            cause,
        };
        let text_with = |others: usize| by_image(false, blocker, &vec![blocker; 1 + others]);
        assert_eq!(text_with(0), "platform-missing: nginx lacks linux/arm64");
        assert_eq!(
            text_with(2),
            "platform-missing: nginx lacks linux/arm64 (and 2 more images)"
        );
    }
}
