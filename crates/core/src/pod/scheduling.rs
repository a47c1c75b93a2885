//! Node selector and node affinity. They are read only if a placement needs them, and not edited if they cannot be parsed.
//! Absent, null and empty mean the same, except for required terms: an empty list of terms matches no node.

use serde::{Deserialize, Serialize};

use super::Pod;
use super::json::{Text, Texts, list, or_default, read_small};
use tolerarch_text::json::Unread;

pub const ARCH_KEY: &str = "kubernetes.io/arch";
/// Deprecated node label for the architecture.
pub const BETA_ARCH_KEY: &str = "beta.kubernetes.io/arch";
/// Maximum number of items in a list.
const ITEMS: usize = 128;

/// A Pod's constraints on nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scheduling<'p> {
    pub(crate) selector: Texts<'p>,
    pub(crate) affinity: Affinity<'p>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(
    rename_all = "camelCase",
    default,
    deny_unknown_fields,
    bound(deserialize = "'de: 'p")
)]
pub(crate) struct Affinity<'p> {
    #[serde(
        rename = "nodeAffinity",
        deserialize_with = "or_default",
        skip_serializing_if = "is_default"
    )]
    pub(crate) nodes: NodeAffinity<'p>,
    #[serde(skip_serializing_if = "is_default")]
    pod_affinity: Option<Unread<'p>>,
    #[serde(skip_serializing_if = "is_default")]
    pod_anti_affinity: Option<Unread<'p>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct NodeAffinity<'p> {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "is_default"
    )]
    pub(crate) required: Option<NodeSelector<'p>>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "list::<_, _, ITEMS>",
        skip_serializing_if = "is_default"
    )]
    pub(crate) preferred: Vec<WeightedTerm<'p>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct NodeSelector<'p> {
    /// Alternatives: a node has to match one of these terms.
    #[serde(rename = "nodeSelectorTerms", deserialize_with = "list::<_, _, ITEMS>")]
    pub(crate) terms: Vec<Term<'p>>,
}

/// Type `v1.PreferredSchedulingTerm`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct WeightedTerm<'p> {
    /// A number from 1 to 100.
    pub(crate) weight: i64,
    pub(crate) preference: Term<'p>,
}

/// Type `v1.NodeSelectorTerm`: a node has to match all expressions and fields; an empty term matches no node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(
    rename_all = "camelCase",
    default,
    deny_unknown_fields,
    bound(deserialize = "'de: 'p")
)]
pub(crate) struct Term<'p> {
    #[serde(
        deserialize_with = "list::<_, _, ITEMS>",
        skip_serializing_if = "is_default"
    )]
    pub(crate) match_expressions: Vec<Expression<'p>>,
    #[serde(
        deserialize_with = "list::<_, _, ITEMS>",
        skip_serializing_if = "is_default"
    )]
    match_fields: Vec<Unread<'p>>,
}

/// Type `v1.NodeSelectorRequirement`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct Expression<'p> {
    key: Text<'p>,
    operator: Text<'p>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Text<'p>>>,
}

impl<'p> Scheduling<'p> {
    /// Returns the Pod's constraints on nodes; `None` if they cannot be parsed.
    pub(crate) fn of(pod: &'p Pod<'_>) -> Option<Self> {
        let selector = Self::selector_of(pod)?;
        let affinity = read_small(pod.spec.affinity.as_ref())?;
        Some(Self { selector, affinity })
    }

    /// Returns the Pod's node selector; `None` if it cannot be parsed.
    pub(crate) fn selector_of(pod: &'p Pod<'_>) -> Option<Texts<'p>> {
        read_small(pod.spec.node_selector.as_ref())
    }

    /// Returns the required terms, one of which a node has to match; `None` if there is no requirement.
    pub(crate) fn required(&self) -> Option<&[Term<'p>]> {
        let required = self.affinity.nodes.required.as_ref()?;
        Some(&required.terms)
    }

    pub(crate) fn terms(&self) -> &[Term<'p>] {
        self.required().unwrap_or_default()
    }

    pub(crate) fn architecture(&self) -> Option<&str> {
        let architecture = self.selector.get(ARCH_KEY)?;
        Some(architecture.as_str())
    }

    /// Returns the keys of the node labels that the selector and the required terms constrain.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        let selected = self.selector.keys().map(Text::as_str);
        let expressions = self.terms().iter().flat_map(|term| &term.match_expressions);
        let required = expressions.map(Expression::key);
        selected.chain(required)
    }
}

impl<'p> From<Vec<Expression<'p>>> for Term<'p> {
    fn from(match_expressions: Vec<Expression<'p>>) -> Self {
        Self {
            match_expressions,
            match_fields: Vec::new(),
        }
    }
}

impl<'p> Term<'p> {
    /// Returns the keys of the node labels that the expressions name.
    pub(crate) fn into_keys(self) -> impl Iterator<Item = Text<'p>> {
        let expressions = self.match_expressions.into_iter();
        expressions.map(|expression| expression.key)
    }
}

impl Term<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    pub(crate) fn has_fields(&self) -> bool {
        !self.match_fields.is_empty()
    }

    /// Returns whether the expressions of both terms constrain a node label in common.
    pub(crate) fn is_about_a_label_of(&self, other: &Term<'_>) -> bool {
        let others = &other.match_expressions;
        for expression in &self.match_expressions {
            let mut others = others.iter();
            if others.any(|other| expression.is_about_the_same(other)) {
                return true;
            }
        }
        false
    }
}

/// Ignores the order of the expressions: a node has to match all of them.
impl PartialEq for Term<'_> {
    fn eq(&self, other: &Self) -> bool {
        let expressions = &self.match_expressions;
        let others = &other.match_expressions;
        if self.match_fields != other.match_fields || expressions.len() != others.len() {
            return false;
        }
        let has_all = others.iter().all(|other| expressions.contains(other));
        has_all && expressions.iter().all(|one| others.contains(one))
    }
}

impl<'p> Expression<'p> {
    /// Returns the expression that a label has one of these values.
    pub(crate) fn is_in(
        key: impl Into<Text<'p>>,
        values: impl IntoIterator<Item = impl Into<Text<'p>>>,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        Self {
            key: key.into(),
            operator: "In".into(),
            values: Some(values),
        }
    }

    pub(crate) fn key(&self) -> &str {
        self.key.as_str()
    }

    pub(crate) fn operator(&self) -> &str {
        self.operator.as_str()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().flatten().map(Text::as_str)
    }

    /// Renders the values for an annotation: `arm64` for an architecture, `key=value` for any other label.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let mut prefix = String::new();
        if self.key != *ARCH_KEY {
            prefix = [self.key(), "="].concat();
        }
        self.values().map(move |value| [&prefix, value].concat())
    }

    /// Returns whether both expressions constrain the same node label. The two labels for architectures count as one.
    pub(crate) fn is_about_the_same(&self, other: &Expression<'_>) -> bool {
        self.key == other.key || names_architecture(self.key()) && names_architecture(other.key())
    }
}

pub fn names_architecture(key: &str) -> bool {
    key == ARCH_KEY || key == BETA_ARCH_KEY
}

/// Returns whether a member has its default value, and so is left out of the JSON.
pub(crate) fn is_default<T: Default + PartialEq>(member: &T) -> bool {
    *member == T::default()
}
