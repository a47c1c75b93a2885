//! The JSON patch of a decision. It applies by construction: each operation follows from what the decoded Pod showed.
//!
//! That matters more than it seems: a patch that does not apply fails the creation of the Pod, and
//! `failurePolicy: Ignore` does not help (k8s.io/apiserver `admission/plugin/webhook/mutating/dispatcher.go`). Hence no
//! `test` operation, parents are created, and an index is used only to remove what stood there.

use serde::Serialize;

use crate::pod::{Field, POOLS_KEY, Pod, Toleration};
use crate::policy::Change;

/// One operation of RFC 6902.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Operation<'a> {
    Add { path: &'a str, value: Value<'a> },
    Remove { path: String },
}

/// What can be added.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Tolerations(&'a [&'a Toleration<'static>]),
    Toleration(&'a Toleration<'static>),
    Metadata { annotations: Pools<'a> },
    Annotations(Pools<'a>),
    Pools(&'a str),
}

/// Annotations with just the one.
#[derive(Debug, Serialize)]
struct Pools<'a> {
    #[serde(rename = "tolerarch.io/pools")]
    pools: &'a str,
}

const POOLS_PATH: &str = "/metadata/annotations/tolerarch.io~1pools";
/// Bytes of a usual patch.
const PATCH: usize = 512;

/// The patch, as JSON, that makes `change` in `pod`.
///
/// # Errors
/// It cannot be written: a defect.
pub fn build(pod: &Pod<'_>, change: &Change<'_>) -> Result<Vec<u8>, serde_json::Error> {
    debug_assert_eq!(POOLS_PATH.replace("~1", "/").strip_prefix("/metadata/annotations/"), Some(POOLS_KEY));
    let mut operations: Vec<Operation<'_>> = Vec::with_capacity(3);
    for place in change.remove.iter().rev() {
        operations.push(Operation::Remove { path: format!("/spec/tolerations/{place}") });
    }
    if pod.tolerations().is_empty() {
        // Absent, null and empty alike: adding a member that exists replaces it.
        if !change.add.is_empty() {
            operations
                .push(Operation::Add { path: "/spec/tolerations", value: Value::Tolerations(&change.add) });
        }
    } else {
        let append =
            |toleration| Operation::Add { path: "/spec/tolerations/-", value: Value::Toleration(toleration) };
        operations.extend(change.add.iter().copied().map(append));
    }
    match change.annotation.as_deref() {
        None => {}
        Some("") => operations.push(Operation::Remove { path: POOLS_PATH.to_owned() }),
        Some(pools) => operations.push(annotate(pod, pools)),
    }
    let mut patch = Vec::with_capacity(PATCH);
    serde_json::to_writer(&mut patch, &operations)?;
    Ok(patch)
}

fn annotate<'a>(pod: &Pod<'_>, pools: &'a str) -> Operation<'a> {
    let Field::Present(metadata) = &pod.metadata else {
        return Operation::Add { path: "/metadata", value: Value::Metadata { annotations: Pools { pools } } };
    };
    match &metadata.annotations {
        Field::Present(annotations) if annotations.count > 0 => {
            Operation::Add { path: POOLS_PATH, value: Value::Pools(pools) }
        }
        _ => Operation::Add { path: "/metadata/annotations", value: Value::Annotations(Pools { pools }) },
    }
}

#[cfg(test)]
mod tests;
