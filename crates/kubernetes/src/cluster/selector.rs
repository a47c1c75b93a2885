//! Label selectors, with the API server's semantics.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::SelectorExt;
use serde::Deserialize;

/// A label selector of `meta/v1`; an empty one selects everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Selector(pub LabelSelector);

impl Selector {
    /// Returns whether these labels are selected; an unknown operator selects nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        kube::core::Selector::try_from(self.0.clone()).is_ok_and(|selector| selector.matches(labels))
    }

    /// Returns labels that are selected; `None` if there are none.
    pub fn example(&self) -> Option<BTreeMap<String, String>> {
        let mut labels = self.0.match_labels.clone().unwrap_or_default();
        for expression in self.0.match_expressions.iter().flatten() {
            let value = match expression.operator.as_str() {
                "In" => expression.values.as_ref().and_then(|values| values.first()).cloned(),
                "Exists" => Some("true".to_owned()),
                _ => None,
            };
            if let Some(value) = value {
                labels.entry(expression.key.clone()).or_insert(value);
            }
        }
        self.matches(&labels).then_some(labels)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn selects_as_the_api_server_does() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": null, "matchExpressions": null}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchLabels": {"c": ""}}), false),
            (expression("a", "In", json!(["0", "1"])), true),
            (expression("c", "In", json!(["0", "1"])), false),
            (expression("a", "NotIn", json!(["1"])), false),
            // A label that is not there is in no list.
            (expression("c", "NotIn", json!(["1"])), true),
            (expression("b", "Exists", Value::Null), true),
            (expression("c", "Exists", Value::Null), false),
            (expression("c", "DoesNotExist", Value::Null), true),
            (expression("b", "DoesNotExist", Value::Null), false),
            (expression("a", "Later", json!(["1"])), false),
        ] {
            let read: Selector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(read.matches(&labels), expected, "{selector}");
        }
    }
}
