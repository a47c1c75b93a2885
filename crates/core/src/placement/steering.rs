//! The nodes on which a Pod is to run: its node selector and node affinity after this pass.

use std::collections::BTreeMap;

use super::managed::Managed;
use super::preference::{self, Preferred};
use super::{Placement, names};
use crate::image::PlatformSet;
use crate::pod::{
    ARCH_KEY, Affinity, AppliedLists, Expression, PREFERRED_KEY, Pod, PodPreference, REQUIRED_KEY,
    Scheduling, is_label_value,
};
use crate::policy::{PlacementRules, Require, Verdicts};

/// Maximal number of preferences read from an annotation; tolerarch writes one for each architecture and pool.
const MARKED: usize = 128;

/// Adds the edits that steer the Pod to the placement.
pub(super) fn steer(
    pod: &Pod<'_>,
    before: Option<&Pod<'_>>,
    verdicts: &Verdicts<'_, '_>,
    placement: &mut Placement<'_>,
) {
    let (rules, preference) = (&verdicts.policy.placement, pod.preference());
    let prefers = !rules.prefer.is_empty()
        || verdicts
            .policy
            .pools
            .iter()
            .any(|pool| pool.prefer.is_some())
        || matches!(
            preference,
            PodPreference::None | PodPreference::Architecture(_)
        );
    // The controller of a DaemonSet chooses the nodes, and heeds no preference.
    let prefers = prefers && !pod.is_of_daemon_set();
    if !rules.requires() && !prefers {
        return;
    }
    let (nodes, labels) = match before.and_then(|before| kept(before, verdicts)) {
        _ if !rules.requires() => (None, false),
        Some(kept) => kept,
        None => allowed(verdicts),
    };
    let is_nowhere = nodes == Some(PlatformSet::EMPTY);
    let mut wanted = required(pod, rules, nodes, labels);
    if !is_nowhere && prefers {
        wanted.preferred = preference::possible(preference, verdicts, &placement.opened);
    }
    // Additions of a feature that is off are not looked for, either.
    let written = if rules.requires() {
        pod.annotation(REQUIRED_KEY)
    } else {
        ""
    };
    let preferred = if prefers {
        pod.annotation(PREFERRED_KEY)
    } else {
        ""
    };
    let marked = match before.filter(|_| rules.requires() && names(written).next().is_none()) {
        Some(before) => before.annotation(REQUIRED_KEY),
        None => written,
    };
    let is_marked = names(marked).chain(names(preferred)).next().is_some();
    if wanted == Managed::default() && !is_marked && !is_nowhere {
        return;
    }
    let Some(there) = Scheduling::of(pod) else {
        return;
    };
    let was_selected = before.and_then(|before| {
        let there = Scheduling::of(before)?;
        let own = required_before(
            &there,
            rules,
            before.annotation(REQUIRED_KEY),
            before.applied,
            None,
        );
        (own.taken_out(&there) != there).then_some(own.selected.is_some())
    });
    let mut own = required_before(&there, rules, marked, pod.applied, was_selected);
    let preferences =
        names(preferred).filter_map(|name| Preferred::named(name, &verdicts.policy.pools));
    own.preferred = preferences.take(MARKED).collect();
    let users = own.taken_out(&there);
    let is_free = wanted.restrict(&users);

    let after = wanted.put_in(users);
    let Ok(spec) = changes(&there, &after) else {
        return;
    };
    let edits = &mut placement.edits;
    (edits.spec, edits.steers) = (spec, wanted.is_added(&there, &after));
    edits
        .annotations
        .extend(record(REQUIRED_KEY, written, wanted.required_text()));
    edits
        .annotations
        .extend(record(PREFERRED_KEY, preferred, wanted.preferred_text()));
    placement.is_steered = wanted != Managed::default();
    placement.is_nowhere = is_free && is_nowhere;
}

/// Returns the members of the spec that change, as JSON, `null` if nothing is left; preferences have no order.
fn changes(
    before: &Scheduling<'_>,
    after: &Scheduling<'_>,
) -> serde_json::Result<BTreeMap<&'static str, String>> {
    let (was, is) = (&before.affinity.nodes, &after.affinity.nodes);
    let is_same = was.preferred.len() == is.preferred.len()
        && is.preferred.iter().all(|term| was.preferred.contains(term));
    let mut members = BTreeMap::new();
    if before.selector != after.selector {
        let selector = Some(&after.selector).filter(|selector| !selector.is_empty());
        members.insert("nodeSelector", serde_json::to_string(&selector)?);
    }
    if was.required != is.required || !is_same {
        let affinity = Some(&after.affinity).filter(|affinity| **affinity != Affinity::default());
        members.insert("affinity", serde_json::to_string(&affinity)?);
    }
    Ok(members)
}

