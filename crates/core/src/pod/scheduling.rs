//! Node selector and node affinity, read only where a placement needs them: what is not understood is not edited.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::json::{Text, Texts, read_small};
use tolerarch_text::json::{List, Unread};

/// The label of nodes for their architecture.
pub const ARCH_KEY: &str = "kubernetes.io/arch";
/// The label that it replaced.
pub const BETA_ARCH_KEY: &str = "beta.kubernetes.io/arch";
/// Items of a list.
const ITEMS: usize = 128;

/// What a Pod says of the nodes on which it is to run.
#[derive(Debug, Default)]
pub struct Scheduling<'p> {
    /// The node selector; `None` where it is absent or null.
    pub selector: Option<Texts<'p>>,
    /// The same of the affinity.
    pub affinity: Option<Affinity<'p>>,
}

/// `v1.Affinity`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct Affinity<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_affinity: Option<Unread<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_anti_affinity: Option<Unread<'p>>,
}

/// `v1.NodeAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct NodeAffinity<'p> {
    /// What a node has to match.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector<'p>>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    preferred: Option<List<WeightedTerm<'p>, ITEMS>>,
}

/// `v1.PreferredSchedulingTerm`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct WeightedTerm<'p> {
    /// 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preference: Option<Term<'p>>,
}

/// `v1.NodeSelector`: a node has to match one of the terms.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct NodeSelector<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_selector_terms: Option<List<Term<'p>, ITEMS>>,
}

/// `v1.NodeSelectorTerm`: a node has to match all of it; one that is empty matches none.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct Term<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    match_expressions: Option<List<Expression<'p>, ITEMS>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_fields: Option<List<Unread<'p>, ITEMS>>,
}

/// `v1.NodeSelectorRequirement`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct Expression<'p> {
    key: Text<'p>,
    operator: Text<'p>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Text<'p>>>,
}

impl<'p> Scheduling<'p> {
    /// Reads a node selector and an affinity; `None` where one is not understood.
    pub(super) fn of(selector: Option<&'p Unread<'_>>, affinity: Option<&'p Unread<'_>>) -> Option<Self> {
        fn read<'p, T: Deserialize<'p>>(json: Option<&'p Unread<'_>>) -> Option<Option<T>> {
            json.map_or(Some(None), |json| read_small(json).map(Some))
        }
        Some(Self { selector: read(selector)?, affinity: read(affinity)? })
    }

    /// What the node affinity requires, where it requires something.
    pub fn required(&self) -> Option<&NodeSelector<'p>> {
        self.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()
    }

    /// What the node affinity prefers, where there is a list.
    pub fn preferred(&self) -> Option<&[WeightedTerm<'p>]> {
        self.affinity.as_ref()?.node_affinity.as_ref()?.preferred.as_deref()
    }
}

impl<'p> WeightedTerm<'p> {
    pub(crate) fn new(weight: u8, expressions: Vec<Expression<'p>>) -> Self {
        Self { weight: Some(weight.into()), preference: Some(Term::new(expressions)) }
    }

    pub fn expressions(&self) -> &[Expression<'p>] {
        self.preference.as_ref().map_or(&[], Term::expressions)
    }
}

impl<'p> Affinity<'p> {
    /// The same with these terms in the node affinity; `None` if nothing is left.
    pub(crate) fn with(
        mut self,
        required: Option<NodeSelector<'p>>,
        preferred: Option<Vec<WeightedTerm<'p>>>,
    ) -> Option<Self> {
        let nodes = NodeAffinity { required, preferred: preferred.map(List) };
        self.node_affinity = (nodes != NodeAffinity::default()).then_some(nodes);
        (self != Self::default()).then_some(self)
    }
}

impl<'p> NodeSelector<'p> {
    pub(crate) fn new(terms: Vec<Term<'p>>) -> Self {
        Self { node_selector_terms: Some(List(terms)) }
    }

    pub fn terms(&self) -> &[Term<'p>] {
        self.node_selector_terms.as_deref().unwrap_or_default()
    }
}

impl<'p> Term<'p> {
    pub(crate) fn new(expressions: Vec<Expression<'p>>) -> Self {
        Self { match_expressions: Some(List(expressions)), match_fields: None }
    }

    /// The same term with other expressions.
    pub(crate) fn with(&self, expressions: Vec<Expression<'p>>) -> Self {
        let match_expressions = (!expressions.is_empty()).then_some(List(expressions));
        Self { match_expressions, match_fields: self.match_fields.clone() }
    }

    pub fn expressions(&self) -> &[Expression<'p>] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    /// Whether it selects nodes by a field.
    pub(crate) fn has_fields(&self) -> bool {
        self.match_fields.as_ref().is_some_and(|fields| !fields.is_empty())
    }
}

impl Expression<'_> {
    /// Requires one of these values of the label `key`.
    pub(crate) fn is_in(key: &str, values: &[Cow<'static, str>]) -> Self {
        let text = |text: &str| Text::from(text.to_owned());
        let values = values.iter().map(|value| text(value)).collect();
        Self { key: text(key), operator: "In".into(), values: Some(values) }
    }

    pub fn key(&self) -> &str {
        self.key.as_str()
    }
}

/// Whether this label of nodes is their architecture.
pub fn names_architecture(key: &str) -> bool {
    key == ARCH_KEY || key == BETA_ARCH_KEY
}
