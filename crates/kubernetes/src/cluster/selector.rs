//! Label selectors, by the API server's meaning.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::metadata::or_default;

/// A label selector of `meta/v1`; an empty one selects everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Labels and their values, all of which an object has to have.
    #[serde(deserialize_with = "or_default")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    #[serde(deserialize_with = "or_default")]
    values: Vec<String>,
}

impl Selector {
    /// Whether these labels are selected; an operator that is not known selects nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |expression: &Expression| {
            let value = labels.get(&expression.key);
            let listed = value.is_some_and(|value| expression.values.contains(value));
            match expression.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(holds)
    }

    /// Labels that it selects; none if there are no such labels.
    pub fn example(&self) -> Option<BTreeMap<String, String>> {
        let mut labels = self.match_labels.clone();
        for Expression { key, operator, values } in &self.match_expressions {
            let value = match operator.as_str() {
                "In" => values.first().cloned(),
                "Exists" => Some("true".to_owned()),
                _ => None,
            };
            if let Some(value) = value {
                labels.entry(key.clone()).or_insert(value);
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
