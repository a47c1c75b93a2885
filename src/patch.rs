//! The JSON patch of a decision. It applies by construction: each operation follows from what the decoded Pod showed.
//!
//! That matters more than it seems: a patch that does not apply fails the creation of the Pod, and
//! `failurePolicy: Ignore` does not help (k8s.io/apiserver `admission/plugin/webhook/mutating/dispatcher.go`). Hence no
//! `test` operation, parents are created, and an index is used only to remove what stood there.

use crate::json::push_text;
use crate::pod::{Field, POOLS_KEY, Pod, Toleration};
use crate::policy::Change;

const POOLS_PATH: &str = "/metadata/annotations/tolerarch.io~1pools";
/// Bytes of a usual patch.
const PATCH: usize = 512;

/// Operations of RFC 6902, as JSON.
struct Patch<'a> {
    json: String,
    /// Where the Pod stands in the object.
    root: &'a str,
}

impl Patch<'_> {
    fn operation(&mut self, op: &str, path: &str) {
        let before = if self.json.is_empty() { "[" } else { "," };
        for part in [before, r#"{"op":""#, op, r#"","path":""#, self.root, path, r#"""#] {
            self.json.push_str(part);
        }
    }

    fn remove(&mut self, path: &str) {
        self.operation("remove", path);
        self.json.push('}');
    }

    /// `value` appends what is to be added.
    fn add(&mut self, path: &str, value: impl FnOnce(&mut String)) {
        self.operation("add", path);
        self.json.push_str(r#","value":"#);
        value(&mut self.json);
        self.json.push('}');
    }

    fn end(mut self) -> String {
        self.json.push_str(if self.json.is_empty() { "[]" } else { "]" });
        self.json
    }
}

/// The patch, as JSON, that makes `change` in `pod`, which stands at `root` in the object: a JSON pointer, empty for a Pod.
pub fn build(root: &str, pod: &Pod<'_>, change: &Change<'_>) -> String {
    debug_assert_eq!(POOLS_PATH.replace("~1", "/").strip_prefix("/metadata/annotations/"), Some(POOLS_KEY));
    let mut patch = Patch { json: String::with_capacity(PATCH), root };
    for place in change.remove.iter().rev() {
        patch.remove(&format!("/spec/tolerations/{place}"));
    }
    if pod.tolerations().is_empty() {
        // Absent, null and empty alike: adding a member that exists replaces it.
        if !change.add.is_empty() {
            patch.add("/spec/tolerations", |json| push_tolerations(json, &change.add));
        }
    } else {
        for toleration in &change.add {
            patch.add("/spec/tolerations/-", |json| push_toleration(json, toleration));
        }
    }
    match change.annotation.as_deref() {
        None => {}
        Some("") => patch.remove(POOLS_PATH),
        Some(pools) => annotate(&mut patch, pod, pools),
    }
    patch.end()
}

fn annotate(patch: &mut Patch<'_>, pod: &Pod<'_>, pools: &str) {
    let annotations = pod.metadata.present().map(|metadata| &metadata.annotations);
    let (path, before, after) = match annotations {
        Some(Field::Present(annotations)) if annotations.count > 0 => (POOLS_PATH, "", ""),
        Some(_) => ("/metadata/annotations", r#"{"tolerarch.io/pools":"#, "}"),
        None => ("/metadata", r#"{"annotations":{"tolerarch.io/pools":"#, "}}"),
    };
    patch.add(path, |json| {
        json.push_str(before);
        push_text(json, pools);
        json.push_str(after);
    });
}

fn push_tolerations(json: &mut String, tolerations: &[&Toleration<'_>]) {
    let mut before = '[';
    for toleration in tolerations {
        json.push(before);
        push_toleration(json, toleration);
        before = ',';
    }
    json.push(']');
}

/// Only what is set.
fn push_toleration(json: &mut String, toleration: &Toleration<'_>) {
    let Toleration { key, operator, value, effect, toleration_seconds } = toleration;
    json.push('{');
    let mut before = "\"";
    for (name, text) in [("key", key), ("operator", operator), ("value", value), ("effect", effect)] {
        if !text.is_empty() {
            for part in [before, name, "\":"] {
                json.push_str(part);
            }
            push_text(json, text.as_str());
            before = ",\"";
        }
    }
    if let Some(seconds) = toleration_seconds {
        for part in [before, "tolerationSeconds\":", &seconds.to_string()] {
            json.push_str(part);
        }
    }
    json.push('}');
}

#[cfg(test)]
mod tests;
