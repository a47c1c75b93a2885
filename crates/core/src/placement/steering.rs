//! On which nodes a Pod is to run: what it asks for by node selector and node affinity, after this pass.

use std::collections::HashMap;

use super::preference::{self, Preferred, WeightedTerms};
use super::requirement::{Requirement, Terms, architectures};
use super::{AnnotationEdit, SpecEdits, names};
use crate::image::PlatformSet;
use crate::pod::{
    ARCH_KEY, Affinity, Applied, AppliedLists, NodeSelector, PREFERRED_KEY, Pod, PodPreference, REQUIRED_KEY,
    Scheduling, Term, Text, Texts, WeightedTerm, is_label_value, names_architecture,
};
use crate::policy::{NodeFit, PlacementRules, Pool, Require, Verdicts};

/// Preferences of an annotation that are looked for; we write one for each architecture and pool.
const MARKED: usize = 128;

/// Where a Pod is steered.
#[derive(Debug, Default)]
pub(super) struct Steering {
    pub(super) spec: SpecEdits,
    pub(super) annotations: Vec<AnnotationEdit>,
    /// Whether something of ours steers the Pod after this pass.
    pub(super) stands: bool,
    /// Whether the Pod's images have no platform in common, so that it is not steered.
    pub(super) is_nowhere: bool,
}

/// Steers a Pod to which these pools are opened by what its images mean for the cluster's nodes.
pub(super) fn steer(
    pod: &Pod<'_>,
    before: Option<&Pod<'_>>,
    verdicts: &Verdicts<'_, '_>,
    opened: &[&Pool],
) -> Steering {
    let (rules, preference) = (verdicts.rules(), pod.preference());
    // The controller of a DaemonSet chooses the nodes: a preference would say nothing to it.
    let may_prefer = !pod.is_of_daemon_set();
    let prefers = !rules.prefer.is_empty()
        || verdicts.pools().iter().any(|pool| pool.prefer.is_some())
        || matches!(preference, PodPreference::None | PodPreference::Architecture(_));
    let prefers = prefers && may_prefer;
    if !rules.requires() && !prefers {
        return Steering::default();
    }
    let Fit { nodes, labels } = match before.and_then(|before| Fit::kept(before, verdicts)) {
        _ if !rules.requires() => Fit::UNKNOWN,
        Some(kept) => kept,
        None => Fit::of(verdicts),
    };
    let is_nowhere = nodes == NodeFit::Nowhere && rules.require != Require::Off;
    let mut wanted = Wanted::of(pod, rules, nodes, labels);
    if !is_nowhere && may_prefer {
        wanted.preferred = preference::possible(preference, verdicts, opened);
    }
    // What is off is not looked for, either.
    let required = if rules.requires() { pod.annotation(REQUIRED_KEY) } else { "" };
    let preferred = if prefers { pod.annotation(PREFERRED_KEY) } else { "" };
    let marked = match before.filter(|_| rules.requires() && names(required).next().is_none()) {
        Some(before) => before.annotation(REQUIRED_KEY),
        None => required,
    };
    let is_marked = names(marked).chain(names(preferred)).next().is_some();
    if wanted.is_empty() && !is_marked && !is_nowhere {
        return Steering::default();
    }
    let Some(scheduling) = pod.scheduling() else { return Steering::default() };
    let scheduling_before = before.and_then(Pod::scheduling);
    let was = scheduling_before.as_ref().zip(before).map(|(scheduling, before)| {
        Marked::of(scheduling, rules, before.annotation(REQUIRED_KEY), before.applied, None)
    });
    let own = Marked::of(&scheduling, rules, marked, pod.applied, was.as_ref());
    let marked = names(preferred).filter_map(|name| Preferred::named(name, verdicts.pools()));
    let weighted = WeightedTerms::of(&scheduling, marked.take(MARKED));
    let is_free = wanted.restrict(&scheduling, &own, &weighted);

    let mut annotations = Vec::new();
    annotations.extend(record(REQUIRED_KEY, required, wanted.required_text()));
    annotations.extend(record(PREFERRED_KEY, preferred, wanted.preferred_text()));
    let stands = !wanted.is_empty();
    let (selected, requirements) = wanted.requirements(rules.require);
    let selector = selector(&scheduling, own.is_selector, selected);
    let (affinity, adds) =
        affinity(&scheduling, own.terms.edit(&requirements), weighted.edit(&wanted.preferred));
    let adds = adds || selected.is_some() && selector != scheduling.selector;
    let Ok(spec) = SpecEdits::of(&scheduling, &Scheduling { selector, affinity }, adds) else {
        return Steering::default();
    };
    Steering { spec, annotations, stands, is_nowhere: is_free && is_nowhere }
}

