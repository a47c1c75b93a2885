//! On which nodes a Pod is to run: what it asks for by node selector and node affinity, after this pass.

use super::requirement::{RequiredEdit, Requirement, SelectorEdit, Terms, architectures};
use super::{AnnotationEdit, names};
use crate::pod::{ARCH_KEY, Pod, REQUIRED_KEY, Scheduling, names_architecture};
use crate::policy::{NodeFit, Require, Verdicts};

/// How a Pod's node selector and node affinity change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodeEdits {
    /// In the node selector.
    pub selector: Option<SelectorEdit>,
    /// In what the node affinity requires.
    pub required: Option<RequiredEdit>,
    /// What of the affinity has to be created first, or has nothing left and goes as a whole.
    pub parent: Option<ParentEdit>,
}

/// How the objects change that hold a Pod's node affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentEdit {
    /// The Pod has no affinity.
    CreateAffinity,
    /// The Pod's affinity says nothing of nodes.
    CreateNodeAffinity,
    /// The affinity has nothing but our parts.
    RemoveAffinity,
    /// The node affinity has nothing but our parts.
    RemoveNodeAffinity,
}

/// Where a Pod is steered.
#[derive(Debug, Default)]
pub(super) struct Steering {
    /// How the Pod has to be changed for that.
    pub(super) edits: NodeEdits,
    pub(super) annotations: Vec<AnnotationEdit>,
    /// Whether something of ours steers the Pod after this pass.
    pub(super) stands: bool,
    /// Whether the Pod's images have no platform in common, so that it is not steered.
    pub(super) is_nowhere: bool,
}

impl NodeEdits {
    /// Whether something is added, and not only taken back.
    pub(super) fn adds(&self) -> bool {
        self.size().0 > 0
    }

    /// How many requirements it adds, and the bytes of their texts.
    pub(super) fn size(&self) -> (usize, usize) {
        let selected = match self.selector {
            Some(SelectorEdit::Create(arch) | SelectorEdit::Set(arch)) => (1, ARCH_KEY.len() + arch.len()),
            _ => (0, 0),
        };
        let added = self.required.iter().flat_map(RequiredEdit::added);
        added.fold(selected, |(count, bytes), added| (count + 1, bytes + added.bytes()))
    }
}

/// Steers a Pod by what its images mean for the cluster's nodes.
pub(super) fn steer(pod: &Pod<'_>, verdicts: &Verdicts<'_, '_>) -> Steering {
    let rules = verdicts.rules();
    if !rules.is_on() {
        return Steering::default();
    }
    let fit = verdicts.node_fit();
    let written = pod.required_annotation();
    let none_written = names(written).next().is_none();
    if none_written && matches!(fit, NodeFit::Everywhere | NodeFit::Unknown) {
        return Steering::default();
    }
    let Some(scheduling) = pod.scheduling() else { return Steering::default() };

    let marked = architectures(names(written));
    let own_selector = selects_own(&scheduling, &marked, rules.require);
    let of_terms =
        if own_selector || marked.is_empty() { vec![] } else { vec![Requirement::of_architectures(&marked)] };
    let terms = Terms::of(&scheduling, of_terms);
    let users_selector = scheduling.selector.iter().flat_map(|selector| selector.names());
    let names_its_own =
        users_selector.filter(|&key| !(own_selector && key == ARCH_KEY)).any(names_architecture)
            || terms.keys().any(names_architecture);
    let free = !names_its_own && !terms.match_nothing(&scheduling);

    let wanted = match fit {
        NodeFit::Only(platforms) if free => platforms.architectures(),
        _ => Vec::new(),
    };
    let (selected, required) = match (rules.require, &*wanted) {
        (_, []) => (None, vec![]),
        (Require::NodeSelector, [one]) => (Some(*one), vec![]),
        (_, several) => (None, vec![Requirement::of_architectures(several)]),
    };
    let required = terms.edit(&required);
    let parent = parent(&scheduling, required.as_ref());
    let edits = NodeEdits { selector: selector(&scheduling, own_selector, selected), required, parent };
    let annotations = record(written, &wanted).into_iter().collect();
    Steering { edits, annotations, stands: !wanted.is_empty(), is_nowhere: free && fit == NodeFit::Nowhere }
}

/// Whether the architecture in the node selector is ours. It may be the user's where the affinity has ours.
fn selects_own(scheduling: &Scheduling<'_>, marked: &[&'static str], require: Require) -> bool {
    let selected = scheduling.selector.as_ref().and_then(|selector| selector.get(ARCH_KEY));
    let [one] = marked else { return false };
    let in_terms = || Terms::of(scheduling, vec![Requirement::of_architectures(marked)]).has_own();
    selected == Some(one) && (require == Require::NodeSelector || !in_terms())
}

fn selector(scheduling: &Scheduling<'_>, is_own: bool, wanted: Option<&'static str>) -> Option<SelectorEdit> {
    let Some(there) = &scheduling.selector else { return wanted.map(SelectorEdit::Create) };
    match wanted {
        Some(one) if is_own && there.get(ARCH_KEY) == Some(one) => None,
        Some(one) => Some(SelectorEdit::Set(one)),
        None if !is_own => None,
        None if there.names().len() == 1 => Some(SelectorEdit::Remove),
        None => Some(SelectorEdit::Unset),
    }
}

fn parent(scheduling: &Scheduling<'_>, required: Option<&RequiredEdit>) -> Option<ParentEdit> {
    let affinity = scheduling.affinity.as_ref();
    let of_nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    match required? {
        RequiredEdit::Create(_) if affinity.is_none() => Some(ParentEdit::CreateAffinity),
        RequiredEdit::Create(_) if of_nodes.is_none() => Some(ParentEdit::CreateNodeAffinity),
        RequiredEdit::Remove if of_nodes?.preferred.is_some() => None,
        RequiredEdit::Remove if affinity?.is_of_nodes() => Some(ParentEdit::RemoveAffinity),
        RequiredEdit::Remove => Some(ParentEdit::RemoveNodeAffinity),
        RequiredEdit::Create(_) | RequiredEdit::Terms(_) => None,
    }
}

/// How to write down what is required; `None` where it stands there.
fn record(written: &str, wanted: &[&'static str]) -> Option<AnnotationEdit> {
    if names(written).eq(wanted.iter().copied()) {
        return None;
    }
    Some(AnnotationEdit { key: REQUIRED_KEY, value: wanted.join(",") })
}
