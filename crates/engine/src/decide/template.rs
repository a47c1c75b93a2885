//! The decision on a template. A change to a DaemonSet's template causes a rollout. So additions of an earlier review stay
//! exactly as they are until the user changes the template. An update changes nothing if both templates are equal without
//! managed additions and empty members. Which additions are managed follows from the old template as well, as an update
//! may drop the annotations or the lists.

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
    /// Decides on a template that is created or updated.
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
            previous,
        } = change;
        let is_decided = match kind {
            TemplateKind::DaemonSet => policy.daemon_sets,
            TemplateKind::PodTemplate => policy.pod_templates,
        };
        if !is_decided {
            return Decision::unchanged(Reason::NotApplicable);
        }
        let pod = &template.pod;
        let Some(previous) = previous else {
            return self.decide(policy, namespace, pod, wait).await;
        };
        if let Some(decision) = Decision::without_images(policy, pod) {
            // Managed tolerations whose annotation is gone look like the user's.
            let is_tolerated = decision.reason == Reason::AlreadyTolerated;
            let may_be_managed = is_tolerated && Ownership::is_claimed(&previous.pod);
            if !may_be_managed {
                return decision;
            }
        }
        if let Some(decision) = without_change(policy, template, previous) {
            return decision;
        }
        // No image is decisive: an unknown one preserves managed additions, even if another lacks a platform.
        let usages = pod.images();
        let lookup = self.look_up(policy, namespace, pod, &usages, wait, |_| false);
        let images = lookup.await.images;
        let ownership = Ownership::of_update(pod, &previous.pod, policy);
        let rank = policy.rank(namespace, pod);
        Decision::with_ownership(&ownership, policy, pod, rank, &images)
    }
}

/// Decides on an update that changes only managed additions, which are restored; `None` for any other update.
fn without_change<'a>(
    policy: &'a Policy,
    after: &Template<'_>,
    before: &Template<'_>,
) -> Option<Decision<'a>> {
    // Templates that are too large or nested too deep cannot be compared: they may be equal.
    let incomparable = || Some(Decision::unchanged(Reason::NotApplicable));
    let Some(value) = after.value() else {
        return incomparable();
    };
    let Some(value_before) = before.value() else {
        return incomparable();
    };
    let ownership = Ownership::of_update(&after.pod, &before.pod, policy);
    let Some(users_part) = stripped(policy, &after.pod, &ownership, value.clone()) else {
        return incomparable();
    };
    let ownership = Ownership::of(&before.pod, &policy.pools);
    let users_part_before = stripped(policy, &before.pod, &ownership, value_before.clone());
    let Some(users_part_before) = users_part_before else {
        return incomparable();
    };
    if users_part != users_part_before {
        return None;
    }
    let mut edits = Edits::default();
    for key in ANNOTATIONS {
        let value = before.pod.annotation(key);
        if after.pod.annotation(key) != value {
            edits.annotations.insert(key, value.to_owned());
        }
    }
    // The size of the members, which are added below, needs no check: they fitted before.
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

/// Decides to keep managed additions as they were before. `edits` restores what the update has dropped.
fn keep_additions<'a>(policy: &'a Policy, before: &Pod<'_>, edits: Edits<'a>) -> Decision<'a> {
    if !edits.is_empty() && policy.mode_for(before) == Mode::Observe {
        return Decision::unchanged(Reason::Observed);
    }
    let opened = Ownership::opened(before, &policy.pools);
    let is_steered =
        !before.annotation(REQUIRED_KEY).is_empty() || !before.annotation(PREFERRED_KEY).is_empty();
    let reason = if !opened.is_empty() {
        if edits.is_empty() {
            Reason::AlreadyTolerated
        } else {
            Reason::Tolerated
        }
    } else if is_steered {
        Reason::Placed
    } else {
        Reason::NotApplicable
    };
    Decision {
        opened,
        edits,
        ..Decision::unchanged(reason)
    }
}

/// Returns the template of this Pod without managed additions; `None` if the patch that removes them does not apply.
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
    // Members that were created for managed additions may be empty now.
    prune(&mut template);
    Some(template)
}

/// Removes members that are empty or have only empty members, except within lists. Returns whether nothing is left.
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
