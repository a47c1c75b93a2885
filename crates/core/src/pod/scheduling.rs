//! Node selector and node affinity, read only where a placement needs them: what is not understood is not edited.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::json::Texts;
use super::{Pod, Text};
use tolerarch_text::json::{First, List, Unread};

/// The label of nodes for their architecture.
pub const ARCH_KEY: &str = "kubernetes.io/arch";
/// The label that it replaced.
pub const BETA_ARCH_KEY: &str = "beta.kubernetes.io/arch";
/// Bytes of a node selector, and of an affinity, that are read. Their lists take up to thirty times as many, and are gone
/// when the Pod is decided; people write a few hundred.
pub(super) const BYTES: usize = 64 << 10;
/// Items of a list. Each term gets an operation of the patch.
const ITEMS: usize = 128;
/// Values of an expression that are read: more than there are architectures.
const VALUES: usize = 16;

/// What a Pod says of the nodes on which it is to run.
#[derive(Debug, Default)]
pub struct Scheduling<'p> {
    /// The node selector; `None` where it is absent or null.
    pub selector: Option<Texts<'p>>,
    /// The same of the affinity.
    pub affinity: Option<Affinity<'p>>,
}

/// `v1.Affinity`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct Affinity<'p> {
    pub node_affinity: Option<NodeAffinity<'p>>,
    pod_affinity: Option<IgnoredAny>,
    pod_anti_affinity: Option<IgnoredAny>,
}

/// `v1.NodeAffinity`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct NodeAffinity<'p> {
    /// What a node has to match.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector<'p>>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<List<WeightedTerm<'p>, ITEMS>>,
}

/// `v1.PreferredSchedulingTerm`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct WeightedTerm<'p> {
    /// 1 to 100.
    pub(crate) weight: Option<i64>,
    preference: Option<Term<'p>>,
}

/// `v1.NodeSelector`: a node has to match one of the terms.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct NodeSelector<'p> {
    node_selector_terms: Option<List<Term<'p>, ITEMS>>,
}

/// `v1.NodeSelectorTerm`: a node has to match all of it; one that is empty matches none.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct Term<'p> {
    match_expressions: Option<List<Expression<'p>, ITEMS>>,
    match_fields: Option<List<IgnoredAny, ITEMS>>,
}

/// `v1.NodeSelectorRequirement`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'p"))]
pub struct Expression<'p> {
    key: Option<Text<'p>>,
    operator: Option<Text<'p>>,
    values: Option<First<Text<'p>, VALUES>>,
}

impl Pod<'_> {
    /// What the Pod says of its nodes; `None` where that is not understood.
    pub(crate) fn scheduling(&self) -> Option<Scheduling<'_>> {
        fn read<'p, T: Deserialize<'p>>(json: Option<&'p Unread<'_>>) -> Option<Option<T>> {
            json.map_or(Some(None), |json| if json.size() > BYTES { None } else { json.read().map(Some) })
        }
        let Some(spec) = self.spec.present() else { return Some(Scheduling::default()) };
        Some(Scheduling {
            selector: read(spec.node_selector.as_ref())?,
            affinity: read(spec.affinity.as_ref())?,
        })
    }
}

impl<'p> Scheduling<'p> {
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
    pub fn expressions(&self) -> &[Expression<'p>] {
        self.preference.as_ref().map_or(&[], Term::expressions)
    }

    pub(crate) fn has_fields(&self) -> bool {
        self.preference.as_ref().is_some_and(Term::has_fields)
    }
}

impl Affinity<'_> {
    /// Whether there is nothing but node affinity.
    pub(crate) fn is_of_nodes(&self) -> bool {
        self.pod_affinity.is_none() && self.pod_anti_affinity.is_none()
    }
}

impl<'p> NodeSelector<'p> {
    pub fn terms(&self) -> &[Term<'p>] {
        self.node_selector_terms.as_deref().unwrap_or_default()
    }
}

impl<'p> Term<'p> {
    pub fn expressions(&self) -> &[Expression<'p>] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    /// Whether it selects nodes by a field.
    pub(crate) fn has_fields(&self) -> bool {
        self.match_fields.as_ref().is_some_and(|fields| !fields.is_empty())
    }
}

impl Expression<'_> {
    pub fn key(&self) -> &str {
        self.key.as_ref().map_or("", Text::as_str)
    }

    /// Whether it is just that the label `key` has one of these values.
    pub(crate) fn is_in<'v>(&self, key: &str, values: impl ExactSizeIterator<Item = &'v str>) -> bool {
        let own: &[Text<'_>] = self.values.as_ref().map_or(&[], |values| &values.0);
        self.key() == key
            && self.operator.as_ref().is_some_and(|operator| operator.as_str() == "In")
            && own.len() == values.len()
            && own.iter().map(Text::as_str).eq(values)
    }
}

/// Whether this label of nodes is their architecture.
pub fn names_architecture(key: &str) -> bool {
    key == ARCH_KEY || key == BETA_ARCH_KEY
}
