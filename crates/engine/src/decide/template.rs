//! Decides on a template. A change of a DaemonSet's is a rollout, so additions of an earlier review stay unchanged, to
//! the byte, until the user changes the template. An update counts as unchanged if both templates are equal without
//! managed additions and empty members. The old template also says which additions these are: an update may drop the
//! annotations or the lists.

use serde_json::Value;

use super::{Snapshot, Wait};
use tolerarch_core::decision::Decision;
use tolerarch_core::patch;
use tolerarch_core::placement::{self, Edits, Ownership};
use tolerarch_core::pod::{ANNOTATIONS, PREFERRED_KEY, Pod, REQUIRED_KEY};
use tolerarch_core::policy::{Mode, Policy, Rank};
use tolerarch_core::reason::Reason;
use tolerarch_core::review::{Template, TemplateChange, TemplateKind};

/// Members of a Pod's spec that can hold managed additions.
const MEMBERS: [&str; 3] = [TOLERATIONS, "nodeSelector", "affinity"];
const TOLERATIONS: &str = "tolerations";

impl Snapshot {
    pub async fn decide_template<'a>(
        &'a self,
        policy: &'a Policy,
        namespace: &str,
        change: &'a TemplateChange<'_>,
        wait: Wait<'_>,
    ) -> Decision<'a> {
        let TemplateChange {
            kind,
            template,
            before,
        } = change;
        let is_decided = match kind {
            TemplateKind::DaemonSet => policy.daemon_sets,
            TemplateKind::PodTemplate => policy.pod_templates,
        };
        if !is_decided {
            return Decision::unchanged(Reason::NotApplicable);
        }
        let pod = &template.pod;
        let Some(before) = before else {
            return self.decide(policy, namespace, pod, wait).await;
        };
        if let Some(decision) = Decision::without_images(policy, pod) {
            // Managed tolerations look like the user's if their annotation is gone.
            let may_be_managed =
                decision.reason == Reason::AlreadyTolerated && Ownership::is_claimed(&before.pod);
            if !may_be_managed {
                return decision;
            }
        }
        if let Some(decision) = without_change(policy, template, before) {
            return decision;
        }
        // Every image is awaited: an unknown one preserves managed additions, whatever the others lack.
        let usages = pod.images();
        let looked_up = self.look_up(policy, namespace, pod, &usages, wait, |_| false);
        let images = looked_up.await.images;
        let ownership = Ownership::of_update(pod, &before.pod, policy);
        let rank = policy.rank(namespace, pod);
        Decision::with_ownership(&ownership, policy, pod, rank, &images)
    }
}

/// Decides on an update that changes nothing but managed additions, which are restored; `None` for any other.
fn without_change<'a>(
    policy: &'a Policy,
    after: &Template<'_>,
    before: &Template<'_>,
) -> Option<Decision<'a>> {
    // Templates that are too large, or nested too deep, cannot be compared: they may be equal.
    let incomparable = || Some(Decision::unchanged(Reason::NotApplicable));
    let Some(value) = after.value() else {
        return incomparable();
    };
    let Some(value_before) = before.value() else {
        return incomparable();
    };
    let ownership = Ownership::of_update(&after.pod, &before.pod, policy);
    let Some(users) = stripped(policy, &after.pod, &ownership, value.clone()) else {
        return incomparable();
    };
    let ownership = Ownership::of(&before.pod, &policy.pools);
    let users_before = stripped(policy, &before.pod, &ownership, value_before.clone());
    let Some(users_before) = users_before else {
        return incomparable();
    };
    if users != users_before {
        return None;
    }
    let mut edits = Edits::default();
    for key in ANNOTATIONS {
        let value = before.pod.annotation(key);
        if after.pod.annotation(key) != value {
            edits.annotations.insert(key, value.to_owned());
        }
    }
    // The members fitted before, so that their size needs no check.
    if !edits.fit(&after.pod) {
        return Some(keep_additions(policy, &before.pod, Edits::default()));
    }
    for name in MEMBERS {
        let member_before = &value_before["spec"][name];
        if value["spec"][name] != *member_before {
            edits.spec.insert(name, member_before.to_string());
            edits.steers |= name != TOLERATIONS;
        }
    }
    Some(keep_additions(policy, &before.pod, edits))
}

/// Decides to keep managed additions as they were before.
fn keep_additions<'a>(policy: &'a Policy, before: &Pod<'_>, edits: Edits<'a>) -> Decision<'a> {
    if !edits.is_empty() && policy.mode_for(before) == Mode::Observe {
        return Decision::unchanged(Reason::Observed);
    }
    let opened = Ownership::opened(before, &policy.pools);
    let steering = [REQUIRED_KEY, PREFERRED_KEY];
    let is_steered = steering
        .iter()
        .any(|key| !before.annotation(key).is_empty());
    let reason = if opened.is_empty() && !is_steered {
        Reason::NotApplicable
    } else if opened.is_empty() {
        Reason::Placed
    } else if edits.is_empty() {
        Reason::AlreadyTolerated
    } else {
        Reason::Tolerated
    };
    Decision {
        opened,
        edits,
        ..Decision::unchanged(reason)
    }
}

/// Returns the template of this Pod without managed additions.
fn stripped(
    policy: &Policy,
    pod: &Pod<'_>,
    ownership: &Ownership<'_>,
    mut template: Value,
) -> Option<Value> {
    let verdicts = policy.verdicts(Rank::FIRST, &[]);
    let edits = placement::place(pod, ownership, verdicts).edits;
    let patch = patch::build("", pod, &edits);
    if !patch.is_empty() {
        let patch: json_patch::Patch = serde_json::from_str(&patch).ok()?;
        json_patch::patch(&mut template, &patch).ok()?;
    }
    let annotations = template.pointer_mut("/metadata/annotations");
    if let Some(Value::Object(annotations)) = annotations {
        annotations.retain(|key, _| !ANNOTATIONS.contains(&&**key));
    }
    // Members that were created for managed additions may be left, empty.
    prune(&mut template);
    Some(template)
}

/// Removes members that are empty, or have only empty members, outside of lists. Returns whether nothing is left.
fn prune(value: &mut Value) -> bool {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !prune(member));
            members.is_empty()
        }
        Value::Array(items) => items.is_empty(),
        other => other.is_null(),
    }
}

#[cfg(test)]
mod tests;
