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
pub struct Requirement {
    /// The label.
    pub key: Cow<'static, str>,
    /// The values, sorted.
    pub values: Vec<Cow<'static, str>>,
}

impl Requirement {
    /// Bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.values.iter().map(|value| value.len()).sum::<usize>()
    }

    /// Whether this expression says just that.
    pub(super) fn is(&self, expression: &Expression<'_>) -> bool {
        expression.is_in(&self.key, self.values.iter().map(|value| &**value))
    }

    /// One of these architectures.
    pub(super) fn of_architectures(names: &[&'static str]) -> Self {
        Self { key: ARCH_KEY.into(), values: names.iter().map(|&name| name.into()).collect() }
    }

    /// The same value as the Pod's label has.
    pub(super) fn of_label(key: &str, value: &str) -> Self {
        Self { key: key.to_owned().into(), values: vec![value.to_owned().into()] }
    }
}

/// The architectures that are named in an annotation of ours, sorted.
pub(super) fn architectures<'t>(names: impl Iterator<Item = &'t str>) -> Vec<&'static str> {
    names.map(PlatformSet::of_architecture).fold(PlatformSet::EMPTY, PlatformSet::union).architectures()
}

/// How the node selector changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorEdit {
    /// There is none yet: it is created with this architecture.
    Create(&'static str),
    /// This architecture is set in it.
    Set(&'static str),
    /// The architecture is taken out of it.
    Unset,
    /// It has nothing but our architecture, and goes.
    Remove,
}

/// How what the node affinity requires changes.
#[derive(Debug, PartialEq, Eq)]
pub enum RequiredEdit {
    /// There is nothing yet: it is created with one term.
    Create(Vec<Requirement>),
    /// Some of its terms change, by their places, ascending.
    Terms(Vec<(usize, TermEdit)>),
    /// It has nothing but a term of ours, and goes.
    Remove,
}

impl RequiredEdit {
    /// Whether something is added.
    pub(super) fn adds(&self) -> bool {
        match self {
            Self::Create(_) => true,
            Self::Terms(terms) => terms.iter().any(|(_, edit)| !edit.added().is_empty()),
            Self::Remove => false,
        }
    }

    /// What is added, for each term.
    pub(super) fn added(&self) -> Vec<&Requirement> {
        match self {
            Self::Create(new) => new.iter().collect(),
            Self::Terms(terms) => terms.iter().flat_map(|(_, edit)| edit.added()).collect(),
            Self::Remove => Vec::new(),
        }
    }
}

impl TermEdit {
    fn added(&self) -> Vec<&Requirement> {
        match self {
            Self::Drop | Self::Clear => Vec::new(),
            Self::Fill(new) => new.iter().collect(),
            Self::Change { replace, append, .. } => {
                replace.iter().map(|(_, new)| new).chain(append).collect()
            }
        }
    }
}

/// How a term changes.
#[derive(Debug, PartialEq, Eq)]
pub enum TermEdit {
    /// It is ours, and goes.
    Drop,
    /// It gets its first expressions.
    Fill(Vec<Requirement>),
    /// All its expressions go.
    Clear,
    /// Some of its expressions change.
    Change {
        /// Places of those that become others.
        replace: Vec<(usize, Requirement)>,
        /// Places of those that go, ascending.
        remove: Vec<usize>,
        /// Those that are appended.
        append: Vec<Requirement>,
    },
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
        let place =
            |term: &Term<'_>, own: &Requirement| term.expressions().iter().rposition(|there| own.is(there));
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

    /// How the terms become what they would be if this had been required from the start.
    pub(super) fn edit(&self, wanted: Vec<Requirement>) -> Option<RequiredEdit> {
        let mut terms: Vec<(usize, TermEdit)> = Vec::new();
        if self.are_ours() {
            return match (self.terms.is_empty(), wanted.is_empty()) {
                (true, true) => None,
                (true, false) => Some(RequiredEdit::Create(wanted)),
                (false, true) => Some(RequiredEdit::Remove),
                (false, false) => {
                    terms.extend(self.synchronised(0, &wanted));
                    terms.extend((1..self.terms.len()).map(|term| (term, TermEdit::Drop)));
                    (!terms.is_empty()).then_some(RequiredEdit::Terms(terms))
                }
            };
        }
        for term in (0..self.terms.len()).filter(|&term| !self.is_empty(term)) {
            if self.is_ours(term) {
                // Others have required something since.
                terms.push((term, TermEdit::Drop));
            } else {
                terms.extend(self.synchronised(term, &wanted));
            }
        }
        (!terms.is_empty()).then_some(RequiredEdit::Terms(terms))
    }

    /// How a term gets these requirements instead of those that were marked.
    fn synchronised(&self, term: usize, wanted: &[Requirement]) -> Option<(usize, TermEdit)> {
        let (mut replace, mut remove, mut append) = (Vec::new(), Vec::new(), Vec::new());
        let there =
            || self.marked.iter().zip(&self.own[term]).filter_map(|(own, place)| Some((own, (*place)?)));
        for new in wanted {
            match there().find(|(own, _)| own.key == new.key) {
                None => append.push(new.clone()),
                Some((own, _)) if own == new => {}
                Some((_, place)) => replace.push((place, new.clone())),
            }
        }
        remove.extend(
            there().filter(|(own, _)| !wanted.iter().any(|new| new.key == own.key)).map(|(_, place)| place),
        );
        remove.sort_unstable();
        let expressions = self.terms[term].expressions().len();
        let edit = if replace.is_empty() && remove.is_empty() && append.is_empty() {
            return None;
        } else if expressions == 0 {
            TermEdit::Fill(append)
        } else if remove.len() == expressions && append.is_empty() {
            TermEdit::Clear
        } else {
            TermEdit::Change { replace, remove, append }
        };
        Some((term, edit))
    }
}
