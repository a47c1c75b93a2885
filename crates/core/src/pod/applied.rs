//! Lists of a template that its owner has set by server-side apply. An apply sends such a list as a whole, and the API
//! server replaces the stored list. So nothing in the list is managed, even if an item looks managed. Source:
//! `managedFields` of k8s.io/apimachinery meta/v1, and the lists that k8s.io/api core/v1 marks as atomic.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Text;
use tolerarch_text::json;

/// The lists that can hold managed items. Each is set if the request under review has applied the list as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AppliedLists {
    pub(crate) tolerations: bool,
    pub(crate) node_selector: bool,
    /// The terms of the required node affinity.
    pub(crate) required: bool,
    /// Set if an earlier request has applied these terms, to which tolerarch may have added since.
    pub(crate) required_before: bool,
}

/// The terms of the required node affinity in the template's spec in `fieldsV1`.
const REQUIRED: &str =
    "/f:affinity/f:nodeAffinity/f:requiredDuringSchedulingIgnoredDuringExecution";

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
    /// Reads the `managedFields` of an object with a template, after and before the request that changes the object. `spec`
    /// is the JSON pointer to the template's spec in `fieldsV1`.
    pub(crate) fn of<'a>(after: &'a RawValue, before: &'a RawValue, spec: &str) -> Self {
        let before = applies(before);
        let mut times: HashMap<&Text<'_>, &Text<'_>> = HashMap::new();
        for entry in &before {
            times.insert(&entry.manager, &entry.time);
        }
        let mut lists = Self::default();
        for entry in applies(after) {
            let Some(fields) = entry.fields else { continue };
            let Some(applied) = member(fields, spec) else {
                continue;
            };
            let is_required = member(applied, REQUIRED).is_some();
            // An apply that changes something sets the time of its manager's entry; every other entry keeps its time.
            if times.get(&entry.manager) == Some(&&entry.time) {
                lists.required_before |= is_required;
            } else {
                lists.required |= is_required;
                lists.tolerations |= member(applied, "/f:tolerations").is_some();
                lists.node_selector |= member(applied, "/f:nodeSelector").is_some();
            }
        }
        lists
    }
}

/// Reads the entries of server-side applies of an object, except for those of subresources.
fn applies(object: &RawValue) -> Vec<Entry<'_>> {
    let Some(entries) = member(object, "/metadata/managedFields") else {
        return Vec::new();
    };
    let mut entries: Vec<Entry<'_>> = serde_json::from_str(entries.get()).unwrap_or_default();
    entries.retain(|entry| entry.operation == *"Apply" && entry.subresource.is_empty());
    entries
}

/// Returns the member at a JSON pointer; `None` if it is absent, or if a value on the way is no object. No other member is
/// stored, as an object of untrusted input may have a million.
pub(crate) fn member<'a>(json: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    let mut value = json;
    for wanted in pointer.split('/').skip(1) {
        let mut deserializer = serde_json::Deserializer::from_str(value.get());
        let mut member = None;
        let read = json::members(&mut deserializer, |name: Text<'a>, value| {
            if name == *wanted {
                member = Some(value);
            }
        });
        read.ok()?;
        value = member?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SPEC: &str = "/f:spec/f:template/f:spec";

    fn entry(manager: &str, operation: &str, time: &str, spec: &Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "time": time, "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:template": {"f:spec": spec}}},
        })
    }

    fn of(after: &Value, before: &Value) -> AppliedLists {
        let of_object = |fields: &Value| {
            serde_json::value::to_raw_value(&json!({"metadata": {"managedFields": fields}}))
                .unwrap()
        };
        AppliedLists::of(&of_object(after), &of_object(before), SPEC)
    }

    #[test]
    fn applied_lists_follow_from_managers_and_their_times() {
        let containers = json!({"f:containers": {"k:{\"name\":\"c0\"}": {".": {}}}});
        let tolerations = json!({"f:tolerations": {}});
        let required = json!({"f:affinity": {"f:nodeAffinity": {"f:requiredDuringSchedulingIgnoredDuringExecution": {}}}});
        let flux = |time: &str, spec: &Value| entry("flux", "Apply", time, spec);
        let mut both = tolerations.clone();
        both["f:affinity"] = required["f:affinity"].clone();
        let before = json!([flux("2026-01-01T00:00:00Z", &both)]);
        let none: &[&str] = &[];
        for (after, expected) in [
            (before.clone(), &["required before"][..]),
            (json!([]), none),
            (json!("none"), none),
            (
                json!([flux("2026-01-01T00:00:01Z", &tolerations)]),
                &["tolerations"],
            ),
            (json!([flux("2026-01-01T00:00:01Z", &containers)]), none),
            (
                json!([flux("2026-01-01T00:00:01Z", &required)]),
                &["required"],
            ),
            (
                json!([flux("2026-01-01T00:00:01Z", &json!({"f:affinity": {}}))]),
                none,
            ),
            (
                json!([entry("edit", "Update", "2026-01-01T00:00:01Z", &both)]),
                none,
            ),
            (
                json!([
                    before[0],
                    entry(
                        "argo",
                        "Apply",
                        "2026-01-01T00:00:01Z",
                        &json!({"f:nodeSelector": {}})
                    )
                ]),
                &["selector", "required before"],
            ),
        ] {
            let AppliedLists {
                tolerations,
                node_selector,
                required,
                required_before,
            } = of(&after, &before);
            let mut names = Vec::new();
            for (name, is_set) in [
                ("tolerations", tolerations),
                ("selector", node_selector),
                ("required", required),
                ("required before", required_before),
            ] {
                if is_set {
                    names.push(name);
                }
            }
            assert_eq!(names, expected, "{after}");
        }
        let mut status = flux("2026-01-01T00:00:01Z", &tolerations);
        status["subresource"] = json!("status");
        assert_eq!(of(&json!([status]), &before), AppliedLists::default());
    }

    /// Untrusted: `managedFields` can be nested as deep as the body is long, and have as many entries.
    #[test]
    fn deep_or_many_fields_cost_little() {
        let deep = format!(
            "{}{{}}{}",
            r#"{"f:spec":"#.repeat(50_000),
            "}".repeat(50_000)
        );
        let deep = format!(
            r#"{{"metadata":{{"managedFields":[{{"operation":"Apply","fieldsV1":{deep}}}]}}}}"#
        );
        let deep = RawValue::from_string(deep).unwrap();
        assert_eq!(
            AppliedLists::of(&deep, RawValue::NULL, SPEC),
            AppliedLists::default()
        );
        let required = json!({"f:affinity": {"f:nodeAffinity": {"f:requiredDuringSchedulingIgnoredDuringExecution": {}}}});
        let many: Vec<Value> = (0..20_000)
            .map(|at| entry(&at.to_string(), "Apply", "t", &required))
            .collect();
        let required_before = true;
        assert_eq!(
            of(&json!(many), &json!(many)),
            AppliedLists {
                required_before,
                ..AppliedLists::default()
            }
        );
    }
}
