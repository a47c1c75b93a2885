//! Whether a Pod fits a node by the node's labels, as the scheduler and the DaemonSet controller decide
//! (`GetRequiredNodeAffinity` of k8s.io/component-helpers). Only some labels are known of a node that does not exist yet.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::scheduling::{Expression, Scheduling, Term, names_architecture};
use super::{ARCH_KEY, BETA_ARCH_KEY, Pod};
use crate::image::PlatformSet;

/// The labels of a node, some of which may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels {
    /// Values by key; `None` for a label that the node may or may not have.
    values: BTreeMap<String, Option<String>>,
    /// Set if the node certainly lacks a label without an entry. If unset, such a label is unknown.
    has_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Yes,
    No,
    /// A decisive label is unknown.
    Unknown,
}

/// One label of a node.
enum Label<'n> {
    Value(&'n str),
    Absent,
    Unknown,
}

impl NodeLabels {
    /// Returns the labels of a node that is like all of these. Labels on which the nodes differ are unknown; without nodes,
    /// all labels are.
    pub fn shared<'n>(nodes: impl IntoIterator<Item = &'n BTreeMap<String, String>>) -> Self {
        let mut nodes = nodes.into_iter();
        let Some(first) = nodes.next() else {
            return Self::default();
        };
        let mut values = BTreeMap::new();
        for (key, value) in first {
            values.insert(key.clone(), Some(value.clone()));
        }
        for node in nodes {
            for (key, value) in &mut values {
                if node.get(key) != value.as_ref() {
                    *value = None;
                }
            }
            for key in node.keys() {
                if !values.contains_key(key) {
                    values.insert(key.clone(), None);
                }
            }
        }
        Self {
            values,
            has_all: true,
        }
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_owned(), Some(value.to_owned()));
    }

    /// Makes a label unknown.
    pub fn forget(&mut self, key: &str) {
        self.values.insert(key.to_owned(), None);
    }

    /// Sets the labels that every kubelet sets for its architecture.
    pub fn set_architecture(&mut self, architecture: &str) {
        self.set(ARCH_KEY, architecture);
        self.set(BETA_ARCH_KEY, architecture);
    }

    #[must_use]
    pub fn with_architecture(&self, architecture: &str) -> Self {
        let mut labels = self.clone();
        labels.set_architecture(architecture);
        labels
    }

    /// Returns whether the node may have all of these labels: it has them, or they are unknown.
    pub fn may_have(&self, labels: &BTreeMap<String, String>) -> bool {
        for (key, value) in labels {
            let may_have = match self.get(key) {
                Label::Value(nodes_value) => nodes_value == value,
                Label::Absent => false,
                Label::Unknown => true,
            };
            if !may_have {
                return false;
            }
        }
        true
    }

    fn get(&self, key: &str) -> Label<'_> {
        match self.values.get(key) {
            Some(Some(value)) => Label::Value(value),
            None if self.has_all => Label::Absent,
            Some(None) | None => Label::Unknown,
        }
    }
}

impl Pod<'_> {
    /// Returns whether the node selector and the required node affinity allow a node with these labels.
    pub fn fits(&self, labels: &NodeLabels) -> Fit {
        let Some(scheduling) = Scheduling::of(self) else {
            return Fit::Unknown;
        };
        let mut fit = Fit::Yes;
        for (key, value) in &scheduling.selector {
            let fit_of_label = match labels.get(key.as_str()) {
                Label::Value(nodes_value) => Fit::of(nodes_value == value.as_str()),
                Label::Absent => Fit::No,
                Label::Unknown => Fit::Unknown,
            };
            fit = fit.and(fit_of_label);
        }
        if let Some(terms) = scheduling.required() {
            let mut fit_of_terms = Fit::No;
            for term in terms {
                fit_of_terms = fit_of_terms.or(term.fits(labels));
            }
            fit = fit.and(fit_of_terms);
        }
        fit
    }

    /// Returns the platforms whose architecture the node selector and the required node affinity do not exclude.
    pub fn selected_platforms(&self) -> PlatformSet {
        let mut selected = PlatformSet::ALL;
        for architecture in PlatformSet::ALL.architectures() {
            let labels = NodeLabels::default().with_architecture(architecture);
            if self.fits(&labels) == Fit::No {
                selected = selected.difference(PlatformSet::of_architecture(architecture));
            }
        }
        selected
    }

    /// Returns whether a preferred node affinity names an architecture.
    pub fn prefers_an_architecture(&self) -> bool {
        let Some(scheduling) = Scheduling::of(self) else {
            return false;
        };
        let mut preferred = scheduling.affinity.nodes.preferred.iter();
        preferred.any(|term| term.preference.names_architecture())
    }
}

