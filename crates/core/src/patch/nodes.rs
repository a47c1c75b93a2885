//! The operations on a Pod's node selector and node affinity.

use super::{Patch, push_list};
use crate::placement::{
    NodeEdits, ParentEdit, Preferred, PreferredEdit, RequiredEdit, Requirement, SelectorEdit, TermEdit,
};
use tolerarch_text::json::push_text;

const SELECTOR: &str = "/spec/nodeSelector";
/// The architecture in the node selector, as a step of a JSON pointer.
const ARCH: &str = "/kubernetes.io~1arch";
const AFFINITY: &str = "/spec/affinity";
const NODE_AFFINITY: &str = "/spec/affinity/nodeAffinity";
const REQUIRED: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
const TERMS: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/";

pub(super) fn push(patch: &mut Patch<'_>, edits: &NodeEdits) {
    match edits.selector {
        None => {}
        Some(SelectorEdit::Create(arch)) => patch.add(&[SELECTOR], |json| {
            json.push_str(r#"{"kubernetes.io/arch":"#);
            push_text(json, arch);
            json.push('}');
        }),
        Some(SelectorEdit::Set(arch)) => patch.add(&[SELECTOR, ARCH], |json| push_text(json, arch)),
        Some(SelectorEdit::Unset) => patch.remove(&[SELECTOR, ARCH]),
        Some(SelectorEdit::Remove) => patch.remove(&[SELECTOR]),
    }
    match edits.parent {
        None => {}
        // With all that is in them.
        Some(ParentEdit::CreateAffinity) => {
            return patch.add(&[AFFINITY], |json| {
                json.push_str(r#"{"nodeAffinity":"#);
                push_node_affinity(json, edits);
                json.push('}');
            });
        }
        Some(ParentEdit::CreateNodeAffinity) => {
            return patch.add(&[NODE_AFFINITY], |json| push_node_affinity(json, edits));
        }
        Some(ParentEdit::RemoveAffinity) => return patch.remove(&[AFFINITY]),
        Some(ParentEdit::RemoveNodeAffinity) => return patch.remove(&[NODE_AFFINITY]),
    }
    match &edits.required {
        None => {}
        Some(RequiredEdit::Create(requirements)) => {
            patch.add(&[REQUIRED], |json| push_required(json, requirements));
        }
        Some(RequiredEdit::Remove) => patch.remove(&[REQUIRED]),
        // From the end, so that the places of the others stay.
        Some(RequiredEdit::Terms(terms)) => {
            terms.iter().rev().for_each(|(term, edit)| push_term(patch, &term.to_string(), edit));
        }
    }
    if let Some(edit) = &edits.preferred {
        push_preferred(patch, edit);
    }
}

/// What is created of a node affinity that was not there.
fn push_node_affinity(json: &mut String, edits: &NodeEdits) {
    let mut before = '{';
    if let Some(RequiredEdit::Create(requirements)) = &edits.required {
        json.push_str(r#"{"requiredDuringSchedulingIgnoredDuringExecution":"#);
        push_required(json, requirements);
        before = ',';
    }
    if let Some(PreferredEdit::Create(new)) = &edits.preferred {
        json.push(before);
        json.push_str(r#""preferredDuringSchedulingIgnoredDuringExecution":"#);
        push_list(json, new, push_weighted);
    }
    json.push('}');
}

fn push_required(json: &mut String, requirements: &[Requirement]) {
    json.push_str(r#"{"nodeSelectorTerms":[{"matchExpressions":"#);
    push_list(json, requirements, push_requirement);
    json.push_str("}]}");
}

fn push_preferred(patch: &mut Patch<'_>, edit: &PreferredEdit) {
    match edit {
        PreferredEdit::Create(new) => patch.add(&[PREFERRED], |json| push_list(json, new, push_weighted)),
        PreferredEdit::Remove => patch.remove(&[PREFERRED]),
        PreferredEdit::Items { remove, append } => {
            for place in remove.iter().rev() {
                patch.remove(&[PREFERRED, "/", &place.to_string()]);
            }
            for new in append {
                patch.add(&[PREFERRED, "/-"], |json| push_weighted(json, new));
            }
        }
    }
}

fn push_weighted(json: &mut String, Preferred { weight, requirements, .. }: &Preferred) {
    for part in [r#"{"weight":"#, &weight.to_string(), r#","preference":{"matchExpressions":"#] {
        json.push_str(part);
    }
    push_list(json, requirements, push_requirement);
    json.push_str("}}");
}

fn push_term(patch: &mut Patch<'_>, term: &str, edit: &TermEdit) {
    const EXPRESSIONS: &str = "/matchExpressions";
    match edit {
        TermEdit::Drop => patch.remove(&[TERMS, term]),
        TermEdit::Clear => patch.remove(&[TERMS, term, EXPRESSIONS]),
        TermEdit::Fill(requirements) => {
            patch.add(&[TERMS, term, EXPRESSIONS], |json| push_list(json, requirements, push_requirement));
        }
        TermEdit::Change { replace, remove, append } => {
            for (place, new) in replace {
                let place = place.to_string();
                patch.replace(&[TERMS, term, EXPRESSIONS, "/", &place], |json| push_requirement(json, new));
            }
            for place in remove.iter().rev() {
                patch.remove(&[TERMS, term, EXPRESSIONS, "/", &place.to_string()]);
            }
            for new in append {
                patch.add(&[TERMS, term, EXPRESSIONS, "/-"], |json| push_requirement(json, new));
            }
        }
    }
}

fn push_requirement(json: &mut String, Requirement { key, values }: &Requirement) {
    json.push_str(r#"{"key":"#);
    push_text(json, key);
    json.push_str(r#","operator":"In","values":"#);
    push_list(json, values, |json, value| push_text(json, value));
    json.push('}');
}
