//! Cases with the answers of the libraries that nodes use. The Go program beside this file writes them.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's own crate")]

use std::fmt::Debug;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

/// Returns the cases of a kind. `CONFORMANCE_CASES` names another directory with more cases.
pub fn cases<C: DeserializeOwned>(kind: &str) -> Vec<C> {
    let committed = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases");
    let directory = std::env::var_os("CONFORMANCE_CASES").map_or_else(committed, PathBuf::from);
    let file = directory.join(kind).with_extension("json");
    let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let cases: Vec<C> = serde_json::from_slice(&text).unwrap();
    assert!(cases.len() > 100, "{}", file.display());
    cases
}

/// Panics if tolerarch's answer (the first) differs from upstream's (the second) in any case, and names such cases.
pub fn assert_agreement<A: PartialEq + Debug>(answers: impl IntoIterator<Item = (String, A, A)>) {
    let mut differences = Vec::new();
    for (case, ours, upstream) in answers {
        if ours != upstream {
            differences.push(format!(
                "{case}\n    ours:     {ours:?}\n    upstream: {upstream:?}\n"
            ));
        }
    }
    let count = differences.len();
    differences.truncate(20);
    assert!(
        differences.is_empty(),
        "{count} cases differ:\n{}",
        differences.concat()
    );
}
