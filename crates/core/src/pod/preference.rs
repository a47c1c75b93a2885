//! A Pod's own setting of the architecture that it prefers.

use super::keys::PREFER_KEY;
use super::mode::warning;
use crate::image::PlatformSet;

/// `tolerarch.io/prefer` of a Pod, its label or else its annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPreference<'p> {
    /// Neither label nor annotation: the configuration decides.
    Unset,
    None,
    /// An architecture, as all its platforms.
    Architecture(PlatformSet),
    /// An invalid value, so the configuration decides.
    Unknown(&'p str),
}

impl<'p> PodPreference<'p> {
    pub(super) fn of(value: Option<&'p str>) -> Self {
        match value.map(|value| (value, PlatformSet::of_architecture(value))) {
            None => Self::Unset,
            Some(("none", _)) => Self::None,
            Some((value, PlatformSet::EMPTY)) => Self::Unknown(value),
            Some((_, platforms)) => Self::Architecture(platforms),
        }
    }

    pub fn warning(self) -> Option<String> {
        let Self::Unknown(value) = self else {
            return None;
        };
        Some(warning(
            PREFER_KEY,
            value,
            "is neither an architecture nor none; tolerarch ignored it",
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::Pod;

    #[test]
    fn a_label_beats_an_annotation_and_garbage_counts_for_nothing() {
        let of = |labels: &[&str], annotation: Option<&str>| {
            let label = labels
                .first()
                .map(|value| json!({"tolerarch.io/prefer": value}));
            let annotation = annotation.map(|value| json!({"tolerarch.io/prefer": value}));
            let pod = json!({"metadata": {"labels": label, "annotations": annotation}});
            let pod = Pod::of_value(&pod).unwrap();
            (
                format!("{:?}", pod.preference()),
                pod.preference().warning(),
            )
        };
        let arm64 = PodPreference::Architecture("linux/arm64".parse().unwrap());
        assert_eq!(of(&[], None), ("Unset".into(), None));
        assert_eq!(of(&["arm64"], Some("none")), (format!("{arm64:?}"), None));
        assert_eq!(of(&[], Some("none")), ("None".into(), None));
        let (seen, warning) = of(&[], Some("arm46"));
        assert_eq!(seen, "Unknown(\"arm46\")");
        let expected = "tolerarch.io/prefer: \"arm46\" is neither an architecture nor none; tolerarch ignored it";
        assert_eq!(warning.as_deref(), Some(expected));
        let (_, warning) = of(&[], Some(&"\u{10ffff}".repeat(99)));
        assert!(warning.is_some_and(|text| text.len() <= 120 && text.is_ascii()));
    }
}
