use serde_json::{Value, json};

use super::*;
use crate::image::{LookupError, Support};
use crate::pod::Purpose;
use crate::policy::Pool;
use crate::testing::{platforms as set, toleration};

mod closed;

fn pool(name: &str, platforms: &[&str], tolerations: Value) -> Pool {
    let tolerations = tolerations
        .as_array()
        .unwrap()
        .iter()
        .map(toleration)
        .collect();
    Pool {
        name: name.into(),
        platforms: set(platforms),
        tolerations,
        ..Pool::default()
    }
}

fn multi_arch() -> Policy {
    let platforms = ["linux/amd64", "linux/arm64"];
    let pools = vec![pool("multi-arch", &platforms, json!([managed()]))];
    Policy {
        pools,
        ..Policy::default()
    }
}

fn two_pools() -> Policy {
    let mut policy = multi_arch();
    policy.pools.push(pool(
        "arm",
        &["linux/arm64"],
        json!([{"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}]),
    ));
    policy
}

fn runs(given: &str, platforms: &[&str]) -> ImageSupport<'static> {
    let given = Box::leak(given.to_owned().into_boxed_str());
    ImageSupport {
        given,
        purpose: Purpose::Run,
        support: Ok(Support::Index(set(platforms))),
        failure: None,
    }
}

fn both() -> ImageSupport<'static> {
    runs("both", &["linux/amd64", "linux/arm64"])
}

fn unknown(why: LookupError) -> ImageSupport<'static> {
    ImageSupport {
        given: "unknown",
        purpose: Purpose::Run,
        support: Err(why),
        failure: None,
    }
}

fn pod(tolerations: Value, annotation: Option<&str>) -> Value {
    let annotations = annotation.map(|value| json!({"tolerarch.io/pools": value}));
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"image": "x"}], "tolerations": tolerations}})
}

/// (reason, image, removed places, number added, annotation)
type Summary = (Reason, Option<String>, Vec<usize>, usize, Option<String>);

