//! Managed constraints and preferences: how they are removed from a Pod and added to it. Terms of an affinity are
//! alternatives, so a managed term would bypass the user's: each gets the requirements; one is added if there is none.

use super::preference::Preferred;
use crate::pod::{ARCH_KEY, Expression, NodeSelector, Scheduling, Term, names_architecture};

#[derive(Default, PartialEq)]
pub(super) struct Managed {
    /// The architecture in the node selector.
    pub(super) selected: Option<&'static str>,
    /// The expressions in each term of the required affinity.
    pub(super) required: Vec<Expression<'static>>,
    pub(super) preferred: Vec<Preferred>,
}

impl Managed {
    /// Requires one of these architectures, a single one by the node selector if `selects`, and values of labels.
    pub(super) fn requiring(
        architectures: &[&'static str],
        selects: bool,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let (selected, several) = match architectures {
            [] => (None, None),
            [one] if selects => (Some(*one), None),
            several => (
                None,
                Some(Expression::is_in(ARCH_KEY, several.iter().copied())),
            ),
        };
        let labels = labels
            .into_iter()
            .map(|(key, value)| Expression::is_in(key, [value]));
        Self {
            selected,
            required: several.into_iter().chain(labels).collect(),
            preferred: Vec::new(),
        }
    }

    /// Drops what contradicts the user's own constraints: everything, and returns false, if these constrain the
    /// architecture or match no node.
    pub(super) fn restrict(&mut self, users: &Scheduling<'_>) -> bool {
        let matches_nothing = users
            .required()
            .is_some_and(|terms| terms.iter().all(Term::is_empty));
        if matches_nothing || users.keys().any(names_architecture) {
            *self = Self::default();
            return false;
        }
        self.required
            .retain(|own| users.keys().all(|key| key != own.key()));
        let preferred = || {
            users
                .affinity
                .nodes
                .preferred
                .iter()
                .flat_map(|own| &own.preference.match_expressions)
        };
        self.preferred.retain(|own| {
            let own = &own.term.preference.match_expressions;
            !preferred().any(|users| own.iter().any(|own| own.is_about_the_same(users)))
        });
        true
    }

    /// Returns whether the node selector, the required terms or the preferences newly constrain the nodes.
    pub(super) fn is_added(&self, before: &Scheduling<'_>, after: &Scheduling<'_>) -> bool {
        let (was, is) = (before.terms(), after.terms());
        let with = |terms: &[Term<'_>], own: &Expression<'_>| {
            terms
                .iter()
                .filter(|term| term.match_expressions.contains(own))
                .count()
        };
        // If a managed term gives way to others, these get its requirements.
        let requires =
            |own: &Expression<'_>| with(is, own) > with(was, own) || is.len() < was.len();
        let prefers = |own: &Preferred| !before.affinity.nodes.preferred.contains(&own.term);
        self.selected
            .is_some_and(|architecture| before.architecture() != Some(architecture))
            || self.required.iter().any(requires)
            || self.preferred.iter().any(prefers)
    }

    /// Renders the annotation: architectures, then labels.
    pub(super) fn required_text(&self) -> String {
        let selected = self.selected.map(str::to_owned);
        selected
            .into_iter()
            .chain(self.required.iter().flat_map(Expression::names))
            .collect::<Vec<_>>()
            .join(",")
    }

    pub(super) fn preferred_text(&self) -> String {
        self.preferred
            .iter()
            .map(|own| own.name.as_str())
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Returns the user's own constraints. A list or term that is empty without the managed parts is removed as well.
    pub(super) fn taken_out<'p>(&self, there: &Scheduling<'p>) -> Scheduling<'p> {
        let mut users = there.clone();
        if self.selected.is_some() {
            users.selector.remove(ARCH_KEY);
        }
        let nodes = &mut users.affinity.nodes;
        let terms = there.required().and_then(|terms| self.users_terms(terms));
        nodes.required = terms.map(|terms| NodeSelector { terms });
        for own in &self.preferred {
            remove_last(&mut nodes.preferred, &own.term);
        }
        users
    }

    /// Returns the terms without the managed expressions; `None` if nothing else was required.
    pub(super) fn users_terms<'p>(&self, terms: &[Term<'p>]) -> Option<Vec<Term<'p>>> {
        let users_term = |term: &Term<'p>| {
            let mut users = term.clone();
            let ours = self
                .required
                .iter()
                .filter(|own| remove_last(&mut users.match_expressions, own))
                .count();
            Some(users).filter(|users| ours == 0 || !users.is_empty())
        };
        let users: Vec<Term<'p>> = terms.iter().filter_map(users_term).collect();
        (!users.is_empty() || terms.is_empty()).then_some(users)
    }

    /// Adds all managed parts to the user's constraints. An empty term matches no node, so it stays.
    pub(super) fn put_in<'p>(&self, mut users: Scheduling<'p>) -> Scheduling<'p> {
        if let Some(architecture) = self.selected {
            users.selector.insert(ARCH_KEY.into(), architecture.into());
        }
        let nodes = &mut users.affinity.nodes;
        match &mut nodes.required {
            _ if self.required.is_empty() => {}
            None => {
                nodes.required = Some(NodeSelector {
                    terms: vec![self.required.clone().into()],
                });
            }
            Some(NodeSelector { terms }) => {
                let terms = terms.iter_mut().filter(|term| !term.is_empty());
                terms.for_each(|term| term.match_expressions.extend_from_slice(&self.required));
            }
        }
        nodes
            .preferred
            .extend(self.preferred.iter().map(|own| own.term.clone()));
        users
    }
}

/// Removes an item, and returns whether there was one. Of equal items the last is managed: it was appended.
fn remove_last<T: PartialEq>(items: &mut Vec<T>, item: &T) -> bool {
    let place = items.iter().rposition(|there| there == item);
    place.map(|place| items.remove(place)).is_some()
}