/// Returns the nodes to which the images confine the Pod, and whether its labels are required of its nodes.
fn allowed(verdicts: &Verdicts<'_, '_>) -> (Option<PlatformSet>, bool) {
    let rules = &verdicts.policy.placement;
    if rules.require == Require::Off {
        return (None, verdicts.shared().is_some());
    }
    let nodes = verdicts.nodes();
    (
        nodes.filter(|nodes| *nodes != rules.platforms),
        nodes.is_some_and(|nodes| !nodes.is_empty()),
    )
}

/// Returns what was required before an update, if the known images run there and not every image is known.
fn kept(before: &Pod<'_>, verdicts: &Verdicts<'_, '_>) -> Option<(Option<PlatformSet>, bool)> {
    let possible = verdicts.possible()?;
    let written = before.annotation(REQUIRED_KEY);
    let labels = names(written).any(|name| name.contains('='));
    let marked = platforms(written);
    if marked.is_empty() {
        return Some((None, labels));
    }
    let lacking = verdicts
        .policy
        .placement
        .platforms
        .intersection(marked)
        .difference(possible);
    let kept = marked.without_architectures_of(lacking);
    (!kept.is_empty()).then_some((Some(kept), labels))
}

/// Returns what the images allow to require, whatever the Pod says of its nodes.
fn required(
    pod: &Pod<'_>,
    rules: &PlacementRules,
    nodes: Option<PlatformSet>,
    labels: bool,
) -> Managed {
    let nodes = nodes
        .filter(|_| rules.require != Require::Off)
        .unwrap_or_default();
    // A Pod with a label that is no valid value is no valid Pod, either.
    let label = |key: &String| {
        Some((
            key.clone(),
            pod.label(key).filter(|value| is_label_value(value))?,
        ))
    };
    let mut labels: Vec<_> = rules
        .pod_labels
        .iter()
        .filter(|_| labels)
        .filter_map(label)
        .collect();
    labels.sort_unstable();
    Managed::requiring(
        &nodes.architectures(),
        rules.require == Require::NodeSelector,
        labels,
    )
}

/// Returns what an earlier pass required: `written` is the annotation that says so, and `was_selected` whether the node
/// selector had it before an update, rather than the affinity.
fn required_before(
    there: &Scheduling<'_>,
    rules: &PlacementRules,
    written: &str,
    applied: AppliedLists,
    was_selected: Option<bool>,
) -> Managed {
    let architectures = platforms(written).architectures();
    let labels = rules.pod_labels.iter().filter_map(|key| {
        let mut labels = names(written).filter_map(|name| name.split_once('='));
        Some((
            key.clone(),
            labels.find(|(own, _)| own == key)?.1.to_owned(),
        ))
    });
    let expression = Expression::is_in(ARCH_KEY, architectures.iter().copied());
    let is_required = || {
        there
            .terms()
            .iter()
            .any(|term| term.match_expressions.contains(&expression))
    };
    let is_selected = !applied.node_selector
        && matches!(&*architectures, [one] if there.architecture() == Some(one))
        // A constraint that an update has in another place than before is the user's. Otherwise the node selector may
        // be the user's if the affinity has the managed constraint.
        && was_selected.unwrap_or_else(|| rules.require == Require::NodeSelector || !is_required());
    let is_moved = was_selected == Some(true) && !is_selected;
    let sought: &[&'static str] = if is_moved { &[] } else { &architectures };
    let mut own = Managed::requiring(sought, is_selected, labels);
    // An owner who applies a required affinity applies a term: if all terms look managed, that one is among them.
    let is_alone = || {
        there
            .required()
            .is_some_and(|terms| own.users_terms(terms).is_none())
    };
    if applied.required || applied.required_before && is_alone() {
        own.required.clear();
    }
    own
}

/// Returns the platforms of the architectures that a managed annotation names.
fn platforms(written: &str) -> PlatformSet {
    names(written).map(PlatformSet::of_architecture).collect()
}

fn record(key: &'static str, written: &str, value: String) -> Option<(&'static str, String)> {
    (!names(written).eq(names(&value))).then_some((key, value))
}
