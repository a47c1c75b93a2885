//! Lists of a template that its owner has set by server-side apply. An apply sends such a list as a whole, and the API
//! server stores it in place of the one before, so nothing in the list is managed, even if it looks so. Source:
//! `managedFields` of k8s.io/apimachinery meta/v1, and the lists that k8s.io/api core/v1 marks as atomic.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Text;

/// Paths of the lists in `fieldsV1`, below the template's spec.
const TOLERATIONS: [&str; 1] = ["f:tolerations"];
const NODE_SELECTOR: [&str; 1] = ["f:nodeSelector"];
const REQUIRED: [&str; 3] =
    ["f:affinity", "f:nodeAffinity", "f:requiredDuringSchedulingIgnoredDuringExecution"];
const TEMPLATE: [&str; 3] = ["f:spec", "f:template", "f:spec"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Applied {
    #[default]
    Never,
    /// An earlier request applied the list. Since then tolerarch may have added to it, even if it was empty.
    Before,
    /// The request under review applied the list with this content.
    Now,
}

/// Time at which each list that can hold managed items was last applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AppliedLists {
    pub(crate) tolerations: Applied,
    pub(crate) node_selector: Applied,
    /// The terms of the required node affinity.
    pub(crate) required: Applied,
}

#[derive(Deserialize)]
struct Entry<'a> {
    manager: Text<'a>,
    operation: Text<'a>,
    subresource: Text<'a>,
    time: Text<'a>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

impl AppliedLists {
    /// Reads the `managedFields` of an object that has a template, and those before the request that changes it.
    pub(crate) fn of(after: Option<&RawValue>, before: Option<&RawValue>) -> Self {
        let (after, before) = (applies(after), applies(before));
        // An apply that changes something sets the time of its manager's entry; every other entry keeps its time.
        let times: HashMap<_, _> = before.iter().map(|entry| (&entry.manager, &entry.time)).collect();
        let specs = after.iter().filter_map(|entry| {
            let is_new = times.get(&entry.manager) != Some(&&entry.time);
            let applied = if is_new { Applied::Now } else { Applied::Before };
            Some((applied, inner(entry.fields?, &TEMPLATE)?))
        });
        let specs: Vec<_> = specs.collect();
        let of = |path: &[&str]| {
            let applied = specs.iter().filter(|(_, spec)| inner(spec, path).is_some());
            applied.map(|(applied, _)| *applied).max().unwrap_or_default()
        };
        Self { tolerations: of(&TOLERATIONS), node_selector: of(&NODE_SELECTOR), required: of(&REQUIRED) }
    }
}

fn applies(entries: Option<&RawValue>) -> Vec<Entry<'_>> {
    let entries = entries.and_then(|entries| serde_json::from_str::<Vec<Entry<'_>>>(entries.get()).ok());
    let is_apply = |entry: &Entry<'_>| entry.operation == *"Apply" && entry.subresource.is_empty();
    entries.into_iter().flatten().filter(is_apply).collect()
}

fn inner<'a>(fields: &'a RawValue, path: &[&str]) -> Option<&'a RawValue> {
    path.iter().try_fold(fields, |fields, name| {
        let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(fields.get()).ok()?;
        members.get(*name).copied()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, spec: &Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "time": time, "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:template": {"f:spec": spec}}},
        })
    }

    fn of(after: &Value, before: &Value) -> AppliedLists {
        let raw = |value: &Value| serde_json::value::to_raw_value(value).unwrap();
        AppliedLists::of(Some(&raw(after)), Some(&raw(before)))
    }

    #[test]
    fn who_applies_owns_lists_and_the_time_says_whether_it_was_now() {
        let (containers, tolerations) =
            (json!({"f:containers": {"k:{\"name\":\"c0\"}": {".": {}}}}), json!({"f:tolerations": {}}));
        let required = json!({"f:affinity": {"f:nodeAffinity": {"f:requiredDuringSchedulingIgnoredDuringExecution": {}}}});
        let flux = |time: &str, spec: &Value| entry("flux", "Apply", time, spec);
        let before = json!([flux("2026-01-01T00:00:00Z", &tolerations)]);
        let (never, earlier, now) = (Applied::Never, Applied::Before, Applied::Now);
        for (after, expected) in [
            (before.clone(), [earlier, never, never]),
            (json!([]), [never; 3]),
            (json!("none"), [never; 3]),
            (json!([flux("2026-01-01T00:00:01Z", &tolerations)]), [now, never, never]),
            (json!([flux("2026-01-01T00:00:01Z", &containers)]), [never; 3]),
            (json!([flux("2026-01-01T00:00:01Z", &required)]), [never, never, now]),
            (json!([flux("2026-01-01T00:00:01Z", &json!({"f:affinity": {}}))]), [never; 3]),
            (json!([entry("edit", "Update", "2026-01-01T00:00:01Z", &tolerations)]), [never; 3]),
            (
                json!([
                    before[0],
                    entry("argo", "Apply", "2026-01-01T00:00:01Z", &json!({"f:nodeSelector": {}}))
                ]),
                [earlier, now, never],
            ),
        ] {
            let lists = of(&after, &before);
            assert_eq!([lists.tolerations, lists.node_selector, lists.required], expected, "{after}");
        }
        let mut status = flux("2026-01-01T00:00:01Z", &tolerations);
        status["subresource"] = json!("status");
        assert_eq!(of(&json!([status]), &before), AppliedLists::default());
    }

    /// Untrusted: `managedFields` can be nested as deep as the body is long, and have as many entries.
    #[test]
    fn deep_or_many_fields_cost_little() {
        let deep = format!("{}{{}}{}", r#"{"f:spec":"#.repeat(50_000), "}".repeat(50_000));
        let deep = RawValue::from_string(format!(r#"[{{"operation":"Apply","fieldsV1":{deep}}}]"#)).unwrap();
        assert_eq!(AppliedLists::of(Some(&deep), None), AppliedLists::default());
        let many: Vec<Value> = (0..20_000)
            .map(|at| entry(&at.to_string(), "Apply", "t", &json!({"f:tolerations": {}})))
            .collect();
        assert_eq!(of(&json!(many), &json!(many)).tolerations, Applied::Before);
    }
}
