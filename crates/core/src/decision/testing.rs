//! The law of patches, for any Pod that JSON can express: the patch applies, it changes nothing but managed tolerations and
//! annotations, and a second decision changes nothing more. If the Pod is steered, the patch also changes the node affinity
//! and the node selector; `placement::tests::laws` checks for valid Pods that the user's constraints stay.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use k8s_openapi::api::core::v1::Pod as TypedPod;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Decision;
use crate::image::{LookupError, PlatformSet, Support};
use crate::patch;
use crate::pod::{Pod, Purpose, Toleration};
use crate::policy::{ImageSupport, Mode, PlacementRules, Policy, Pool, Preference, Rank, Require};
use crate::review::{self, Subject};
use crate::testing::{platforms, toleration};

/// Outcomes of a lookup.
const OUTCOMES: [Result<Support, LookupError>; 3] = [
    Ok(Support::Index(PlatformSet::ALL)),
    Ok(Support::Single(PlatformSet::EMPTY)),
    Err(LookupError::Timeout),
];

/// A policy with two pools. An image can open both, one or none.
pub fn policy() -> Policy {
    let multi_arch = pool(
        "multi-arch",
        PlatformSet::AMD64_AND_ARM64,
        json!([{"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}]),
    );
    let arm = pool(
        "arm",
        platforms(&["linux/arm64"]),
        json!([
            {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
            {"key": "arm", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ]),
    );
    Policy {
        mode: Mode::Enforce,
        pools: vec![multi_arch, arm],
        placement: PlacementRules::default(),
        overrides: Vec::new(),
        explain: false,
        daemon_sets: false,
        pod_templates: false,
    }
}

fn pool(name: &str, platforms: PlatformSet, tolerations: Value) -> Pool {
    let tolerations = tolerations
        .as_array()
        .into_iter()
        .flatten()
        .map(toleration)
        .collect();
    Pool {
        name: name.into(),
        platforms,
        tolerations,
        share: Pool::ALL,
        ..Pool::default()
    }
}

/// A policy with the first of these pools, which keeps Pods off the platforms that their images lack.
fn steering(require: Require) -> Policy {
    let arm64 = platforms(&["linux/arm64"]);
    let placement = PlacementRules {
        require,
        platforms: platforms(&["linux/amd64", "linux/arm64", "linux/s390x"]),
        when_unknown: platforms(&["linux/amd64"]),
        prefer: vec![Preference {
            platform: arm64,
            weight: 80,
        }],
        pod_labels: vec!["team".into()],
        ..PlacementRules::default()
    };
    let Policy { mut pools, .. } = policy();
    pools.truncate(1);
    if require == Require::NodeSelector {
        let label = ("group".to_owned(), "multi-arch".to_owned());
        pools[0].select.extend([label]);
    }
    Policy {
        pools,
        placement,
        ..policy()
    }
}

/// Panics unless the law holds for the Pod of a review. A patched Pod must still decode as Kubernetes' type if the Pod did.
/// Returns whether the data is such a review.
pub fn review(data: &[u8]) -> bool {
    let Ok(review) = review::decode(data) else {
        return false;
    };
    let Subject::Pod(_) = review.subject else {
        return false;
    };
    // The API server writes each member once.
    let Ok(mut body) = serde_json::from_slice::<Value>(data) else {
        return false;
    };
    let pod = body["request"]["object"].take();
    holds(&policy(), &pod);
    for policy in [Require::Affinity, Require::NodeSelector].map(steering) {
        holds_steered(&policy, &pod);
        holds_steered(
            &Policy {
                explain: true,
                ..policy
            },
            &pod,
        );
    }
    true
}

/// Panics unless the law holds for this Pod, whatever its images support.
pub fn holds(policy: &Policy, pod: &Value) {
    let explaining = Policy {
        explain: true,
        ..policy.clone()
    };
    for policy in [policy, &explaining] {
        holds_under(policy, pod);
    }
}

/// Panics unless the patch applies, the Pod still decodes, and a second pass changes nothing, for any earlier outcome.
fn holds_steered(policy: &Policy, pod: &Value) {
    let is_typed = TypedPod::deserialize(pod).is_ok();
    for first in OUTCOMES {
        let Some((once, _)) = pass(policy, pod, &[first]) else {
            return;
        };
        for then in OUTCOMES {
            let Some((again, _)) = pass(policy, &once, &[then]) else {
                panic!("no Pod: {once}")
            };
            let Some((settled, operations)) = pass(policy, &again, &[then]) else {
                panic!("no Pod: {again}")
            };
            assert_eq!(
                operations, 0,
                "a second pass changed {again} into {settled}"
            );
            if is_typed {
                TypedPod::deserialize(&again).unwrap_or_else(|error| panic!("{error}: {again}"));
            }
        }
    }
}

fn holds_under(policy: &Policy, pod: &Value) {
    let is_typed = TypedPod::deserialize(pod).is_ok();
    for first in OUTCOMES {
        let Some((once, _)) = pass(policy, pod, &[first]) else {
            return;
        };
        assert_eq!(without_managed(policy, &once), without_managed(policy, pod));
        if is_typed {
            TypedPod::deserialize(&once).unwrap_or_else(|error| panic!("{error}: {once}"));
        }
        for then in OUTCOMES {
            let Some((again, operations)) = pass(policy, &once, &[then]) else {
                panic!("no Pod: {once}")
            };
            assert_eq!(
                without_managed(policy, &again),
                without_managed(policy, pod)
            );
            if then == first {
                assert_eq!(operations, 0, "a second pass changed {once} into {again}");
            }
        }
    }
}

/// Decides on a Pod: returns the patched Pod and the number of operations; `None` if the value does not decode as a Pod.
pub fn pass(
    policy: &Policy,
    pod: &Value,
    support: &[Result<Support, LookupError>],
) -> Option<(Value, usize)> {
    let text = pod.to_string();
    let decoded: Pod<'_> = serde_json::from_str(&text).ok()?;
    if Decision::without_images(policy, &decoded).is_some() {
        return Some((pod.clone(), 0));
    }
    let images: Vec<ImageSupport<'_>> = support
        .iter()
        .map(|support| ImageSupport {
            given: "image",
            purpose: Purpose::Run,
            support: *support,
            failure: None,
        })
        .collect();
    let edits = Decision::of(policy, &decoded, Rank::FIRST, &images).edits;
    if edits.is_empty() {
        return Some((pod.clone(), 0));
    }
    Some(applied(&patch::build("", &decoded, &edits), pod))
}

/// Applies the patch as the API server does: returns the patched Pod, and the number of operations.
pub fn applied(patch: &str, pod: &Value) -> (Value, usize) {
    let patch: json_patch::Patch =
        serde_json::from_str(patch).unwrap_or_else(|error| panic!("{error}: {patch}"));
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).unwrap_or_else(|error| panic!("{error}: {pod}"));
    (patched, patch.0.len())
}

/// Returns the Pod without the pools' tolerations and tolerarch's annotations, and without empty members.
pub fn without_managed(policy: &Policy, pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(annotations) = pod
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove("tolerarch.io/pools");
        annotations.remove("tolerarch.io/reason");
    }
    let is_of_pool = |toleration: &Value| {
        let Ok(toleration) = Toleration::deserialize(toleration) else {
            return false;
        };
        let mut of_pools = policy.pools.iter().flat_map(|pool| &pool.tolerations);
        of_pools.any(|of_pool| of_pool.same(&toleration))
    };
    if let Some(tolerations) = pod
        .pointer_mut("/spec/tolerations")
        .and_then(Value::as_array_mut)
    {
        tolerations.retain(|toleration| !is_of_pool(toleration));
    }
    for (parent, member) in [
        ("/spec", "tolerations"),
        ("/metadata", "annotations"),
        ("", "metadata"),
    ] {
        let Some(object) = pod.pointer_mut(parent).and_then(Value::as_object_mut) else {
            continue;
        };
        if object
            .get(member)
            .is_some_and(|value| value.is_null() || *value == json!([]) || *value == json!({}))
        {
            object.remove(member);
        }
    }
    pod
}
