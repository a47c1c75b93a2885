//! The JSON patch that makes edits. A patch applies by construction: each operation follows from the decoded Pod. One
//! that does not apply fails the creation of the Pod, and `failurePolicy: Ignore` does not help (k8s.io/apiserver
//! `admission/plugin/webhook/mutating/dispatcher.go`). Hence no `test` operation, parents are created, and an index is
//! used only for an item that the Pod had.

use std::collections::BTreeMap;
use std::fmt::Arguments;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::placement::Edits;
use crate::pod::Pod;

/// Initial capacity in bytes, enough for most patches.
const PATCH: usize = 512;

/// An operation of RFC 6902.
#[derive(Serialize)]
struct Operation<'a, V> {
    op: &'static str,
    path: Arguments<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<V>,
}

/// Adds `value` at `path`, or removes the member there if `value` is `None`.
fn edit<S: SerializeSeq>(
    patch: &mut S,
    path: Arguments<'_>,
    value: Option<impl Serialize>,
) -> Result<(), S::Error> {
    let op = if value.is_some() { "add" } else { "remove" };
    patch.serialize_element(&Operation { op, path, value })
}

/// Renders edits of `pod`, which is at the JSON pointer `root` in the object, as a JSON patch. Empty without edits.
pub fn build(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> String {
    if edits.is_empty() {
        return String::new();
    }
    // No patch is better than a part of one; writing to memory does not fail, however.
    let json = write(root, pod, edits).unwrap_or_default();
    String::from_utf8(json).unwrap_or_default()
}

fn write(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> serde_json::Result<Vec<u8>> {
    let mut json = Vec::with_capacity(PATCH);
    let mut serializer = serde_json::Serializer::new(&mut json);
    let mut patch = serializer.serialize_seq(None)?;
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
    patch.end()?;
    Ok(json)
}

fn edit_annotations<S: SerializeSeq>(
    patch: &mut S,
    root: &str,
    pod: &Pod<'_>,
    annotations: &BTreeMap<&'static str, String>,
) -> Result<(), S::Error> {
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