/// What the images allow to require.
struct Fit {
    nodes: NodeFit,
    /// Whether the Pod's labels are required of its nodes.
    labels: bool,
}

impl Fit {
    const UNKNOWN: Self = Self { nodes: NodeFit::Unknown, labels: false };

    fn of(verdicts: &Verdicts<'_, '_>) -> Self {
        let nodes = verdicts.node_fit();
        let labels = match verdicts.rules().require {
            Require::Off => verdicts.shared.is_some(),
            _ => matches!(nodes, NodeFit::Everywhere | NodeFit::Only(_)),
        };
        Self { nodes, labels }
    }

    /// What a template required before an update, if the known images run there and not every image is known.
    fn kept(before: &Pod<'_>, verdicts: &Verdicts<'_, '_>) -> Option<Self> {
        let possible = verdicts.possible()?;
        let written = before.annotation(REQUIRED_KEY);
        let labels = names(written).any(|name| name.contains('='));
        let marked =
            names(written).map(PlatformSet::of_architecture).fold(PlatformSet::EMPTY, PlatformSet::union);
        if marked.is_empty() {
            return Some(Self { nodes: NodeFit::Unknown, labels });
        }
        let lacking = verdicts.rules().platforms.intersection(marked).difference(possible);
        let kept = marked.without_architectures_of(lacking);
        (!kept.is_empty()).then_some(Self { nodes: NodeFit::Only(kept), labels })
    }
}

/// What is wanted of a Pod's nodes.
#[derive(Default)]
struct Wanted {
    architectures: Vec<&'static str>,
    /// Labels and their values, sorted.
    labels: Vec<(String, String)>,
    preferred: Vec<Preferred>,
}

impl Wanted {
    /// What the images allow to require, whatever the Pod says of its nodes.
    fn of(pod: &Pod<'_>, rules: &PlacementRules, nodes: NodeFit, labels: bool) -> Self {
        let architectures = match nodes {
            NodeFit::Only(platforms) if rules.require != Require::Off => platforms.architectures(),
            _ => Vec::new(),
        };
        // What is no value of a label is no valid Pod, either.
        let label = |key: &String| Some((key.clone(), pod.label(key).filter(|value| is_label_value(value))?));
        let mut labels: Vec<_> = rules.pod_labels.iter().filter(|_| labels).filter_map(label).collect();
        labels.sort_unstable();
        Self { architectures, labels, preferred: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.architectures.is_empty() && self.labels.is_empty() && self.preferred.is_empty()
    }

    /// Leaves what does not contradict the Pod's own words; tells whether its architecture is ours to say.
    fn restrict(
        &mut self,
        scheduling: &Scheduling<'_>,
        own: &Marked<'_>,
        weighted: &WeightedTerms<'_>,
    ) -> bool {
        let users_selector =
            scheduling.selector.iter().flat_map(|selector| selector.keys()).map(Text::as_str);
        let mut keys =
            users_selector.filter(|&key| !(own.is_selector && key == ARCH_KEY)).chain(own.terms.keys());
        if keys.any(names_architecture) || own.terms.match_nothing(scheduling) {
            *self = Self::default();
            return false;
        }
        let selects =
            |key: &str| scheduling.selector.as_ref().is_some_and(|selector| selector.get(key).is_some());
        self.labels.retain(|(key, _)| !selects(key) && !own.terms.keys().any(|other| other == key));
        self.preferred.retain(|new| !weighted.contradict(new));
        true
    }

    /// As the annotation says it: architectures, then labels.
    fn required_text(&self) -> String {
        let mut text = String::new();
        for name in &self.architectures {
            push_name(&mut text, &[name]);
        }
        for (key, value) in &self.labels {
            push_name(&mut text, &[key, "=", value]);
        }
        text
    }

    fn preferred_text(&self) -> String {
        let mut text = String::new();
        for own in &self.preferred {
            push_name(&mut text, &[&own.name]);
        }
        text
    }

    /// What the node selector gets, and what the node affinity.
    fn requirements(&self, require: Require) -> (Option<&'static str>, Vec<Requirement>) {
        let labels = self.labels.iter().map(|(key, value)| Requirement::of_label(key, value));
        let (selected, several) = match (require, &*self.architectures) {
            (_, []) => (None, None),
            (Require::NodeSelector, [one]) => (Some(*one), None),
            (_, several) => (None, Some(Requirement::of_architectures(several))),
        };
        (selected, several.into_iter().chain(labels).collect())
    }
}

/// What an earlier pass required.
struct Marked<'p> {
    /// Whether the architecture in the node selector is ours.
    is_selector: bool,
    terms: Terms<'p>,
}

