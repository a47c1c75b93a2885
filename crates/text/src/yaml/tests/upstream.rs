//! What sigs.k8s.io/yaml, which `kubectl` and kubelet read with, makes of the same documents.

use ::conformance::assert_agreement;
use serde::Deserialize;
use serde_json::Value;

use crate::yaml::{self, Dialect};

#[derive(Deserialize)]
struct Text {
    text: String,
    json: Option<String>,
}

#[test]
fn documents_are_read_as_upstream_reads_them() {
    let cases = ::conformance::cases("yaml").into_iter();
    let answers = cases.filter_map(|Text { text, json }| {
        // Upstream keeps the spaces of a last line without an end, if they are more than the indentation of a block.
        let last_line = text.rsplit(['\n', '\r']).next()?;
        if !last_line.is_empty() && last_line.trim_matches(' ').is_empty() {
            return None;
        }
        let ours = match yaml::read_first(&text, Dialect::Kubernetes) {
            Err(fault) if json.is_some() && fault.is_unsupported() => return None,
            Ok(node) => Some(node.map_or(Value::Null, |node| node.value())),
            Err(_) => None,
        };
        let theirs = json.map(|json| serde_json::from_str(&json).unwrap());
        Some((format!("{text:?}"), ours, theirs))
    });
    assert_agreement(answers);
}
