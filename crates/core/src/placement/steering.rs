//! The nodes on which a Pod is to run: its node selector and node affinity after this pass.

use std::collections::BTreeMap;

use super::managed::Managed;
use super::ownership::{Ownership, has_names, names};
use super::preference::{self, Preferred};
use crate::image::PlatformSet;
use crate::pod::{
    ARCH_KEY, Affinity, AppliedLists, Expression, PREFERRED_KEY, Pod, PodPreference, REQUIRED_KEY,
    Scheduling, Texts, is_label_value,
};
use crate::policy::{PlacementRules, Policy, Pool, Require, Verdicts};

/// Maximum number of preferences read from an annotation; tolerarch writes one for each architecture and pool.
const PREFERENCES: usize = 128;

/// How the Pod is steered after this pass, and the edits for that.
pub(super) struct Steering<'p> {
    /// Set if a managed constraint or preference steers the Pod after this pass.
    pub(super) is_steered: bool,
    /// Set if the edits add something that steers the Pod, rather than only remove it.
    pub(super) is_addition: bool,
    /// Set if the Pod would be steered if its images had a platform in common.
    pub(super) is_nowhere: bool,
    /// The node selector, if it changes.
    pub(super) selector: Option<Texts<'p>>,
    /// The affinity, if it changes.
    pub(super) affinity: Option<Affinity<'p>>,
    /// Annotations to set, or to remove where the text is empty.
    pub(super) annotations: BTreeMap<&'static str, String>,
}

/// The nodes to which a Pod's images confine the Pod.
#[derive(Clone, Copy, Default)]
struct Confinement {
    /// The platforms of these nodes; `None` if every node of the cluster will do, or if the nodes are unknown.
    nodes: Option<PlatformSet>,
    /// Set if the Pod's labels are required of its nodes as well.
    by_labels: bool,
}

/// The managed annotations of the features that are on; additions of a feature that is off are not looked for.
#[derive(Default)]
struct Annotations<'p> {
    required: &'p str,
    preferred: &'p str,
    /// Requirements that may be managed: those of the Pod, or those before an update.
    recorded: &'p str,
    /// Preferences that may be managed, likewise.
    recorded_preferred: &'p str,
}

/// Steers the Pod; `None` if there is nothing to add and nothing managed to remove, or if the Pod's constraints cannot be
/// read.
pub(super) fn steer<'p>(
    pod: &'p Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Option<Steering<'p>> {
    let rules = &verdicts.policy.placement;
    let requires = rules.requires();
    let prefers = prefers(pod, verdicts.policy);
    if !requires && !prefers {
        return None;
    }
    let mut annotations = Annotations::default();
    let mut confinement = Confinement::default();
    if requires {
        confinement = confine(ownership, verdicts);
        annotations.required = pod.annotation(REQUIRED_KEY);
        annotations.recorded = ownership.required;
    }
    let mut desired = desired_requirements(pod, rules, confinement);
    let is_nowhere = confinement.nodes == Some(PlatformSet::EMPTY);
    if prefers {
        annotations.preferred = pod.annotation(PREFERRED_KEY);
        annotations.recorded_preferred = ownership.preferred;
        if !is_nowhere {
            desired.preferred = desired_preferences(pod, ownership, verdicts, opened);
        }
    }
    let is_recorded = has_names(annotations.recorded) || has_names(annotations.recorded_preferred);
    if desired == Managed::default() && !is_recorded && !is_nowhere {
        return None;
    }

    let current = Scheduling::of(pod)?;
    let was_selected = ownership.lasting.as_ref().and_then(|it| it.is_selected);
    let recorded = annotations.recorded;
    let mut managed = managed_requirements(&current, rules, recorded, pod.applied, was_selected);
    managed.preferred = managed_preferences(annotations.recorded_preferred, &verdicts.policy.pools);
    let user = managed.without_managed(&current);
    let is_free = desired.restrict(&user);
    let after = desired.with_managed(user);

    Some(Steering {
        is_steered: desired != Managed::default(),
        is_addition: desired.is_added(&current, &after),
        is_nowhere: is_nowhere && is_free,
        affinity: has_other_terms(&current, &after).then_some(after.affinity),
        selector: (current.selector != after.selector).then_some(after.selector),
        annotations: annotations.edits(&desired),
    })
}

