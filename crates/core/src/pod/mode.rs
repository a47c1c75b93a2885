//! A Pod's own setting of whether decisions on it are carried out.

use super::keys::MODE_KEY;

/// Characters of a value in a warning. With this many a warning has at most the 120 characters that the API server
/// advises (k8s.io/api admission/v1); the API server cuts warnings of more than 256.
const SHOWN: usize = 24;

/// `tolerarch.io/mode` of a Pod, of its label and its annotation together; the more careful, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodMode<'p> {
    /// Neither label nor annotation: the configuration decides.
    Unset,
    /// Decisions are carried out, whatever the configuration says.
    Enforce,
    /// Decisions are counted and logged only.
    Observe,
    /// An invalid value, which includes the empty one. The value was meant to do something, so the Pod stays unchanged.
    Unknown(&'p str),
    /// The Pod stays unchanged.
    Off,
}

impl<'p> PodMode<'p> {
    /// Returns the most careful of several values.
    pub(super) fn of(values: impl IntoIterator<Item = &'p str>) -> Self {
        let modes = values.into_iter().map(|value| match value {
            "off" => Self::Off,
            "observe" => Self::Observe,
            "enforce" => Self::Enforce,
            _ => Self::Unknown(value),
        });
        modes.max().unwrap_or(Self::Unset)
    }

    pub fn warning(self) -> Option<String> {
        let Self::Unknown(value) = self else {
            return None;
        };
        let effect = "is none of off, observe, enforce; tolerarch left the Pod unchanged";
        Some(warning(MODE_KEY, value, effect))
    }
}

/// Returns a warning about an invalid value. The value is untrusted input, and a warning is a header: it has to be
/// short and free of control characters (k8s.io/apiserver `warning.AddWarning`).
pub(super) fn warning(key: &str, value: &str, effect: &str) -> String {
    let mut shown: String = value
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_default)
        .collect();
    if shown.len() > SHOWN || value.chars().nth(SHOWN).is_some() {
        shown.truncate(SHOWN - 3);
        shown.push_str("...");
    }
    format!("{key}: \"{shown}\" {effect}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_careful_value_counts() {
        for (values, expected) in [
            (&[][..], PodMode::Unset),
            (&["enforce"], PodMode::Enforce),
            (&["observe", "enforce"], PodMode::Observe),
            (&["enforce", "of"], PodMode::Unknown("of")),
            (&[""], PodMode::Unknown("")),
            (&["OFF", "off"], PodMode::Off),
            (&["off", "enforce"], PodMode::Off),
        ] {
            assert_eq!(PodMode::of(values.iter().copied()), expected, "{values:?}");
        }
    }

    #[test]
    fn a_warning_is_short_and_plain_whatever_the_value_is() {
        let told = |value: &str| PodMode::Unknown(value).warning().unwrap();
        let expected = "tolerarch.io/mode: \"of\" is none of off, observe, enforce; tolerarch left the Pod unchanged";
        assert_eq!(told("of"), expected);
        assert!(told("a\"\n\u{1b}[31m").contains(r#""a\"\n\u{1b}[31m""#));
        for long in [
            "x".repeat(300_000),
            "\u{10ffff}".repeat(99),
            "\0".repeat(24),
            "é".repeat(24),
        ] {
            let text = told(&long);
            assert!(
                text.len() <= 120 && text.bytes().all(|b| (b' '..=b'~').contains(&b)),
                "{text}"
            );
            assert!(text.contains("...\""), "{text}");
        }
        assert_eq!(PodMode::Off.warning(), None);
    }
}
