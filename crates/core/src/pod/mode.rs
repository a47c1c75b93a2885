//! A Pod's own mode: whether decisions on the Pod are carried out.

use super::keys::MODE_KEY;

/// Maximum characters of a value in a warning. So a warning has at most the 120 characters that the API server advises
/// (k8s.io/api admission/v1). The API server truncates warnings of more than 256.
const VALUE: usize = 24;

/// `tolerarch.io/mode` of a Pod, from both its label and its annotation. A more careful mode is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodMode<'p> {
    /// Neither label nor annotation: the configuration decides.
    Unset,
    /// Decisions are carried out, whatever the configuration says.
    Enforce,
    /// Decisions are only counted and logged.
    Observe,
    /// An invalid value, such as the empty one. The user wanted some mode, so the Pod stays unchanged to be safe.
    Unknown(&'p str),
    /// The Pod stays unchanged.
    Off,
}

impl<'p> PodMode<'p> {
    /// Returns the most careful mode of several values.
    pub(super) fn of(values: impl IntoIterator<Item = &'p str>) -> Self {
        let mut most_careful = Self::Unset;
        for value in values {
            let mode = match value {
                "off" => Self::Off,
                "observe" => Self::Observe,
                "enforce" => Self::Enforce,
                _ => Self::Unknown(value),
            };
            most_careful = most_careful.max(mode);
        }
        most_careful
    }

    pub fn warning(self) -> Option<String> {
        let Self::Unknown(value) = self else {
            return None;
        };
        let effect = "is none of off, observe, enforce; tolerarch left the Pod unchanged";
        Some(warning(MODE_KEY, value, effect))
    }
}

/// Returns a warning about an invalid value. The value is untrusted input, and a warning becomes an HTTP header, so it must
/// be short and free of control characters (k8s.io/apiserver `warning.AddWarning`).
pub(super) fn warning(key: &str, value: &str, effect: &str) -> String {
    let mut escaped = String::new();
    for c in value.chars().take(VALUE) {
        escaped.extend(c.escape_default());
    }
    if escaped.len() > VALUE || value.chars().nth(VALUE).is_some() {
        escaped.truncate(VALUE - 3);
        escaped.push_str("...");
    }
    format!("{key}: \"{escaped}\" {effect}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_careful_value_counts() {
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
    fn warning_is_short_and_plain_for_any_value() {
        let warning = |value: &str| PodMode::Unknown(value).warning().unwrap();
        let expected = "tolerarch.io/mode: \"of\" is none of off, observe, enforce; tolerarch left the Pod unchanged";
        assert_eq!(warning("of"), expected);
        assert!(warning("a\"\n\u{1b}[31m").contains(r#""a\"\n\u{1b}[31m""#));
        for long in [
            "x".repeat(300_000),
            "\u{10ffff}".repeat(99),
            "\0".repeat(24),
            "é".repeat(24),
        ] {
            let text = warning(&long);
            assert!(text.len() <= 120, "{text}");
            let is_plain = text.bytes().all(|b| (b' '..=b'~').contains(&b));
            assert!(is_plain, "{text}");
            assert!(text.contains("...\""), "{text}");
        }
        assert_eq!(PodMode::Off.warning(), None);
    }
}
