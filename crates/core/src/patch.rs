//! The JSON patch that carries out edits. A patch applies by construction: each operation follows from the decoded Pod. A
//! patch that does not apply fails the creation of the Pod, and `failurePolicy: Ignore` does not help (k8s.io/apiserver
//! `admission/plugin/webhook/mutating/dispatcher.go`). Hence there is no `test` operation, missing parents are created,
//! and an index is used only for an item that the Pod had.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::placement::Edits;
use crate::pod::Pod;

/// Initial capacity in bytes: enough for most patches.
const PATCH: usize = 512;

/// Appends an operation of RFC 6902, which adds `value` at `path`, or removes the member at `path` if `value` is `None`.
/// `path` consists of constant names and numbers, so it needs no escapes.
fn edit(patch: &mut Vec<u8>, path: Arguments<'_>, value: Option<impl Serialize>) -> io::Result<()> {
    let separator = if patch.is_empty() { "[" } else { "," };
    match value {
        Some(value) => {
            write!(patch, r#"{separator}{{"op":"add","path":"{path}","value":"#)?;
            serde_json::to_writer(&mut *patch, &value)?;
        }
        None => write!(patch, r#"{separator}{{"op":"remove","path":"{path}""#)?,
    }
    patch.push(b'}');
    Ok(())
}

/// Renders edits of `pod` as a JSON patch; empty without edits. `root` is the JSON pointer to the Pod in the object.
pub fn build(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> String {
    if edits.is_empty() {
        return String::new();
    }
    // An empty patch is better than an incomplete one. But writing to memory does not fail.
    let patch = write(root, pod, edits).unwrap_or_default();
    String::from_utf8(patch).unwrap_or_default()
}

fn write(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> io::Result<Vec<u8>> {
    let mut patch = Vec::with_capacity(PATCH);
    for index in edits.remove.iter().rev() {
        let path = format_args!("{root}/spec/tolerations/{index}");
        edit(&mut patch, path, None::<()>)?;
    }
    // The list may be absent, null or empty: adding a member that exists replaces it.
    if pod.tolerations().is_empty() && !edits.add.is_empty() {
        let path = format_args!("{root}/spec/tolerations");
        edit(&mut patch, path, Some(&edits.add))?;
    } else {
        for toleration in &edits.add {
            let path = format_args!("{root}/spec/tolerations/-");
            edit(&mut patch, path, Some(toleration))?;
        }
    }
    for (name, json) in &edits.spec {
        // Placement removes only members that the Pod has.
        let value: Option<&RawValue> = serde_json::from_str(json)?;
        edit(&mut patch, format_args!("{root}/spec/{name}"), value)?;
    }
    edit_annotations(&mut patch, root, pod, &edits.annotations)?;
    patch.push(b']');
    Ok(patch)
}

fn edit_annotations(
    patch: &mut Vec<u8>,
    root: &str,
    pod: &Pod<'_>,
    annotations: &BTreeMap<&'static str, String>,
) -> io::Result<()> {
    if annotations.is_empty() {
        return Ok(());
    }
    // A Pod without annotations has none to remove, so the edits only add.
    if !pod.has_metadata() {
        let metadata = BTreeMap::from([("annotations", annotations)]);
        return edit(patch, format_args!("{root}/metadata"), Some(metadata));
    }
    let parent = format_args!("{root}/metadata/annotations");
    if !pod.has_annotations() {
        return edit(patch, parent, Some(annotations));
    }
    for (key, value) in annotations {
        let (prefix, name) = key.split_once('/').unwrap_or_default();
        let path = format_args!("{parent}/{prefix}~1{name}");
        let value = if value.is_empty() { None } else { Some(value) };
        edit(patch, path, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