impl Fit {
    fn of(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::No, Self::No) => Self::No,
            _ => Self::Unknown,
        }
    }
}

impl Term<'_> {
    fn fits(&self, labels: &NodeLabels) -> Fit {
        if self.is_empty() {
            return Fit::No;
        }
        let mut fit = Fit::Yes;
        if self.has_fields() {
            // Fields match the node's name, which is unknown before the node exists.
            fit = Fit::Unknown;
        }
        for expression in &self.match_expressions {
            fit = fit.and(expression.fits(labels));
        }
        fit
    }

    fn names_architecture(&self) -> bool {
        let mut expressions = self.match_expressions.iter();
        expressions.any(|expression| names_architecture(expression.key()))
    }
}

impl Expression<'_> {
    /// Decides as `labels.Requirement.Matches` of k8s.io/apimachinery does.
    fn fits(&self, labels: &NodeLabels) -> Fit {
        let label = match labels.get(self.key()) {
            Label::Unknown => return Fit::Unknown,
            Label::Absent => None,
            Label::Value(value) => Some(value),
        };
        match self.operator() {
            "In" => Fit::of(self.lists(label)),
            "NotIn" => Fit::of(!self.lists(label)),
            "Exists" => Fit::of(label.is_some()),
            "DoesNotExist" => Fit::of(label.is_none()),
            "Gt" => Fit::of(self.compare(label) == Some(Ordering::Greater)),
            "Lt" => Fit::of(self.compare(label) == Some(Ordering::Less)),
            _ => Fit::Unknown,
        }
    }

    /// Returns whether the values have the label's value.
    fn lists(&self, label: Option<&str>) -> bool {
        match label {
            Some(label) => self.values().any(|value| value == label),
            None => false,
        }
    }

    /// Compares the label's value with the first value, if both are numbers.
    fn compare(&self, label: Option<&str>) -> Option<Ordering> {
        let number: i64 = label?.parse().ok()?;
        let limit: i64 = self.values().next()?.parse().ok()?;
        Some(number.cmp(&limit))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        labels.iter().map(owned).collect()
    }

    fn fit(spec: &Value, labels: &NodeLabels) -> Fit {
        let pod = json!({ "spec": spec });
        Pod::of_value(&pod).unwrap().fits(labels)
    }

    fn required(terms: &Value) -> Value {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"affinity": {"nodeAffinity": required}})
    }

    #[test]
    fn labels_that_all_nodes_share_are_known() {
        let one = node(&[("os", "linux"), ("zone", "a"), ("gpu", "true")]);
        let other = node(&[("os", "linux"), ("zone", "b"), ("name", "x")]);
        let labels = NodeLabels::shared([&one, &other]);
        for (selector, expected) in [
            (json!({}), Fit::Yes),
            (json!({"os": "linux"}), Fit::Yes),
            (json!({"os": "windows"}), Fit::No),
            (json!({"zone": "a"}), Fit::Unknown),
            (json!({"gpu": "true"}), Fit::Unknown),
            (json!({"name": "x"}), Fit::Unknown),
            (json!({"other": "x"}), Fit::No),
            (json!({"zone": "a", "os": "windows"}), Fit::No),
        ] {
            let spec = json!({"nodeSelector": selector});
            assert_eq!(fit(&spec, &labels), expected, "{spec}");
        }
        let nothing = NodeLabels::shared([]);
        let spec = json!({"nodeSelector": {"other": "x"}});
        assert_eq!(fit(&spec, &nothing), Fit::Unknown);
        assert_eq!(fit(&json!({}), &nothing), Fit::Yes);
    }

    #[test]
    fn operators_are_those_of_the_scheduler() {
        let mut labels = NodeLabels::shared([&node(&[("os", "linux"), ("cores", "8")])]);
        labels.forget("zone");
        for (key, operator, values, expected) in [
            ("os", "In", json!(["linux", "x"]), Fit::Yes),
            ("os", "In", json!(["x"]), Fit::No),
            ("none", "In", json!(["x"]), Fit::No),
            ("os", "NotIn", json!(["linux"]), Fit::No),
            ("none", "NotIn", json!(["linux"]), Fit::Yes),
            ("os", "Exists", json!([]), Fit::Yes),
            ("none", "Exists", json!(null), Fit::No),
            ("none", "DoesNotExist", json!(null), Fit::Yes),
            ("os", "DoesNotExist", json!(null), Fit::No),
            ("cores", "Gt", json!(["7"]), Fit::Yes),
            ("cores", "Gt", json!(["8"]), Fit::No),
            ("cores", "Lt", json!(["9"]), Fit::Yes),
            ("os", "Lt", json!(["9"]), Fit::No),
            ("none", "Gt", json!(["1"]), Fit::No),
            ("zone", "Exists", json!([]), Fit::Unknown),
            ("os", "Later", json!(["x"]), Fit::Unknown),
        ] {
            let spec = required(
                &json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]),
            );
            assert_eq!(fit(&spec, &labels), expected, "{spec}");
        }
    }

    #[test]
    fn one_term_is_enough_if_all_its_expressions_match() {
        let mut labels = NodeLabels::shared([&node(&[("os", "linux")])]);
        labels.set_architecture("arm64");
        labels.forget("zone");
        let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        let term = |expressions: &[&Value]| json!({ "matchExpressions": expressions });
        let amd64 = &is("kubernetes.io/arch", "amd64");
        let arm64 = &is("beta.kubernetes.io/arch", "arm64");
        let unknown = &is("zone", "a");
        let named =
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        for (terms, expected) in [
            (json!([]), Fit::No),
            (json!([{}]), Fit::No),
            (json!([term(&[amd64])]), Fit::No),
            (json!([term(&[amd64]), term(&[arm64])]), Fit::Yes),
            (json!([term(&[amd64]), term(&[unknown])]), Fit::Unknown),
            (json!([term(&[arm64, unknown])]), Fit::Unknown),
            (json!([term(&[amd64, unknown])]), Fit::No),
            (json!([named]), Fit::Unknown),
        ] {
            assert_eq!(fit(&required(&terms), &labels), expected, "{terms}");
        }
        let both = labels.with_architecture("amd64");
        assert_eq!(fit(&required(&json!([term(&[amd64])])), &both), Fit::Yes);
        assert_eq!(fit(&required(&json!([term(&[arm64])])), &both), Fit::No);
    }

    #[test]
    fn preference_for_an_architecture_is_recognised() {
        let preferring = |key: &str| {
            let preference =
                json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["amd64"]}]});
            let preferred = json!([{"weight": 1, "preference": preference}]);
            let nodes = json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred});
            json!({"spec": {"affinity": {"nodeAffinity": nodes}}})
        };
        for (key, expected) in [(ARCH_KEY, true), (BETA_ARCH_KEY, true), ("zone", false)] {
            let pod = preferring(key);
            let pod = Pod::of_value(&pod).unwrap();
            assert_eq!(pod.prefers_an_architecture(), expected, "{key}");
        }
    }

    /// The cases and their results are those of the scheduler's own library. A Pod whose affinity cannot be read is
    /// `Unknown`.
    #[test]
    fn pods_fit_as_upstream_says() {
        #[derive(serde::Deserialize)]
        struct Case {
            spec: Value,
            labels: BTreeMap<String, String>,
            fits: bool,
        }
        let answers = conformance::cases("fits").into_iter().map(|case| {
            let Case { spec, labels, fits } = case;
            let result = fit(&spec, &NodeLabels::shared([&labels]));
            (format!("{spec} {labels:?}"), result, Fit::of(fits))
        });
        conformance::assert_agreement(answers);
    }
}
