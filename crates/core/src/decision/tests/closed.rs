//! The annotation with the reason, and the limits on a Pod's size.

use super::*;
use crate::policy::Require;

/// (reason, outcome, value of the annotation after the pass)
fn explained(
    policy: &Policy,
    pod: &mut Value,
    images: &[ImageSupport<'static>],
) -> (Reason, &'static str, Value) {
    let given = pod.clone();
    let decoded = Pod::of_value(&given).unwrap();
    let decision = Decision::without_images(policy, &decoded)
        .unwrap_or_else(|| Decision::of(policy, &decoded, Rank::FIRST, images));
    if !decision.edits.is_empty() {
        let patch = crate::patch::build("", &decoded, &decision.edits);
        let (patched, _) = crate::decision::testing::applied(&patch, pod);
        *pod = patched;
    }
    (
        decision.reason,
        decision.outcome(),
        pod["metadata"]["annotations"]["tolerarch.io/reason"].clone(),
    )
}

#[test]
fn ineligible_pod_has_the_reason_until_it_is_eligible() {
    let policy = Policy {
        explain: true,
        ..multi_arch()
    };
    let amd = runs("amd", &["linux/amd64"]);
    let mut bare = pod(json!([]), None);
    let lacks = json!("platform-missing: amd lacks linux/arm64");
    for _ in 0..2 {
        let seen = explained(&policy, &mut bare, &[both(), amd]);
        assert_eq!(seen, (Reason::PlatformMissing, "unchanged", lacks.clone()));
    }
    let seen = explained(
        &policy,
        &mut bare,
        &[
            amd,
            unknown(LookupError::Denied),
            runs("arm", &["linux/arm64"]),
        ],
    );
    assert_eq!(
        seen.2,
        json!("platform-missing: amd lacks linux/arm64 (and 2 more images)")
    );
    // The Pod becomes eligible, also for a replica that does not explain, and then ineligible again.
    let mut opened = bare.clone();
    assert_eq!(
        explained(&multi_arch(), &mut opened, &[both()]),
        (Reason::Tolerated, "tolerated", Value::Null)
    );
    assert_eq!(
        explained(&policy, &mut bare, &[both()]),
        (Reason::Tolerated, "tolerated", Value::Null)
    );
    let seen = explained(&policy, &mut bare, &[unknown(LookupError::NotFound)]);
    assert_eq!(
        seen,
        (Reason::Retracted, "retracted", json!("not-found: unknown"))
    );
    // Now the user's tolerations cover the pool.
    bare["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    assert_eq!(
        explained(&policy, &mut bare, &[both()]),
        (Reason::AlreadyTolerated, "unchanged", Value::Null)
    );
}

#[test]
fn forged_annotation_does_not_change_the_reason() {
    let mut policy = Policy {
        explain: true,
        ..multi_arch()
    };
    policy.placement.require = Require::NodeSelector;
    let images = [runs("amd", &["linux/amd64"]), runs("arm", &["linux/arm64"])];
    let mut forged = pod(json!([]), None);
    forged["metadata"]["annotations"] = json!({"tolerarch.io/required": "amd64"});
    forged["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": "amd64"});
    let (reason, _, first) = explained(&policy, &mut forged, &images);
    assert_eq!(reason, Reason::Retracted);
    let second = explained(&policy, &mut forged, &images);
    assert_eq!(second, (Reason::NoCommonPlatform, "unchanged", first));
}

#[test]
fn reason_is_written_only_if_the_policy_explains_and_enforces() {
    let amd = runs("amd", &["linux/amd64"]);
    let explain = |policy: Policy| Policy {
        explain: true,
        ..policy
    };
    let observing = Policy {
        mode: Mode::Observe,
        ..multi_arch()
    };
    let mut skipped = pod(json!([]), None);
    skipped["spec"]["nodeName"] = json!("n");
    for (policy, pod) in [
        (multi_arch(), pod(json!([]), None)),
        (explain(observing), pod(json!([]), None)),
        (explain(multi_arch()), skipped),
    ] {
        let mut same = pod.clone();
        assert_eq!(explained(&policy, &mut same, &[amd]).2, Value::Null);
        assert_eq!(same, pod);
    }
}

