//! The JSON patch that makes edits. A patch applies by construction: each operation follows from the decoded Pod. One
//! that does not apply fails the creation of the Pod, and `failurePolicy: Ignore` does not help (k8s.io/apiserver
//! `admission/plugin/webhook/mutating/dispatcher.go`). Hence no `test` operation, parents are created, and an index is
//! used only for an item that the Pod had.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::placement::Edits;
use crate::pod::Pod;

/// Initial capacity in bytes, enough for most patches.
const PATCH: usize = 512;

/// Appends an operation of RFC 6902, which adds `value` at `path`, or removes the member there if `value` is `None`.
/// `path` has names that the program knows and numbers, hence nothing to escape.
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

/// Renders edits of `pod`, which is at the JSON pointer `root` in the object, as a JSON patch. Empty without edits.
pub fn build(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> String {
    if edits.is_empty() {
        return String::new();
    }
    // No patch is better than a part of one; writing to memory does not fail, however.
    let patch = write(root, pod, edits).unwrap_or_default();
    String::from_utf8(patch).unwrap_or_default()
}

fn write(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> io::Result<Vec<u8>> {
    let mut patch = Vec::with_capacity(PATCH);
    for place in edits.remove.iter().rev() {
        edit(
            &mut patch,
            format_args!("{root}/spec/tolerations/{place}"),
            None::<()>,
        )?;
    }
    // Absent, null and empty are treated alike: adding a member that exists replaces it.
    if pod.tolerations().is_empty() && !edits.add.is_empty() {
        edit(
            &mut patch,
            format_args!("{root}/spec/tolerations"),
            Some(&edits.add),
        )?;
    } else {
        for toleration in &edits.add {
            edit(
                &mut patch,
                format_args!("{root}/spec/tolerations/-"),
                Some(toleration),
            )?;
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
    // Of a Pod without annotations none are removed.
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
        let value = (!value.is_empty()).then_some(value);
        edit(patch, format_args!("{parent}/{prefix}~1{name}"), value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
