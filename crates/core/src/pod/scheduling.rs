//! Node selector and node affinity, read only if a placement needs them. One that cannot be parsed is not edited.

use serde::{Deserialize, Serialize};

use super::json::{Text, Texts, read_small};
use tolerarch_text::json::{List, Unread};

pub const ARCH_KEY: &str = "kubernetes.io/arch";
/// The deprecated label of nodes for their architecture.
pub const BETA_ARCH_KEY: &str = "beta.kubernetes.io/arch";
/// Maximal items of a list.
const ITEMS: usize = 128;

/// A Pod's constraints on nodes; `None` for a part that is absent or null.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheduling<'p> {
    pub(crate) selector: Option<Texts<'p>>,
    /// Alternatives: a node has to match one of these terms.
    pub(crate) required: Option<Vec<Term<'p>>>,
    pub(crate) preferred: Option<Vec<WeightedTerm<'p>>>,
    /// The affinity without the terms.
    others: Affinity<'p>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
struct Affinity<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_affinity: Option<NodeAffinity<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_affinity: Option<Unread<'p>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_anti_affinity: Option<Unread<'p>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
struct NodeAffinity<'p> {
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    required: Option<NodeSelector<'p>>,
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    preferred: Option<List<WeightedTerm<'p>, ITEMS>>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
struct NodeSelector<'p> {
    node_selector_terms: Option<List<Term<'p>, ITEMS>>,
}

/// Type `v1.PreferredSchedulingTerm`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct WeightedTerm<'p> {
    /// A number from 1 to 100.
    #[serde(default)]
    weight: i64,
    #[serde(default)]
    preference: Term<'p>,
}

/// Type `v1.NodeSelectorTerm`: a node has to match all of a term; an empty term matches none.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct Term<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    match_expressions: Option<List<Expression<'p>, ITEMS>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_fields: Option<List<Unread<'p>, ITEMS>>,
}

/// Type `v1.NodeSelectorRequirement`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub(crate) struct Expression<'p> {
    key: Text<'p>,
    operator: Text<'p>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Text<'p>>>,
}

impl<'p> Scheduling<'p> {
    pub(super) fn of(selector: Option<&'p Unread<'_>>, affinity: Option<&'p Unread<'_>>) -> Option<Self> {
        fn read<'p, T: Deserialize<'p>>(json: Option<&'p Unread<'_>>) -> Option<Option<T>> {
            json.map_or(Some(None), |json| read_small(json).map(Some))
        }
        let selector = read(selector)?;
        let mut others: Affinity<'p> = read(affinity)?.unwrap_or_default();
        let NodeAffinity { required, preferred } = others.node_affinity.take().unwrap_or_default();
        let terms =
            |required: NodeSelector<'p>| required.node_selector_terms.map_or_else(Vec::new, |list| list.0);
        Some(Self {
            selector,
            required: required.map(terms),
            preferred: preferred.map(|list| list.0),
            others,
        })
    }

    /// Returns the affinity, if anything is left of it.
    pub(crate) fn affinity(&self) -> Option<impl Serialize> {
        let required =
            self.required.clone().map(|terms| NodeSelector { node_selector_terms: Some(List(terms)) });
        let nodes = NodeAffinity { required, preferred: self.preferred.clone().map(List) };
        let node_affinity = Some(nodes).filter(|nodes| *nodes != NodeAffinity::default());
        let affinity = Affinity { node_affinity, ..self.others.clone() };
        Some(affinity).filter(|affinity| *affinity != Affinity::default())
    }

    pub(crate) fn terms(&self) -> &[Term<'p>] {
        self.required.as_deref().unwrap_or_default()
    }

    pub(crate) fn architecture(&self) -> Option<&str> {
        self.selector.as_ref()?.get(ARCH_KEY).map(Text::as_str)
    }

    /// Returns the labels of nodes that selector and required terms constrain.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        let expressions = self.terms().iter().flat_map(Term::expressions);
        self.selector.iter().flatten().map(|(key, _)| key.as_str()).chain(expressions.map(Expression::key))
    }
}

impl<'p> WeightedTerm<'p> {
    pub(crate) fn new(weight: u8, expressions: Vec<Expression<'p>>) -> Self {
        Self { weight: weight.into(), preference: Term::default().with(expressions) }
    }

    pub(crate) fn expressions(&self) -> &[Expression<'p>] {
        self.preference.expressions()
    }
}

impl<'p> Term<'p> {
    pub(crate) fn with(&self, expressions: Vec<Expression<'p>>) -> Self {
        let match_expressions = (!expressions.is_empty()).then_some(List(expressions));
        Self { match_expressions, match_fields: self.match_fields.clone() }
    }

    pub(crate) fn expressions(&self) -> &[Expression<'p>] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.expressions().is_empty() && self.match_fields.as_deref().is_none_or(<[_]>::is_empty)
    }
}

/// Compares regardless of the order of expressions, which does not matter.
impl PartialEq for Term<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (self.expressions(), other.expressions());
        let is_same_set = || {
            own.iter().all(|there| others.contains(there)) && others.iter().all(|there| own.contains(there))
        };
        self.match_fields == other.match_fields
            && own.len() == others.len()
            && (own == others || is_same_set())
    }
}

impl Eq for Term<'_> {}

impl<'p> Expression<'p> {
    pub(crate) fn is_in(
        key: impl Into<Text<'p>>,
        values: impl IntoIterator<Item = impl Into<Text<'p>>>,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        Self { key: key.into(), operator: "In".into(), values: Some(values) }
    }

    pub(crate) fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Renders values for an annotation: architectures alone, values of any other label behind its key.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let before = if self.key == *ARCH_KEY { String::new() } else { [self.key(), "="].concat() };
        self.values.iter().flatten().map(move |value| [before.as_str(), value.as_str()].concat())
    }

    /// Returns whether both expressions concern the same label of nodes; both labels of the architecture count as one.
    pub(crate) fn is_about_the_same(&self, other: &Expression<'_>) -> bool {
        self.key == other.key || names_architecture(self.key()) && names_architecture(other.key())
    }
}

pub fn names_architecture(key: &str) -> bool {
    key == ARCH_KEY || key == BETA_ARCH_KEY
}
