//! Cases with the answers of the libraries that nodes use, as the Go program beside this file wrote them.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's own crate")]

use std::fmt::Debug;
use std::path::PathBuf;

use serde::de::DeserializeOwned;

/// Returns the cases of a kind. `CONFORMANCE_CASES` names another directory with more of them.
pub fn cases<C: DeserializeOwned>(kind: &str) -> Vec<C> {
    let committed = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cases");
    let directory = std::env::var_os("CONFORMANCE_CASES").map_or_else(committed, PathBuf::from);
    let file = directory.join(kind).with_extension("json");
    let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let cases: Vec<C> = serde_json::from_slice(&text).unwrap();
    assert!(cases.len() > 100, "{}", file.display());
    cases
}

/// Fails with the cases whose answer by tolerarch (the first) differs from that of upstream (the second).
pub fn assert_agreement<A: PartialEq + Debug>(answers: impl IntoIterator<Item = (String, A, A)>) {
    let differ = |(case, ours, theirs): (String, A, A)| {
        (ours != theirs).then(|| format!("{case}\n    ours:   {ours:?}\n    theirs: {theirs:?}\n"))
    };
    let differences: Vec<String> = answers.into_iter().filter_map(differ).collect();
    let shown: String = differences.iter().take(20).map(String::as_str).collect();
    assert!(
        differences.is_empty(),
        "{} cases differ:\n{shown}",
        differences.len()
    );
}