impl Annotations<'_> {
    /// Returns the edits by which the annotations name what is desired.
    fn edits(&self, desired: &Managed) -> BTreeMap<&'static str, String> {
        let mut edits = BTreeMap::new();
        for (key, annotation, text) in [
            (REQUIRED_KEY, self.required, desired.required_text()),
            (PREFERRED_KEY, self.preferred, desired.preferred_text()),
        ] {
            if !names(annotation).eq(names(&text)) {
                edits.insert(key, text);
            }
        }
        edits
    }
}

/// Returns the preferences that follow from the images, or those of an earlier pass that last.
fn desired_preferences(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Vec<Preferred> {
    if let Some(lasting) = &ownership.lasting
        && let Some(possible) = verdicts.possible_if_unknown()
    {
        // A Pod that asks for no preference may still prefer a pool.
        let platforms = match pod.preference() {
            PodPreference::None => PlatformSet::EMPTY,
            _ => possible,
        };
        let mut preferences = managed_preferences(lasting.preferred, &verdicts.policy.pools);
        preferences.retain(|preferred| preferred.lasts(platforms, opened));
        return preferences;
    }
    preference::possible(pod.preference(), verdicts, opened)
}

/// Returns the managed preferences that an annotation names.
pub(super) fn managed_preferences(preferred: &str, pools: &[Pool]) -> Vec<Preferred> {
    let preferences = names(preferred).filter_map(|name| Preferred::named(name, pools));
    preferences.take(PREFERENCES).collect()
}

/// Returns whether the Pod, its pools or the rules prefer some nodes, or the Pod asks for no preference.
pub fn prefers(pod: &Pod<'_>, policy: &Policy) -> bool {
    // The controller of a DaemonSet chooses the nodes, and ignores preferences.
    if pod.is_of_daemon_set() {
        return false;
    }
    let is_set = matches!(
        pod.preference(),
        PodPreference::None | PodPreference::Architecture(_)
    );
    is_set
        || !policy.placement.prefer.is_empty()
        || policy.pools.iter().any(|pool| pool.prefer.is_some())
}

/// Returns whether the requirements or the preferences, which have no order, differ.
fn has_other_terms(before: &Scheduling<'_>, after: &Scheduling<'_>) -> bool {
    let before = &before.affinity.nodes;
    let after = &after.affinity.nodes;
    let mut preferred = after.preferred.iter();
    let has_same_preferences = preferred.len() == before.preferred.len()
        && preferred.all(|term| before.preferred.contains(term));
    before.required != after.required || !has_same_preferences
}

/// Returns the nodes to which the images confine the Pod, or to which an earlier pass did if that lasts.
fn confine(ownership: &Ownership<'_>, verdicts: &Verdicts<'_, '_>) -> Confinement {
    if let Some(lasting) = &ownership.lasting
        && let Some(confinement) = lasting_confinement(lasting.required, verdicts)
    {
        return confinement;
    }
    let rules = &verdicts.policy.placement;
    if rules.require == Require::Off {
        return Confinement {
            nodes: None,
            by_labels: verdicts.shared().is_some(),
        };
    }
    match verdicts.nodes() {
        None => Confinement::default(),
        Some(nodes) => Confinement {
            nodes: (nodes != rules.platforms).then_some(nodes),
            by_labels: !nodes.is_empty(),
        },
    }
}

/// Returns the earlier requirements that stay: an image is unknown, and the known images run there.
fn lasting_confinement(required: &str, verdicts: &Verdicts<'_, '_>) -> Option<Confinement> {
    let possible = verdicts.possible_if_unknown()?;
    let by_labels = names(required).any(|name| name.contains('='));
    let recorded = platforms(required);
    if recorded.is_empty() {
        return Some(Confinement {
            nodes: None,
            by_labels,
        });
    }
    let cluster = verdicts.policy.placement.platforms;
    let lacking = cluster.intersection(recorded).difference(possible);
    let nodes = recorded.without_architectures_of(lacking);
    if nodes.is_empty() {
        return None;
    }
    Some(Confinement {
        nodes: Some(nodes),
        by_labels,
    })
}

/// Returns the requirements that follow from the images, whatever the Pod says of its nodes.
fn desired_requirements(
    pod: &Pod<'_>,
    rules: &PlacementRules,
    confinement: Confinement,
) -> Managed {
    let nodes = match rules.require {
        Require::Off => PlatformSet::EMPTY,
        Require::Affinity | Require::NodeSelector => confinement.nodes.unwrap_or_default(),
    };
    let mut labels = Vec::new();
    if confinement.by_labels {
        for key in &rules.pod_labels {
            // A Pod with a label that is no valid value is no valid Pod, either.
            if let Some(value) = pod.label(key)
                && is_label_value(&value)
            {
                labels.push((key.clone(), value));
            }
        }
    }
    labels.sort_unstable();
    let selects = rules.require == Require::NodeSelector;
    Managed::requiring(&nodes.architectures(), selects, labels)
}

/// Returns the managed part of the current constraints. `recorded` is the annotation that names it, and `was_selected`
/// whether the node selector had it before an update, rather than the affinity.
fn managed_requirements(
    current: &Scheduling<'_>,
    rules: &PlacementRules,
    recorded: &str,
    applied: AppliedLists,
    was_selected: Option<bool>,
) -> Managed {
    let mut architectures = platforms(recorded).architectures();
    let is_selected = is_managed_selector(current, rules, &architectures, applied, was_selected);
    // What an update has moved from the selector to the affinity is the user's.
    if was_selected == Some(true) && !is_selected {
        architectures.clear();
    }
    let mut labels = Vec::new();
    for key in &rules.pod_labels {
        if let Some(value) = recorded_label(recorded, key) {
            labels.push((key.clone(), value.to_owned()));
        }
    }
    let mut managed = Managed::requiring(&architectures, is_selected, labels);
    // A field manager that applied a required affinity owns at least one term.
    let is_alone = || {
        let terms = current.required();
        terms.is_some_and(|terms| managed.users_terms(terms).is_none())
    };
    if applied.required || applied.required_before && is_alone() {
        managed.required.clear();
    }
    managed
}

/// Returns whether the architecture in the node selector is managed.
fn is_managed_selector(
    current: &Scheduling<'_>,
    rules: &PlacementRules,
    architectures: &[&'static str],
    applied: AppliedLists,
    was_selected: Option<bool>,
) -> bool {
    let [architecture] = architectures else {
        return false;
    };
    if applied.node_selector || current.architecture() != Some(architecture) {
        return false;
    }
    // A constraint that an update has in another place than before is the user's.
    if let Some(was_selected) = was_selected {
        return was_selected;
    }
    // The node selector may be the user's if the affinity has the managed constraint.
    let expression = Expression::is_in(ARCH_KEY, [*architecture]);
    let mut terms = current.terms().iter();
    rules.require == Require::NodeSelector
        || !terms.any(|term| term.match_expressions.contains(&expression))
}

/// Returns whether the node selector of a template, rather than the affinity, has the managed architecture; `None` if
/// neither has anything managed.
pub(super) fn is_selected(template: &Pod<'_>, rules: &PlacementRules) -> Option<bool> {
    let current = Scheduling::of(template)?;
    let recorded = template.annotation(REQUIRED_KEY);
    let managed = managed_requirements(&current, rules, recorded, template.applied, None);
    if managed.without_managed(&current) == current {
        return None;
    }
    Some(managed.selected.is_some())
}

/// Returns the platforms of the architectures that a managed annotation names.
fn platforms(annotation: &str) -> PlatformSet {
    names(annotation)
        .map(PlatformSet::of_architecture)
        .collect()
}

/// Returns the value of a label that a managed annotation names.
fn recorded_label<'r>(recorded: &'r str, key: &str) -> Option<&'r str> {
    for name in names(recorded) {
        if let Some((label, value)) = name.split_once('=')
            && label == key
        {
            return Some(value);
        }
    }
    None
}
