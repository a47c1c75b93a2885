//! What is required of a Pod's nodes, in its node selector or its node affinity: their architecture, and labels that the Pod
//! itself has.
//!
//! The terms of an affinity are alternatives, so a requirement of ours goes into each of them: a term of our own would
//! undo what the user requires. Only where there is no term at all there is one that is ours.

use std::borrow::Cow;

use crate::image::PlatformSet;
use crate::pod::{ARCH_KEY, Expression, Scheduling, Term};

/// A label of nodes, and the values of which it has to have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    /// The label.
    pub(super) key: Cow<'static, str>,
    /// The values, sorted.
    pub(super) values: Vec<Cow<'static, str>>,
}

impl Requirement {
    /// One of these architectures.
    pub(super) fn of_architectures(names: &[&'static str]) -> Self {
        Self { key: ARCH_KEY.into(), values: names.iter().map(|&name| name.into()).collect() }
    }

    /// The same value as the Pod's label has.
    pub(super) fn of_label(key: &str, value: &str) -> Self {
        Self { key: key.to_owned().into(), values: vec![value.to_owned().into()] }
    }

    pub(super) fn expression<'p>(&self) -> Expression<'p> {
        Expression::is_in(&self.key, &self.values)
    }
}

/// The architectures that are named in an annotation of ours, sorted.
pub(super) fn architectures<'t>(names: impl Iterator<Item = &'t str>) -> Vec<&'static str> {
    names.map(PlatformSet::of_architecture).fold(PlatformSet::EMPTY, PlatformSet::union).architectures()
}

/// A Pod's terms, and what in them an earlier pass required.
pub(super) struct Terms<'p> {
    terms: &'p [Term<'p>],
    /// Places of our expressions, for each term, in the order of the marked requirements.
    own: Vec<Vec<Option<usize>>>,
    marked: Vec<Requirement>,
}

impl<'p> Terms<'p> {
    /// `marked` is what the Pod says that an earlier pass required.
    pub(super) fn of(scheduling: &'p Scheduling<'p>, marked: Vec<Requirement>) -> Self {
        let terms = scheduling.required().map_or(&[][..], |required| required.terms());
        // Of two equal ones the last is ours: it was appended.
        let place = |term: &Term<'_>, own: &Requirement| {
            let own = own.expression();
            term.expressions().iter().rposition(|there| *there == own)
        };
        let own = terms.iter().map(|term| marked.iter().map(|own| place(term, own)).collect()).collect();
        Self { terms, own, marked }
    }

    fn count(&self, term: usize) -> usize {
        self.own[term].iter().flatten().count()
    }

    fn is_ours(&self, term: usize) -> bool {
        let count = self.count(term);
        count > 0 && count == self.terms[term].expressions().len() && !self.terms[term].has_fields()
    }

    /// Whether it matches no node, whatever else a term may be: the API's `v1.NodeSelectorTerm` says so.
    fn is_empty(&self, term: usize) -> bool {
        self.terms[term].expressions().is_empty() && !self.terms[term].has_fields()
    }

    /// Whether no node can match: there are terms of the user's, or none where there should be, and all are empty.
    pub(super) fn match_nothing(&self, scheduling: &Scheduling<'_>) -> bool {
        let all = 0..self.terms.len();
        let users = || all.clone().filter(|&term| !self.is_ours(term));
        scheduling.required().is_some()
            && users().all(|term| self.is_empty(term))
            && (users().next().is_some() || self.terms.is_empty())
    }

    /// Whether there is nothing but ours.
    pub(super) fn are_ours(&self) -> bool {
        (0..self.terms.len()).all(|term| self.is_ours(term))
    }

    /// Whether an expression of ours is there.
    pub(super) fn has_own(&self) -> bool {
        (0..self.terms.len()).any(|term| self.count(term) > 0)
    }

    /// The labels of the user's own expressions.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().zip(&self.own).flat_map(|(term, own)| {
            let users = term.expressions().iter().enumerate().filter(|(at, _)| !own.contains(&Some(*at)));
            users.map(|(_, expression)| expression.key())
        })
    }

    /// What the terms would be if this had been required from the start, and whether something is added.
    pub(super) fn edit(&self, wanted: &[Requirement]) -> (Vec<Term<'p>>, bool) {
        let own: Vec<_> = wanted.iter().map(Requirement::expression).collect();
        if self.terms.is_empty() && !own.is_empty() {
            return (vec![Term::new(own)], true);
        }
        let are_ours = self.are_ours();
        let stays = |term: &usize| match are_ours {
            true => *term == 0 && !wanted.is_empty(),
            // Others have required something since.
            false => !self.is_ours(*term),
        };
        let kept = (0..self.terms.len()).filter(stays);
        let (mut terms, mut adds) = (Vec::new(), false);
        for term in kept {
            let after = self.synchronised(term, wanted);
            let is_new =
                |own| after.expressions().contains(own) && !self.terms[term].expressions().contains(own);
            adds |= own.iter().any(is_new);
            terms.push(after);
        }
        (terms, adds)
    }

    /// A term with these requirements instead of those that were marked.
    fn synchronised(&self, term: usize, wanted: &[Requirement]) -> Term<'p> {
        let there = &self.terms[term];
        if self.is_empty(term) {
            return there.clone();
        }
        let own =
            || self.marked.iter().zip(&self.own[term]).filter_map(|(own, place)| Some((own, (*place)?)));
        let mut expressions: Vec<_> = there.expressions().iter().cloned().map(Some).collect();
        for (own, place) in own() {
            expressions[place] = wanted.iter().find(|new| new.key == own.key).map(Requirement::expression);
        }
        let is_new = |new: &&Requirement| !own().any(|(own, _)| own.key == new.key);
        expressions.extend(wanted.iter().filter(is_new).map(|new| Some(new.expression())));
        let expressions: Vec<_> = expressions.into_iter().flatten().collect();
        if expressions == there.expressions() { there.clone() } else { there.with(expressions) }
    }
}