impl<'p> Marked<'p> {
    /// `written` is the annotation that says so, and `was` the same before an update.
    fn of(
        scheduling: &'p Scheduling<'p>,
        rules: &PlacementRules,
        written: &str,
        applied: AppliedLists,
        was: Option<&Marked<'_>>,
    ) -> Self {
        let marked = architectures(names(written));
        let mut labels: HashMap<&str, &str> = HashMap::new();
        for (key, value) in names(written).filter_map(|name| name.split_once('=')) {
            if rules.pod_labels.iter().any(|own| own == key) {
                labels.entry(key).or_insert(value);
            }
        }
        let labels = rules.pod_labels.iter().filter_map(|key| labels.get_key_value(&**key));
        let labels: Vec<_> = labels.map(|(key, value)| Requirement::of_label(key, value)).collect();
        let mut all: Vec<_> =
            (!marked.is_empty()).then(|| Requirement::of_architectures(&marked)).into_iter().collect();
        let selected =
            scheduling.selector.as_ref().and_then(|selector| selector.get(ARCH_KEY)?.as_str().into());
        let is_selector = applied.node_selector != Applied::Now
            && matches!(&*marked, [one] if selected == Some(one))
            && match was {
                // An update that has the same in another place has it from the user.
                Some(was) if was.has_own() => was.is_selector,
                // The node selector's may be the user's where the affinity has ours.
                _ => rules.require == Require::NodeSelector || !Terms::of(scheduling, all.clone()).has_own(),
            };
        if is_selector || was.is_some_and(|was| was.is_selector) {
            all.clear();
        }
        all.extend(labels);
        let mut terms = Terms::of(scheduling, all);
        // Who applies a required affinity applies a term: where all look like ours, that one is among them.
        let is_alone = applied.required == Applied::Before && terms.are_ours();
        if applied.required == Applied::Now || is_alone {
            terms = Terms::of(scheduling, Vec::new());
        }
        Self { is_selector, terms }
    }

    fn has_own(&self) -> bool {
        self.is_selector || self.terms.has_own()
    }
}

/// The node selector with this architecture instead of ours.
fn selector<'p>(there: &Scheduling<'p>, is_own: bool, wanted: Option<&'static str>) -> Option<Texts<'p>> {
    let mut selector = there.selector.clone().unwrap_or_default();
    if wanted == selector.get(ARCH_KEY).map(Text::as_str).filter(|_| is_own) {
        return there.selector.clone();
    }
    selector.remove(ARCH_KEY);
    selector.extend(wanted.map(|wanted| (ARCH_KEY.into(), wanted.into())));
    (selector != Texts::default()).then_some(selector)
}

/// The affinity with these terms, and whether something is added.
fn affinity<'p>(
    there: &Scheduling<'p>,
    (terms, requires): (Vec<Term<'p>>, bool),
    (preferred, prefers): (Option<Vec<WeightedTerm<'p>>>, bool),
) -> (Option<Affinity<'p>>, bool) {
    let is_required = |before: &NodeSelector<'_>| before.terms() == terms;
    let required = match there.required().filter(|before| is_required(before)) {
        Some(before) => Some(before.clone()),
        None => (!terms.is_empty()).then(|| NodeSelector::new(terms)),
    };
    if required.as_ref() == there.required() && preferred.as_deref() == there.preferred() {
        return (there.affinity.clone(), false);
    }
    (there.affinity.clone().unwrap_or_default().with(required, preferred), requires || prefers)
}

fn push_name(text: &mut String, parts: &[&str]) {
    if !text.is_empty() {
        text.push(',');
    }
    parts.iter().for_each(|part| text.push_str(part));
}

/// How to write down what is ours; `None` where it stands there.
fn record(key: &'static str, written: &str, value: String) -> Option<AnnotationEdit> {
    (!names(written).eq(names(&value))).then_some(AnnotationEdit { key, value })
}
