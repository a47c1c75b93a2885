//! Placeholders: names that stand for an image until another webhook writes the real one into the Pod.

use super::super::session::{Decided, FailOn};

/// What is said in place of a registry's answer: nobody has pushed an image of that name, and no password would help.
pub(super) fn meaning(image: &str) -> Option<&'static str> {
    match image {
        // https://istio.io/latest/docs/reference/config/analysis/ist0146/
        "auto" => {
            Some("a placeholder that another webhook replaces (Istio's injector) when the Pod is created")
        }
        _ => None,
    }
}

/// The decision, with what a placeholder means where that is the image that is unknown.
pub(super) fn explained(decided: Decided) -> Decided {
    let is_unknown = FailOn::of(decided.reason).contains(&FailOn::Unknown);
    match decided.image.as_deref().filter(|_| is_unknown).and_then(meaning) {
        Some(meaning) => Decided { cause: Some(meaning.to_owned()), lacks_pull_secrets: false, ..decided },
        None => decided,
    }
}
