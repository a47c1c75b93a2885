//! What tests of several modules build alike.

use std::fmt::Debug;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::image::PlatformSet;
use crate::metrics::Metrics;
use crate::pod::{Text, Toleration};
use crate::registry::RegistryMetrics;

/// The set of these platforms of nodes.
pub(crate) fn platforms(names: &[&str]) -> PlatformSet {
    names.iter().fold(PlatformSet::EMPTY, |set, name| set.union(name.parse().unwrap()))
}

/// A toleration of a pool.
pub(crate) fn toleration(value: &Value) -> Toleration<'static> {
    let text = |name: &str| Text::from(value[name].as_str().unwrap_or_default().to_owned());
    Toleration {
        key: text("key"),
        operator: text("operator"),
        value: text("value"),
        effect: text("effect"),
        toleration_seconds: value["tolerationSeconds"].as_i64(),
    }
}

/// Counts what no test looks at.
pub(crate) fn registry_metrics() -> RegistryMetrics {
    RegistryMetrics::register(&Metrics::new([]).unwrap()).unwrap()
}

/// Cases of one kind with what the node's own libraries make of them, as `e2e/upstream` wrote them. `UPSTREAM_CASES` names
/// another directory with more of them.
pub(crate) fn upstream<C: DeserializeOwned>(kind: &str) -> Vec<C> {
    let committed = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("e2e/upstream/cases");
    #[expect(clippy::disallowed_methods, reason = "only in tests")]
    let directory = std::env::var_os("UPSTREAM_CASES").map_or_else(committed, PathBuf::from);
    let file = directory.join(kind).with_extension("json");
    let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let cases: Vec<C> = serde_json::from_slice(&text).unwrap();
    assert!(cases.len() > 100, "{}", file.display());
    cases
}

/// Fails with the cases of which upstream (the second) makes something else than tolerarch (the first).
pub(crate) fn assert_agreement<A: PartialEq + Debug>(answers: impl IntoIterator<Item = (String, A, A)>) {
    let differ = |(case, ours, theirs): (String, A, A)| {
        (ours != theirs).then(|| format!("{case}\n    ours:   {ours:?}\n    theirs: {theirs:?}\n"))
    };
    let differences: Vec<String> = answers.into_iter().filter_map(differ).collect();
    let shown: String = differences.iter().take(20).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} cases differ:\n{shown}", differences.len());
}
