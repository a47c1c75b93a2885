//! A Pod's own setting of the architecture that the Pod prefers.

use super::keys::PREFER_KEY;
use super::mode::warning;
use crate::image::PlatformSet;

/// `tolerarch.io/prefer` of a Pod: the label, or else the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPreference<'p> {
    /// Neither label nor annotation: the configuration decides.
    Unset,
    None,
    /// An architecture, as the set of all its platforms.
    Architecture(PlatformSet),
    /// An invalid value, so the configuration decides.
    Unknown(&'p str),
}

impl<'p> PodPreference<'p> {
    pub(super) fn of(value: Option<&'p str>) -> Self {
        let Some(value) = value else {
            return Self::Unset;
        };
        if value == "none" {
            return Self::None;
        }
        let platforms = PlatformSet::of_architecture(value);
        if platforms.is_empty() {
            return Self::Unknown(value);
        }
        Self::Architecture(platforms)
    }

    pub fn warning(self) -> Option<String> {
        let Self::Unknown(value) = self else {
            return None;
        };
        let effect = "is neither an architecture nor none; tolerarch ignored it";
        Some(warning(PREFER_KEY, value, effect))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::Pod;

    #[test]
    fn label_overrides_annotation_and_invalid_value_is_ignored() {
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
