//! The JSON patch that makes edits. It applies by construction: each operation follows from what the decoded Pod showed.
//!
//! That matters more than it seems: a patch that does not apply fails the creation of the Pod, and
//! `failurePolicy: Ignore` does not help (k8s.io/apiserver `admission/plugin/webhook/mutating/dispatcher.go`). Hence no
//! `test` operation, parents are created, and an index is used only for what stood there.

use crate::placement::{AnnotationEdit, Edits, SpecEdits};
use crate::pod::{Pod, Toleration};
use tolerarch_text::json::push_text;

/// Bytes of a usual patch.
const PATCH: usize = 512;

/// Operations of RFC 6902, as JSON.
struct Patch<'a> {
    json: String,
    /// Where the Pod stands in the object.
    root: &'a str,
}

impl Patch<'_> {
    fn operation(&mut self, op: &str, path: &[&str]) {
        let before = if self.json.is_empty() { "[" } else { "," };
        for part in [before, r#"{"op":""#, op, r#"","path":""#, self.root] {
            self.json.push_str(part);
        }
        for part in path {
            self.json.push_str(part);
        }
        self.json.push('"');
    }

    fn remove(&mut self, path: &[&str]) {
        self.operation("remove", path);
        self.json.push('}');
    }

    /// `value` appends what is to be added.
    fn add(&mut self, path: &[&str], value: impl FnOnce(&mut String)) {
        self.operation("add", path);
        self.json.push_str(r#","value":"#);
        value(&mut self.json);
        self.json.push('}');
    }

    fn end(mut self) -> String {
        self.json.push(']');
        self.json
    }
}

/// As JSON, for `pod`, which stands at `root` in the object, a JSON pointer. Empty where there is nothing to edit.
pub fn build(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> String {
    if edits.is_empty() {
        return String::new();
    }
    let mut patch = Patch { json: String::with_capacity(PATCH), root };
    for place in edits.remove.iter().rev() {
        patch.remove(&["/spec/tolerations/", &place.to_string()]);
    }
    if pod.tolerations().is_empty() {
        // Absent, null and empty alike: adding a member that exists replaces it.
        if !edits.add.is_empty() {
            patch.add(&["/spec/tolerations"], |json| {
                push_list(json, &edits.add, |json, new| push_toleration(json, new));
            });
        }
    } else {
        for toleration in &edits.add {
            patch.add(&["/spec/tolerations/-"], |json| push_toleration(json, toleration));
        }
    }
    if let Some(edits) = &edits.spec {
        replace(&mut patch, edits);
    }
    if pod.has_annotations() {
        for edit in &edits.annotations {
            annotate(&mut patch, edit);
        }
    } else if !edits.annotations.is_empty() {
        let annotations = |json: &mut String| push_annotations(json, &edits.annotations);
        if pod.has_metadata() {
            patch.add(&["/metadata/annotations"], annotations);
        } else {
            patch.add(&["/metadata"], |json| {
                json.push_str(r#"{"annotations":"#);
                annotations(json);
                json.push('}');
            });
        }
    }
    patch.end()
}

/// Adding a member that exists replaces it. Only a member that exists goes.
fn replace(patch: &mut Patch<'_>, SpecEdits { tolerations, node_selector, affinity, .. }: &SpecEdits) {
    let members = [("tolerations", tolerations), ("nodeSelector", node_selector), ("affinity", affinity)];
    for (name, value) in members.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        match &**value {
            "" => patch.remove(&["/spec/", name]),
            value => patch.add(&["/spec/", name], |json| json.push_str(value)),
        }
    }
}

/// Where there are annotations.
fn annotate(patch: &mut Patch<'_>, edit: &AnnotationEdit) {
    let (prefix, name) = edit.key.split_once('/').unwrap_or_default();
    let path = ["/metadata/annotations/", prefix, "~1", name];
    if edit.value.is_empty() {
        patch.remove(&path);
    } else {
        patch.add(&path, |json| push_text(json, &edit.value));
    }
}

/// Where there are none, and so none to remove.
fn push_annotations(json: &mut String, annotations: &[AnnotationEdit]) {
    let mut before = '{';
    for AnnotationEdit { key, value } in annotations {
        json.push(before);
        push_text(json, key);
        json.push(':');
        push_text(json, value);
        before = ',';
    }
    json.push('}');
}

fn push_list<T>(json: &mut String, items: &[T], push: impl Fn(&mut String, &T)) {
    let mut before = '[';
    for item in items {
        json.push(before);
        push(json, item);
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
