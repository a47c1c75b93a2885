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
        let mut managed = Self::default();
        match architectures {
            [] => {}
            [one] if selects => managed.selected = Some(*one),
            several => {
                let values = several.iter().copied();
                managed.required.push(Expression::is_in(ARCH_KEY, values));
            }
        }
        for (key, value) in labels {
            managed.required.push(Expression::is_in(key, [value]));
        }
        managed
    }

    /// Removes what the user's constraints exclude. Removes everything, and returns false, if they name the architecture
    /// or match no node.
    pub(super) fn restrict(&mut self, users: &Scheduling<'_>) -> bool {
        let matches_nothing = users
            .required()
            .is_some_and(|terms| terms.iter().all(Term::is_empty));
        if matches_nothing || users.keys().any(names_architecture) {
            *self = Self::default();
            return false;
        }
        self.required
            .retain(|managed| users.keys().all(|key| key != managed.key()));
        let users_terms = &users.affinity.nodes.preferred;
        self.preferred.retain(|managed| {
            let managed = &managed.term.preference;
            !users_terms
                .iter()
                .any(|users| managed.is_about_a_label_of(&users.preference))
        });
        true
    }

    /// Returns whether the node selector, the required terms or the preferences newly constrain the nodes.
    pub(super) fn is_added(&self, before: &Scheduling<'_>, after: &Scheduling<'_>) -> bool {
        if self.selected.is_some() && before.architecture() != self.selected {
            return true;
        }
        let terms_before = before.terms();
        let terms = after.terms();
        for managed in &self.required {
            // If the managed term is dropped, the user's terms carry its requirements.
            if count_with(managed, terms) > count_with(managed, terms_before)
                || terms.len() < terms_before.len()
            {
                return true;
            }
        }
        let preferred_before = &before.affinity.nodes.preferred;
        let mut preferred = self.preferred.iter();
        preferred.any(|managed| !preferred_before.contains(&managed.term))
    }

    /// Renders the annotation: architectures, then labels.
    pub(super) fn required_text(&self) -> String {
        let mut names: Vec<String> = self.selected.map(str::to_owned).into_iter().collect();
        names.extend(self.required.iter().flat_map(Expression::names));
        names.join(",")
    }

    pub(super) fn preferred_text(&self) -> String {
        let names: Vec<&str> = self.preferred.iter().map(|it| it.name.as_str()).collect();
        names.join(",")
    }

    /// Returns the user's own constraints. A list or term that is empty without the managed parts is removed as well.
    pub(super) fn without_managed<'p>(&self, current: &Scheduling<'p>) -> Scheduling<'p> {
        let mut users = current.clone();
        if self.selected.is_some() {
            users.selector.remove(ARCH_KEY);
        }
        let nodes = &mut users.affinity.nodes;
        let terms = current.required().and_then(|terms| self.users_terms(terms));
        nodes.required = terms.map(|terms| NodeSelector { terms });
        for managed in &self.preferred {
            remove_last(&mut nodes.preferred, &managed.term);
        }
        users
    }

    /// Returns the terms without the managed expressions; `None` if nothing else was required.
    pub(super) fn users_terms<'p>(&self, terms: &[Term<'p>]) -> Option<Vec<Term<'p>>> {
        let mut users = Vec::new();
        for term in terms {
            let mut term = term.clone();
            let mut is_managed = false;
            for managed in &self.required {
                is_managed |= remove_last(&mut term.match_expressions, managed);
            }
            if !is_managed || !term.is_empty() {
                users.push(term);
            }
        }
        (!users.is_empty() || terms.is_empty()).then_some(users)
    }

    /// Adds all managed parts to the user's constraints. An empty term matches no node, so it stays.
    pub(super) fn with_managed<'p>(&self, mut users: Scheduling<'p>) -> Scheduling<'p> {
        if let Some(architecture) = self.selected {
            users.selector.insert(ARCH_KEY.into(), architecture.into());
        }
        let nodes = &mut users.affinity.nodes;
        for managed in &self.preferred {
            nodes.preferred.push(managed.term.clone());
        }
        if self.required.is_empty() {
            return users;
        }
        match &mut nodes.required {
            None => {
                nodes.required = Some(NodeSelector {
                    terms: vec![self.required.clone().into()],
                });
            }
            Some(NodeSelector { terms }) => {
                for term in terms.iter_mut().filter(|term| !term.is_empty()) {
                    term.match_expressions.extend_from_slice(&self.required);
                }
            }
        }
        users
    }
}

fn count_with(expression: &Expression<'_>, terms: &[Term<'_>]) -> usize {
    let has_expression = |term: &&Term<'_>| term.match_expressions.contains(expression);
    terms.iter().filter(has_expression).count()
}

/// Removes an item, and returns whether there was one. Of equal items the last is managed: it was appended.
fn remove_last<T: PartialEq>(items: &mut Vec<T>, item: &T) -> bool {
    let Some(place) = items.iter().rposition(|other| other == item) else {
        return false;
    };
    items.remove(place);
    true
}
