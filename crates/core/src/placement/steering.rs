//! The constraints and preferences of a Pod for nodes: its node selector and node affinity after this pass.

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

/// The steering of a Pod after this pass, and the edits that lead to it.
pub(super) struct Steering<'p> {
    /// Set if a managed constraint or preference steers the Pod after this pass.
    pub(super) is_steered: bool,
    /// Set if the edits add a constraint or preference, rather than only remove some.
    pub(super) is_addition: bool,
    /// Set if the Pod would be steered if its images had a platform in common.
    pub(super) lacks_common_platform: bool,
    /// The node selector, if it changes.
    pub(super) selector: Option<Texts<'p>>,
    /// The affinity, if it changes.
    pub(super) affinity: Option<Affinity<'p>>,
    /// Annotations to set, or to remove if the text is empty.
    pub(super) annotations: BTreeMap<&'static str, String>,
}

/// The nodes to which a Pod's images confine the Pod.
#[derive(Clone, Copy, Default)]
struct Confinement {
    /// The platforms of these nodes; `None` if any node of the cluster will do, or if the nodes are unknown.
    nodes: Option<PlatformSet>,
    /// Set if the nodes must have the Pod's labels as well.
    by_labels: bool,
}

/// The managed annotations of the features that are on. Additions of a feature that is off stay unnoticed.
#[derive(Default)]
struct Annotations<'p> {
    required: &'p str,
    preferred: &'p str,
    /// Requirements that may be managed: those that the Pod's annotation names, or the annotation before an update.
    recorded: &'p str,
    /// Preferences that may be managed, from the same source.
    recorded_preferred: &'p str,
}

/// Steers the Pod; `None` if there is nothing to add and nothing managed to remove, or if the Pod's constraints cannot be
/// parsed.
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
    let lacks_common_platform = confinement.nodes == Some(PlatformSet::EMPTY);
    if prefers {
        annotations.preferred = pod.annotation(PREFERRED_KEY);
        annotations.recorded_preferred = ownership.preferred;
        if !lacks_common_platform {
            desired.preferred = desired_preferences(pod, ownership, verdicts, opened);
        }
    }
    let is_recorded = has_names(annotations.recorded) || has_names(annotations.recorded_preferred);
    if desired == Managed::default() && !is_recorded && !lacks_common_platform {
        return None;
    }

    let current = Scheduling::of(pod)?;
    let mut was_selected = None;
    if let Some(lasting) = &ownership.lasting {
        was_selected = lasting.is_selected;
    }
    let recorded = annotations.recorded;
    let mut managed = managed_requirements(&current, rules, recorded, pod.applied, was_selected);
    managed.preferred = managed_preferences(annotations.recorded_preferred, &verdicts.policy.pools);
    let users = managed.without_managed(&current);
    let may_require = desired.restrict(&users);
    let after = desired.with_managed(users);

    let mut steering = Steering {
        is_steered: desired != Managed::default(),
        is_addition: desired.is_added(&current, &after),
        lacks_common_platform: lacks_common_platform && may_require,
        affinity: None,
        selector: None,
        annotations: annotations.edits(&desired),
    };
    if has_other_terms(&current, &after) {
        steering.affinity = Some(after.affinity);
    }
    if current.selector != after.selector {
        steering.selector = Some(after.selector);
    }
    Some(steering)
}

impl Annotations<'_> {
    /// Returns the edits after which the annotations name the desired additions.
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

/// Returns the preferences that follow from the images, or the lasting ones of an earlier pass if an image is unknown.
fn desired_preferences(
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Vec<Preferred> {
    if let Some(lasting) = &ownership.lasting
        && let Some(possible) = verdicts.possible_if_unknown()
    {
        // A Pod that sets its preference to `none` may still prefer a pool.
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

/// Returns whether preferences are managed for this Pod: the policy has some, or the Pod sets a preference or `none`.
pub fn prefers(pod: &Pod<'_>, policy: &Policy) -> bool {
    // The controller of a DaemonSet chooses the nodes, and ignores preferences.
    if pod.is_of_daemon_set() {
        return false;
    }
    match pod.preference() {
        PodPreference::None | PodPreference::Architecture(_) => return true,
        PodPreference::Unset | PodPreference::Unknown(_) => {}
    }
    !policy.placement.prefer.is_empty() || policy.pools.iter().any(|pool| pool.prefer.is_some())
}

/// Returns whether the requirements or the preferences differ. The order of preferences does not matter.
fn has_other_terms(before: &Scheduling<'_>, after: &Scheduling<'_>) -> bool {
    let before = &before.affinity.nodes;
    let after = &after.affinity.nodes;
    if before.required != after.required || before.preferred.len() != after.preferred.len() {
        return true;
    }
    let mut preferred = after.preferred.iter();
    preferred.any(|term| !before.preferred.contains(term))
}

/// Returns the nodes to which the images confine the Pod, or those of an earlier pass if its requirements stay.
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
        Some(nodes) if nodes == rules.platforms => Confinement {
            nodes: None,
            by_labels: !nodes.is_empty(),
        },
        Some(nodes) => Confinement {
            nodes: Some(nodes),
            by_labels: !nodes.is_empty(),
        },
    }
}

/// Returns the requirements of an earlier pass that stay because an image is unknown. `None` if no image is unknown, or if
/// the known images run on none of the required nodes.
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

/// Returns the requirements that follow from the images. The user's constraints on nodes are not considered.
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
            // The API server refuses a Pod with an invalid label value anyway.
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

/// Returns the managed part of the current constraints, which the annotation `recorded` names. `was_selected` tells
/// whether, before an update, the node selector had that part rather than the affinity.
fn managed_requirements(
    current: &Scheduling<'_>,
    rules: &PlacementRules,
    recorded: &str,
    applied: AppliedLists,
    was_selected: Option<bool>,
) -> Managed {
    let mut architectures = platforms(recorded).architectures();
    let is_selected = is_managed_selector(current, rules, &architectures, applied, was_selected);
    // A constraint that an update has moved from the selector to the affinity is the user's.
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
    let has_only_managed_terms = || match current.required() {
        Some(terms) => managed.users_terms(terms).is_none(),
        None => false,
    };
    if applied.required || applied.required_before && has_only_managed_terms() {
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
    // A constraint that was not in this place before an update is the user's.
    if let Some(was_selected) = was_selected {
        return was_selected;
    }
    if rules.require == Require::NodeSelector {
        return true;
    }
    // The node selector is the user's if the affinity has the managed constraint.
    let expression = Expression::is_in(ARCH_KEY, [*architecture]);
    let mut terms = current.terms().iter();
    !terms.any(|term| term.match_expressions.contains(&expression))
}

/// Returns whether the node selector of a template, rather than the affinity, has the managed architecture; `None` if
/// neither has a managed constraint.
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
    let mut platforms = PlatformSet::EMPTY;
    for name in names(annotation) {
        platforms |= PlatformSet::of_architecture(name);
    }
    platforms
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
