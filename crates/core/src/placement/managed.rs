//! Managed constraints and preferences, and how they are removed from a Pod and added to it. Terms of an affinity are
//! alternatives, so a separate managed term would bypass the user's terms. Hence each term gets the managed requirements,
//! and a term is added only if there is none.

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
    /// Requires one of these architectures, and values of labels. If `selects`, the node selector requires a single
    /// architecture.
    pub(super) fn requiring(
        architectures: &[&'static str],
        selects: bool,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let mut managed = Self::default();
        match architectures {
            [] => {}
            [architecture] if selects => managed.selected = Some(*architecture),
            architectures => {
                let values = architectures.iter().copied();
                managed.required.push(Expression::is_in(ARCH_KEY, values));
            }
        }
        for (key, value) in labels {
            managed.required.push(Expression::is_in(key, [value]));
        }
        managed
    }

    /// Removes the parts on labels that the user constrains. Removes everything, and returns false, if the user's
    /// constraints name the architecture or match no node.
    pub(super) fn restrict(&mut self, users: &Scheduling<'_>) -> bool {
        let matches_no_node = match users.required() {
            Some(terms) => terms.iter().all(Term::is_empty),
            None => false,
        };
        if matches_no_node || users.keys().any(names_architecture) {
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
            // If the managed term is removed, the user's terms get its requirements.
            let is_removed = terms.len() < terms_before.len();
            if is_removed || count_with(managed, terms) > count_with(managed, terms_before) {
                return true;
            }
        }
        let preferred_before = &before.affinity.nodes.preferred;
        let mut preferred = self.preferred.iter();
        preferred.any(|managed| !preferred_before.contains(&managed.term))
    }

    /// Renders the annotation: architectures, then labels.
    pub(super) fn required_text(&self) -> String {
        let mut names = Vec::new();
        if let Some(architecture) = self.selected {
            names.push(architecture.to_owned());
        }
        for expression in &self.required {
            names.extend(expression.names());
        }
        names.join(",")
    }

    pub(super) fn preferred_text(&self) -> String {
        let mut names = Vec::new();
        for preferred in &self.preferred {
            names.push(preferred.name.as_str());
        }
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

    /// Returns the terms without the managed expressions; `None` if the terms required nothing else.
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
        if users.is_empty() && !terms.is_empty() {
            return None;
        }
        Some(users)
    }

    /// Adds all managed parts to the user's constraints. An empty term matches no node, so it stays empty.
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

/// Removes the last item equal to this one, and returns whether there was one. The last of equal items is managed: it was
/// appended.
fn remove_last<T: PartialEq>(items: &mut Vec<T>, item: &T) -> bool {
    let Some(index) = items.iter().rposition(|other| other == item) else {
        return false;
    };
    items.remove(index);
    true
}
