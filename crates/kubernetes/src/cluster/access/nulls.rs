//! Nulls, which Go's JSON decoder skips.

use serde_json::Value;

/// Removes members that are null, at any depth: Go treats them as absent.
pub(in crate::cluster) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        Value::Object(mut members) => {
            members.retain(|_, value| !value.is_null());
            for (_, value) in &mut members {
                *value = without_nulls(value.take());
            }
            Value::Object(members)
        }
        other => other,
    }
}