#[test]
fn reason_is_left_out_near_the_limit_of_annotations() {
    let policy = Policy {
        explain: true,
        ..multi_arch()
    };
    let amd = [runs("amd", &["linux/amd64"])];
    let mut full = pod(json!([]), None);
    full["metadata"]["annotations"] = json!({"a": "x".repeat((256 << 10) - 40)});
    assert_eq!(
        explained(&policy, &mut full, &amd),
        (Reason::NoRoom, "unchanged", Value::Null)
    );
    // A removal always fits.
    let mut opened = pod(json!([managed()]), Some("multi-arch"));
    opened["metadata"]["annotations"]["a"] = json!("x".repeat((256 << 10) - 60));
    assert_eq!(
        explained(&policy, &mut opened, &amd),
        (Reason::Retracted, "retracted", Value::Null)
    );
    assert_eq!(opened["spec"]["tolerations"], json!([]));
}

#[test]
fn toleration_is_removed_without_room_for_a_requirement() {
    let mut policy = multi_arch();
    policy.placement.require = Require::Affinity;
    let amd = [runs("amd", &["linux/amd64"])];
    let mut opened = pod(json!([managed()]), Some("multi-arch"));
    let room = (256 << 10) - "a".len() - "tolerarch.io/pools".len() - "multi-arch".len();
    opened["metadata"]["annotations"]["a"] = json!("x".repeat(room));
    let seen = explained(&policy, &mut opened, &amd);
    assert_eq!(seen, (Reason::Retracted, "retracted", Value::Null));
    assert_eq!(opened["spec"]["tolerations"], json!([]));
    // The removal has left room for the requirement.
    assert_eq!(explained(&policy, &mut opened, &amd).0, Reason::Placed);
}

/// The API server checks the size after webhooks, so a webhook may get a Pod with a million names of pools.
#[test]
fn too_long_annotations_leave_the_pod_unchanged() {
    let mut long = pod(json!([managed()]), Some("multi-arch"));
    long["metadata"]["annotations"]["tolerarch.io/pools"] = json!("a,".repeat(128 << 10));
    let long = Pod::of_value(&long).unwrap();
    let decision = Decision::without_images(&multi_arch(), &long).unwrap();
    assert_eq!(
        (decision.reason, decision.edits.is_empty()),
        (Reason::NoRoom, true)
    );
}

#[test]
fn pool_is_closed_to_workloads_outside_its_share() {
    let mut policy = Policy {
        explain: true,
        ..multi_arch()
    };
    policy.pools[0].share = 0;
    let mut bare = pod(json!([]), None);
    let text = json!("not-in-share: the pool multi-arch is open to 0 % of the workloads");
    let seen = explained(&policy, &mut bare, &[both()]);
    assert_eq!(seen, (Reason::NotInShare, "unchanged", text.clone()));
    let decided = decide(&policy, &pod(json!([]), None), &[both()]);
    assert_eq!(
        (decided.0, decided.1, decided.3),
        (Reason::NotInShare, None, 0)
    );
    // A share changes no reason of Pods that are ineligible, or that tolerate the pool already.
    let seen = explained(
        &policy,
        &mut pod(json!([]), None),
        &[runs("amd", &["linux/amd64"])],
    );
    assert_eq!(seen.0, Reason::PlatformMissing);
    let mut tolerant = pod(json!([managed()]), None);
    assert_eq!(
        explained(&policy, &mut tolerant, &[both()]).0,
        Reason::AlreadyTolerated
    );
    // A smaller share removes the additions.
    let mut opened = pod(json!([managed()]), Some("multi-arch"));
    assert_eq!(
        explained(&policy, &mut opened, &[both()]),
        (Reason::Retracted, "retracted", text)
    );
    // Another pool may be open.
    let mut two = two_pools();
    two.pools[0].share = 0;
    assert_eq!(
        decide(&two, &pod(json!([]), None), &[both()]).4.as_deref(),
        Some("arm")
    );
}
