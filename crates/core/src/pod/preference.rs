//! What a Pod says itself about the architecture that it prefers.

use super::mode::quoted;
use super::{PREFER_KEY, Pod, text};
use crate::image::PlatformSet;

/// `tolerarch.io/prefer` of a Pod, its label or else its annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPreference<'p> {
    /// It is not there: the configuration decides.
    Unset,
    None,
    /// All platforms of this architecture.
    Architecture(PlatformSet),
    /// A value that means nothing, so the configuration decides.
    Unknown(&'p str),
}

impl PodPreference<'_> {
    /// What is to be said about a value that means nothing: short and plain, as with modes.
    pub fn warning(self) -> Option<String> {
        let Self::Unknown(value) = self else { return None };
        Some(format!(
            "{PREFER_KEY}: {} is neither an architecture nor none; tolerarch ignored it",
            quoted(value)
        ))
    }
}

impl Pod<'_> {
    pub fn preference(&self) -> PodPreference<'_> {
        let label = self.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let label = label.and_then(|labels| labels.own.prefer.as_ref());
        let value = label.or_else(|| self.annotations().and_then(|annotations| annotations.prefer.as_ref()));
        let Some(value) = value else { return PodPreference::Unset };
        let value = text(Some(value));
        match PlatformSet::of_architecture(value) {
            _ if value == "none" => PodPreference::None,
            unknown if unknown.is_empty() => PodPreference::Unknown(value),
            platforms => PodPreference::Architecture(platforms),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_beats_an_annotation_and_garbage_counts_for_nothing() {
        let of = |labels: &[&str], annotation: Option<&str>| {
            let label = labels.first().map(|value| json!({"tolerarch.io/prefer": value}));
            let annotation = annotation.map(|value| json!({"tolerarch.io/prefer": value}));
            let pod = json!({"metadata": {"labels": label, "annotations": annotation}});
            let pod = Pod::of_value(&pod).unwrap();
            (format!("{:?}", pod.preference()), pod.preference().warning())
        };
        let arm64 = PodPreference::Architecture("linux/arm64".parse().unwrap());
        assert_eq!(of(&[], None), ("Unset".into(), None));
        assert_eq!(of(&["arm64"], Some("none")), (format!("{arm64:?}"), None));
        assert_eq!(of(&[], Some("none")), ("None".into(), None));
        let (seen, warning) = of(&[], Some("arm46"));
        assert_eq!(seen, "Unknown(\"arm46\")");
        let expected =
            "tolerarch.io/prefer: \"arm46\" is neither an architecture nor none; tolerarch ignored it";
        assert_eq!(warning.as_deref(), Some(expected));
        let (_, warning) = of(&[], Some(&"\u{10ffff}".repeat(99)));
        assert!(warning.is_some_and(|text| text.len() <= 120 && text.is_ascii()));
    }
}
