//! The JSON patch that makes edits. It applies by construction: each operation follows from what the decoded Pod showed.
//!
//! That matters more than it seems: a patch that does not apply fails the creation of the Pod, and
//! `failurePolicy: Ignore` does not help (k8s.io/apiserver `admission/plugin/webhook/mutating/dispatcher.go`). Hence no
//! `test` operation, parents are created, and an index is used only for what stood there.

use std::fmt::Arguments;

use serde::ser::{Error, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::placement::{AnnotationEdit, Edits, SpecEdits};
use crate::pod::Pod;

/// Bytes of a usual patch.
const PATCH: usize = 512;

/// An operation of RFC 6902.
#[derive(Serialize)]
struct Operation<'a, V> {
    op: &'static str,
    path: Arguments<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<V>,
}

fn add<S: SerializeSeq>(patch: &mut S, path: Arguments<'_>, value: impl Serialize) -> Result<(), S::Error> {
    patch.serialize_element(&Operation { op: "add", path, value: Some(value) })
}

fn remove<S: SerializeSeq>(patch: &mut S, path: Arguments<'_>) -> Result<(), S::Error> {
    patch.serialize_element(&Operation::<()> { op: "remove", path, value: None })
}

/// Annotations where there are none, and so none to remove.
struct Annotations<'a>(&'a [AnnotationEdit]);

impl Serialize for Annotations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|edit| (edit.key, &edit.value)))
    }
}

#[derive(Serialize)]
struct Metadata<'a> {
    annotations: Annotations<'a>,
}

/// As JSON, for `pod`, which stands at `root` in the object, a JSON pointer. Empty where there is nothing to edit.
pub fn build(root: &str, pod: &Pod<'_>, edits: &Edits<'_>) -> String {
    if edits.is_empty() {
        return String::new();
    }
    let mut json = Vec::with_capacity(PATCH);
    let patch = serde_json::Serializer::new(&mut json).serialize_seq(None).and_then(|mut patch| {
        write(&mut patch, root, pod, edits)?;
        patch.end()
    });
    // No patch is better than a part of one; but writing to memory does not fail.
    patch.ok().and_then(|()| String::from_utf8(json).ok()).unwrap_or_default()
}

fn write<S: SerializeSeq>(
    patch: &mut S,
    root: &str,
    pod: &Pod<'_>,
    edits: &Edits<'_>,
) -> Result<(), S::Error> {
    for place in edits.remove.iter().rev() {
        remove(patch, format_args!("{root}/spec/tolerations/{place}"))?;
    }
    // Absent, null and empty alike: adding a member that exists replaces it.
    if pod.tolerations().is_empty() && !edits.add.is_empty() {
        add(patch, format_args!("{root}/spec/tolerations"), &edits.add)?;
    } else {
        for toleration in &edits.add {
            add(patch, format_args!("{root}/spec/tolerations/-"), toleration)?;
        }
    }
    if let Some(SpecEdits { tolerations, node_selector, affinity, .. }) = edits.spec.as_deref() {
        let members = [("tolerations", tolerations), ("nodeSelector", node_selector), ("affinity", affinity)];
        for (name, json) in members.into_iter().filter_map(|(name, json)| Some((name, json.as_ref()?))) {
            let path = format_args!("{root}/spec/{name}");
            // Only a member that exists goes.
            if json.is_empty() {
                remove(patch, path)?;
            } else {
                add(patch, path, serde_json::from_str::<&RawValue>(json).map_err(S::Error::custom)?)?;
            }
        }
    }
    if pod.has_annotations() {
        for AnnotationEdit { key, value } in &edits.annotations {
            let (prefix, name) = key.split_once('/').unwrap_or_default();
            let path = format_args!("{root}/metadata/annotations/{prefix}~1{name}");
            if value.is_empty() {
                remove(patch, path)?;
            } else {
                add(patch, path, value)?;
            }
        }
    } else if !edits.annotations.is_empty() {
        let annotations = Annotations(&edits.annotations);
        match pod.has_metadata() {
            true => add(patch, format_args!("{root}/metadata/annotations"), annotations)?,
            false => add(patch, format_args!("{root}/metadata"), Metadata { annotations })?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
