//! What becomes of a DaemonSet. A change of its template is a rollout, so what an earlier review wrote into the template stays
//! as it was, to the byte, until the user changes something of the template; and an update is known to keep the template
//! by comparing both without what is ours.

use serde_json::{Map, Value};

use super::{Decision, Snapshot, Wait};
use crate::patch;
use crate::placement::{self, AnnotationEdit, Edits, Ownership, Restored};
use crate::pod::{ANNOTATIONS, POOLS_KEY, REQUIRED_KEY, Template, Toleration};
use crate::policy::{Cause, Mode, Policy, Rank};
use crate::reason::Reason;
use crate::review::DaemonSet;

/// Members of a Pod's spec that can hold something of ours.
const MEMBERS: [&str; 3] = ["tolerations", "nodeSelector", "affinity"];

impl Snapshot {
    /// Decides by this policy on a DaemonSet that is created or updated in this namespace.
    pub async fn decide_daemon_set<'a>(
        &'a self,
        policy: &'a Policy,
        namespace: &str,
        set: &'a DaemonSet<'_>,
        wait: Wait<'_>,
    ) -> Decision<'a> {
        if !policy.daemon_sets {
            return Decision::unchanged(Reason::NotApplicable);
        }
        let DaemonSet { template, before } = set;
        let Some(before) = before else { return self.decide(policy, namespace, &template.pod, wait).await };
        if let Some(decision) = Decision::without_images(policy, &template.pod) {
            return decision;
        }
        // What cannot be compared may be what it was.
        let Some(update) = Update::of(policy, template, before) else {
            return Decision::unchanged(Reason::NotApplicable);
        };
        if update.is_unchanged {
            return update.kept(policy, None);
        }
        let decision = self.decide(policy, namespace, &template.pod, wait).await;
        match unknown(&decision) {
            Some(reason) => Decision { image: decision.image, ..update.kept(policy, Some(reason)) },
            None => decision,
        }
    }
}

/// Why it is not known what to do, if it is not.
fn unknown(decision: &Decision<'_>) -> Option<Reason> {
    let mut blockers = decision.blockers.iter();
    let decisive = blockers.clone().find(|blocker| Some(blocker.image) == decision.image);
    if decisive.is_some_and(|blocker| matches!(blocker.cause, Cause::Lacks(_))) {
        return None;
    }
    let unknown = blockers.find(|blocker| matches!(blocker.cause, Cause::Unknown(_)))?;
    Some(Reason::from(*unknown))
}

/// What an update does to a template.
struct Update<'a> {
    before: &'a Template<'a>,
    /// Whether nothing differs but what is ours.
    is_unchanged: bool,
    /// What brings back what is ours, as far as the user has not changed it as well.
    edits: Edits<'a>,
}

impl<'a> Update<'a> {
    /// `None` where the templates are too large or too deep to be compared.
    fn of(policy: &'a Policy, after: &'a Template<'_>, before: &'a Template<'a>) -> Option<Self> {
        let (there, was) = (after.value()?, before.value()?);
        let (own, old) = (stripped(policy, after, there.clone())?, stripped(policy, before, was.clone())?);
        let mut edits = Edits::default();
        // The mark of what is required is for both members, so they come back together or not at all.
        let steers_same =
            ["nodeSelector", "affinity"].iter().all(|&name| own["spec"][name] == old["spec"][name]);
        let is_same = |name: &str| match name {
            "tolerations" => own["spec"][name] == old["spec"][name],
            _ => steers_same,
        };
        let restored = |name: &str| {
            let differs = is_same(name) && there["spec"][name] != was["spec"][name];
            differs.then(|| was["spec"][name].clone())
        };
        let restored = MEMBERS.map(restored);
        if !is_same("tolerations") {
            edits.add = missing(policy, after, before);
        }
        let mut annotate = |key: &'static str| {
            let annotation = |template: &Value| {
                template["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
            };
            let value = annotation(&was);
            if annotation(&there) != value {
                edits.annotations.push(AnnotationEdit { key, value });
            }
        };
        let is_unchanged = own == old;
        if is_unchanged {
            ANNOTATIONS.into_iter().for_each(annotate);
        } else {
            annotate(POOLS_KEY);
            if steers_same {
                annotate(REQUIRED_KEY);
            }
        }
        if restored.iter().any(Option::is_some) {
            let [tolerations, node_selector, affinity] = restored;
            edits.restored = Some(Box::new(Restored { tolerations, node_selector, affinity }));
        }
        if !edits.fit(&after.pod) {
            edits = Edits::default();
        }
        Some(Self { before, is_unchanged, edits })
    }

    /// The decision to have it as it was, as nothing has changed or it is not known what to do.
    fn kept(self, policy: &'a Policy, unknown: Option<Reason>) -> Decision<'a> {
        let Self { before: Template { pod, .. }, edits, .. } = self;
        if !edits.is_empty() && policy.mode_for(pod) == Mode::Observe {
            return Decision::unchanged(Reason::Observed);
        }
        let opened = Ownership::opened(pod, &policy.pools);
        let reason = match unknown {
            Some(reason) if edits.is_empty() => reason,
            _ if !opened.is_empty() && edits.is_empty() => Reason::AlreadyTolerated,
            _ if !opened.is_empty() => Reason::Tolerated,
            _ if !pod.required_annotation().is_empty() => Reason::Placed,
            unknown => unknown.unwrap_or(Reason::NotApplicable),
        };
        Decision { opened, edits, ..Decision::unchanged(reason) }
    }
}

/// The template without what is ours.
fn stripped(policy: &Policy, Template { pod, .. }: &Template<'_>, mut template: Value) -> Option<Value> {
    let edits = placement::place(pod, policy.verdicts(Rank::FIRST, &[])).edits;
    let patch = patch::build("", pod, &edits);
    if !patch.is_empty() {
        let patch: json_patch::Patch = serde_json::from_str(&patch).ok()?;
        json_patch::patch(&mut template, &patch).ok()?;
    }
    if let Some(annotations) = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !ANNOTATIONS.contains(&&**key));
    }
    // What was created for ours may have stayed, empty.
    let mut prune = |path: &str, name: &str| {
        if let Some(object) = template.pointer_mut(path).and_then(Value::as_object_mut) {
            prune(object, name);
        }
    };
    prune("/metadata", "annotations");
    prune("", "metadata");
    MEMBERS.into_iter().for_each(|name| prune("/spec", name));
    Some(template)
}

/// Removes a member that is empty, or has only what is.
fn prune(object: &mut Map<String, Value>, name: &str) {
    if let Some(Value::Object(inner)) = object.get_mut(name) {
        let names: Vec<String> = inner.keys().cloned().collect();
        names.iter().for_each(|name| prune(inner, name));
    }
    let is_empty = match object.get(name) {
        Some(Value::Object(inner)) => inner.is_empty(),
        Some(Value::Array(inner)) => inner.is_empty(),
        Some(value) => value.is_null(),
        None => false,
    };
    if is_empty {
        object.remove(name);
    }
}

/// The tolerations of ours that were there before.
fn missing<'a>(
    policy: &'a Policy,
    after: &Template<'_>,
    before: &Template<'_>,
) -> Vec<&'a Toleration<'static>> {
    let opened = Ownership::opened(&before.pod, &policy.pools);
    let mut own = placement::distinct(opened.into_iter());
    own.retain(|own| !after.pod.tolerations().iter().any(|there| there.same(own)));
    own
}

#[cfg(test)]
mod tests;