fn decide(policy: &Policy, pod: &Value, images: &[ImageSupport<'static>]) -> Summary {
    let text = pod.to_string();
    let pod: Pod<'_> = serde_json::from_str(&text).unwrap();
    let Decision {
        reason,
        image,
        edits,
        ..
    } = Decision::of(policy, &pod, Rank::FIRST, images);
    let annotation = edits.annotations.into_iter().next().map(|(_, value)| value);
    (
        reason,
        image.map(str::to_owned),
        edits.remove,
        edits.add.len(),
        annotation,
    )
}

/// The toleration of the pool `multi-arch`.
fn managed() -> Value {
    json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"})
}

fn unchanged(reason: Reason, image: &str) -> Summary {
    (reason, Some(image.into()), vec![], 0, None)
}

#[test]
fn pool_is_open_only_if_every_image_runs_on_all_its_platforms() {
    let policy = multi_arch();
    let opened: Summary = (
        Reason::Tolerated,
        None,
        vec![],
        1,
        Some("multi-arch".into()),
    );
    let bare = pod(json!([]), None);
    assert_eq!(decide(&policy, &bare, &[both()]), opened);
    assert_eq!(
        decide(
            &policy,
            &bare,
            &[
                both(),
                runs("more", &["linux/amd64", "linux/arm64", "linux/s390x"])
            ]
        ),
        opened
    );
    for lacking in [
        &["linux/amd64"][..],
        &["linux/arm64"],
        &[],
        &["linux/s390x"],
    ] {
        let seen = decide(&policy, &bare, &[both(), runs("lacking", lacking)]);
        assert_eq!(seen, unchanged(Reason::PlatformMissing, "lacking"));
    }
    let seen = decide(
        &policy,
        &bare,
        &[runs("amd", &["linux/amd64"]), runs("arm", &["linux/arm64"])],
    );
    assert_eq!(seen, unchanged(Reason::PlatformMissing, "amd"));
}

#[test]
fn unknown_image_leaves_the_pod_unchanged() {
    let bare = pod(json!([]), None);
    for (why, name) in [
        (LookupError::Invalid, "image-invalid"),
        (LookupError::NotFound, "not-found"),
        (LookupError::BudgetExceeded, "budget-exceeded"),
        (LookupError::Internal, "internal"),
    ] {
        let reason = Reason::Unknown(why);
        assert_eq!(reason.as_str(), name);
        assert_eq!(
            decide(&multi_arch(), &bare, &[both(), unknown(why)]),
            unchanged(reason, "unknown")
        );
    }
    let artifact = ImageSupport {
        given: "chart",
        purpose: Purpose::Run,
        support: Ok(Support::Artifact),
        failure: None,
    };
    assert_eq!(
        decide(&multi_arch(), &bare, &[artifact]),
        unchanged(Reason::Unknown(LookupError::BadManifest), "chart")
    );
    assert_eq!(
        decide(&multi_arch(), &bare, &[]).0,
        Reason::Unknown(LookupError::Internal)
    );
}

#[test]
fn image_that_lacks_a_platform_decides_before_an_unknown_one() {
    let bare = pod(json!([]), None);
    let amd = runs("amd", &["linux/amd64"]);
    let missing = unknown(LookupError::NotFound);
    for images in [
        [missing, amd, both()],
        [amd, both(), missing],
        [both(), missing, amd],
    ] {
        assert_eq!(
            decide(&multi_arch(), &bare, &images),
            unchanged(Reason::PlatformMissing, "amd")
        );
    }
    // Each closes one pool; together they close all.
    let mut policy = two_pools();
    policy.pools[0].platforms = set(&["linux/amd64"]);
    let arm = runs("arm", &["linux/arm64"]);
    assert_eq!(
        decide(&policy, &bare, &[missing, amd, arm]),
        unchanged(Reason::PlatformMissing, "arm")
    );
    // The unknown image may open the other pool.
    assert_eq!(
        decide(&policy, &bare, &[missing, amd]),
        unchanged(Reason::Unknown(LookupError::NotFound), "unknown")
    );
}

#[test]
fn mounted_image_closes_a_pool_only_with_an_index() {
    let volume = |support| ImageSupport {
        given: "data",
        purpose: Purpose::Mount,
        support: Ok(support),
        failure: None,
    };
    let amd64 = set(&["linux/amd64"]);
    let bare = pod(json!([]), None);
    for support in [
        Support::Single(amd64),
        Support::Artifact,
        Support::Index(set(&["linux/amd64", "linux/arm64"])),
    ] {
        assert_eq!(
            decide(&multi_arch(), &bare, &[both(), volume(support)]).0,
            Reason::Tolerated
        );
    }
    let seen = decide(
        &multi_arch(),
        &bare,
        &[both(), volume(Support::Index(amd64))],
    );
    assert_eq!(seen, unchanged(Reason::PlatformMissing, "data"));
}

#[test]
fn each_pool_is_opened_by_its_own_platforms() {
    let bare = pod(json!([]), None);
    let seen = decide(&two_pools(), &bare, &[both()]);
    assert_eq!(
        seen,
        (
            Reason::Tolerated,
            None,
            vec![],
            2,
            Some("multi-arch,arm".into())
        )
    );
    let seen = decide(&two_pools(), &bare, &[runs("arm-only", &["linux/arm64"])]);
    assert_eq!(
        seen,
        (Reason::Tolerated, None, vec![], 1, Some("arm".into()))
    );
    let seen = decide(&two_pools(), &bare, &[runs("amd-only", &["linux/amd64"])]);
    assert_eq!(seen, unchanged(Reason::PlatformMissing, "amd-only"));
}

#[test]
fn second_pass_adds_nothing() {
    let again = pod(
        json!([{"operator": "Exists", "key": "x"}, managed()]),
        Some("multi-arch"),
    );
    assert_eq!(
        decide(&multi_arch(), &again, &[both()]),
        (Reason::AlreadyTolerated, None, vec![], 0, None)
    );
}

#[test]
fn later_pass_removes_only_managed_tolerations() {
    let policy = multi_arch();
    let sidecar = [both(), runs("sidecar", &["linux/amd64"])];
    let others = json!([{"key": "early", "operator": "Exists"}, managed(), {"key": "late", "operator": "Exists"}]);
    let retracted: Summary = (
        Reason::Retracted,
        Some("sidecar".into()),
        vec![1],
        0,
        Some(String::new()),
    );
    assert_eq!(
        decide(&policy, &pod(others.clone(), Some("multi-arch")), &sidecar),
        retracted
    );
    assert_eq!(
        decide(&policy, &pod(others, None), &sidecar),
        unchanged(Reason::PlatformMissing, "sidecar")
    );
    let twice = pod(json!([managed(), managed()]), Some("multi-arch"));
    assert_eq!(
        decide(&policy, &twice, &sidecar).2,
        [1],
        "the last of equal tolerations"
    );
}

#[test]
fn later_pass_with_an_unknown_image_removes_the_toleration() {
    let again = pod(json!([managed()]), Some("multi-arch"));
    let seen = decide(
        &multi_arch(),
        &again,
        &[both(), unknown(LookupError::Timeout)],
    );
    assert_eq!(
        seen,
        (
            Reason::Retracted,
            Some("unknown".into()),
            vec![0],
            0,
            Some(String::new())
        )
    );
}

#[test]
fn closed_pool_is_removed_and_open_pool_stays() {
    let arm = json!({"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"});
    let again = pod(json!([managed(), arm]), Some("multi-arch,arm"));
    let seen = decide(&two_pools(), &again, &[runs("arm-only", &["linux/arm64"])]);
    assert_eq!(
        seen,
        (
            Reason::Retracted,
            Some("arm-only".into()),
            vec![0],
            0,
            Some("arm".into())
        )
    );
}

#[test]
fn long_annotation_costs_little() {
    let names: Vec<String> = (0..300_000).map(|i| i.to_string()).collect();
    let long = pod(json!([]), Some(&names.join(",")));
    // A quadratic comparison would take minutes.
    assert_eq!(
        decide(&multi_arch(), &long, &[unknown(LookupError::Denied)]),
        unchanged(Reason::Unknown(LookupError::Denied), "unknown")
    );
}

#[test]
fn annotation_keeps_pools_of_another_configuration() {
    let again = pod(json!([managed()]), Some("older,multi-arch"));
    let seen = decide(&multi_arch(), &again, &[runs("amd", &["linux/amd64"])]);
    assert_eq!(
        seen,
        (
            Reason::Retracted,
            Some("amd".into()),
            vec![0],
            0,
            Some("older".into())
        )
    );
}

#[test]
fn user_toleration_is_never_removed() {
    let broad = pod(json!([{"operator": "Exists"}]), None);
    assert_eq!(
        decide(&multi_arch(), &broad, &[both()]),
        (Reason::AlreadyTolerated, None, vec![], 0, None)
    );
    assert_eq!(
        decide(&multi_arch(), &broad, &[runs("amd", &["linux/amd64"])]),
        unchanged(Reason::PlatformMissing, "amd")
    );
}

/// A numeric comparison (alpha since Kubernetes 1.35) may be off in the scheduler, so the pool's toleration is added
/// beside it.
#[test]
fn numeric_toleration_of_the_user_does_not_cover_the_pool() {
    let mut policy = multi_arch();
    let exact = json!({"key": "sla", "operator": "Equal", "value": "950", "effect": "NoSchedule"});
    policy.pools[0].tolerations = vec![toleration(&exact)];
    for operator in ["Gt", "Lt"] {
        let users =
            json!({"key": "sla", "operator": operator, "value": "900", "effect": "NoSchedule"});
        let seen = decide(&policy, &pod(json!([users]), None), &[both()]);
        assert_eq!((seen.0, seen.3), (Reason::Tolerated, 1), "{operator}");
        let opened = pod(json!([users, exact, users]), Some("multi-arch"));
        let amd64 = runs("amd", &["linux/amd64"]);
        assert_eq!(decide(&policy, &opened, &[amd64]).2, [1], "{operator}");
    }
}

#[test]
fn users_part_of_a_pools_tolerations_stays_after_removal() {
    let mut policy = two_pools();
    let both_keys = json!([managed(), {"key": "extra", "operator": "Exists"}]);
    policy.pools[0] = pool("multi-arch", &["linux/amd64", "linux/arm64"], both_keys);
    policy.pools.truncate(1);
    // The user has one of the pool's two tolerations. Both are added, so that both can be removed.
    let seen = decide(&policy, &pod(json!([managed()]), None), &[both()]);
    assert_eq!((seen.0, seen.3), (Reason::Tolerated, 2));
    let opened = pod(
        json!([managed(), managed(), {"key": "extra", "operator": "Exists"}]),
        Some("multi-arch"),
    );
    assert_eq!(
        decide(&policy, &opened, &[unknown(LookupError::Denied)]).2,
        [1, 2]
    );
}

#[test]
fn lost_toleration_is_added_again_or_its_annotation_removed() {
    let annotated = pod(json!([]), Some("multi-arch"));
    assert_eq!(
        decide(&multi_arch(), &annotated, &[both()]),
        (Reason::Tolerated, None, vec![], 1, None)
    );
    let seen = decide(&multi_arch(), &annotated, &[runs("amd", &["linux/amd64"])]);
    assert_eq!(
        seen,
        (
            Reason::Retracted,
            Some("amd".into()),
            vec![],
            0,
            Some(String::new())
        )
    );
}

#[test]
fn shared_tolerations_are_added_once() {
    let mut policy = two_pools();
    policy.pools[1].tolerations = policy.pools[0].tolerations.clone();
    let seen = decide(&policy, &pod(json!(null), None), &[both()]);
    assert_eq!(
        seen,
        (
            Reason::Tolerated,
            None,
            vec![],
            1,
            Some("multi-arch,arm".into())
        )
    );
    let again = pod(json!([managed()]), Some("multi-arch,arm"));
    let seen = decide(&policy, &again, &[runs("arm-only", &["linux/arm64"])]);
    assert_eq!((seen.2, seen.3, seen.4), (vec![], 0, Some("arm".into())));
}

#[test]
fn observing_changes_nothing() {
    let mut policy = multi_arch();
    policy.mode = Mode::Observe;
    let bare = pod(json!([]), None);
    assert_eq!(
        decide(&policy, &bare, &[both()]),
        (Reason::Observed, None, vec![], 0, None)
    );
    assert_eq!(
        decide(&policy, &bare, &[runs("amd", &["linux/amd64"])]),
        unchanged(Reason::PlatformMissing, "amd")
    );
}

#[test]
fn images_are_ignored_if_they_cannot_matter() {
    let without_images = |policy: &Policy, pod: &Value| {
        let text = pod.to_string();
        let pod: Pod<'_> = serde_json::from_str(&text).unwrap();
        Some(Decision::without_images(policy, &pod)?.reason)
    };
    let policy = two_pools();
    assert_eq!(
        without_images(&policy, &pod(json!([{"operator": "Exists"}]), None)),
        Some(Reason::AlreadyTolerated)
    );
    assert_eq!(
        without_images(
            &policy,
            &pod(json!([{"operator": "Exists"}]), Some("multi-arch"))
        ),
        None
    );
    assert_eq!(
        without_images(&policy, &pod(json!([managed()]), None)),
        None
    );
    assert_eq!(without_images(&policy, &pod(json!([]), None)), None);
    assert_eq!(
        without_images(&policy, &json!({"spec": {"containers": []}})),
        Some(Reason::Malformed)
    );
    assert_eq!(
        without_images(&policy, &json!({"spec": {"nodeName": "n"}})),
        Some(Reason::NodeAssigned)
    );
}

#[test]
fn log_line_names_the_first_five_images() {
    let images: Vec<ImageSupport<'static>> = (0..7)
        .map(|at| runs(&format!("app{at}"), &["linux/amd64"]))
        .collect();
    let text = pod(json!([]), None).to_string();
    let pod: Pod<'_> = serde_json::from_str(&text).unwrap();
    let policy = multi_arch();
    let listed = |images: &[ImageSupport<'static>]| {
        Decision::of(&policy, &pod, Rank::FIRST, images).blocker_list()
    };
    let five = "app0 (lacks linux/arm64), app1 (lacks linux/arm64), app2 (lacks linux/arm64), \
                app3 (lacks linux/arm64), app4 (lacks linux/arm64), and 2 more";
    assert_eq!(listed(&images).as_deref(), Some(five));
    let mixed = [both(), unknown(LookupError::NotFound), images[0]];
    assert_eq!(
        listed(&mixed).as_deref(),
        Some("unknown (not-found), app0 (lacks linux/arm64)")
    );
    assert_eq!(listed(&[both()]), None);
}

#[test]
fn mode_of_a_pod_overrides_the_policy() {
    let with = |kind: &str, value: &str| json!({"metadata": {kind: {"tolerarch.io/mode": value}}, "spec": {"containers": [{"image": "x"}]}});
    let mut observing = multi_arch();
    observing.mode = Mode::Observe;
    for kind in ["labels", "annotations"] {
        assert_eq!(
            decide(&observing, &with(kind, "enforce"), &[both()]).0,
            Reason::Tolerated
        );
        let seen = decide(&multi_arch(), &with(kind, "observe"), &[both()]);
        assert_eq!((seen.0, seen.3), (Reason::Observed, 0));
        for (value, warned) in [("off", false), ("On", true), ("", true)] {
            let text = with(kind, value).to_string();
            let pod: Pod<'_> = serde_json::from_str(&text).unwrap();
            let policy = multi_arch();
            let Decision {
                reason, warnings, ..
            } = Decision::without_images(&policy, &pod).unwrap();
            assert_eq!(
                (reason, !warnings.is_empty()),
                (Reason::OptedOut, warned),
                "{value}"
            );
            let text = format!("\"{value}\" is none of off, observe, enforce");
            assert!(warnings.iter().all(|warning| warning.contains(&text)));
        }
    }
}
