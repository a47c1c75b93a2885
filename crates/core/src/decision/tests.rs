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
    let own =
        json!([{"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}]);
    let pools = vec![pool("multi-arch", &["linux/amd64", "linux/arm64"], own)];
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

fn own() -> Value {
    json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"})
}

fn left(reason: Reason, image: &str) -> Summary {
    (reason, Some(image.into()), vec![], 0, None)
}

#[test]
fn opens_a_pool_only_when_every_image_runs_on_all_of_it() {
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
        assert_eq!(seen, left(Reason::PlatformMissing, "lacking"));
    }
    let seen = decide(
        &policy,
        &bare,
        &[runs("amd", &["linux/amd64"]), runs("arm", &["linux/arm64"])],
    );
    assert_eq!(seen, left(Reason::PlatformMissing, "amd"));
}

#[test]
fn unknown_is_not_no_and_not_yes() {
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
            left(reason, "unknown")
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
        left(Reason::Unknown(LookupError::BadManifest), "chart")
    );
    assert_eq!(
        decide(&multi_arch(), &bare, &[]).0,
        Reason::Unknown(LookupError::Internal)
    );
}

#[test]
fn what_is_known_to_lack_decides_whatever_is_not_known() {
    let bare = pod(json!([]), None);
    let (amd, gone) = (
        runs("amd", &["linux/amd64"]),
        unknown(LookupError::NotFound),
    );
    for images in [
        [gone, amd, both()],
        [amd, both(), gone],
        [both(), gone, amd],
    ] {
        assert_eq!(
            decide(&multi_arch(), &bare, &images),
            left(Reason::PlatformMissing, "amd")
        );
    }
    // Each closes one pool; together they close all.
    let mut policy = two_pools();
    policy.pools[0].platforms = set(&["linux/amd64"]);
    let arm = runs("arm", &["linux/arm64"]);
    assert_eq!(
        decide(&policy, &bare, &[gone, amd, arm]),
        left(Reason::PlatformMissing, "arm")
    );
    // A pool that might be open: that is not known.
    assert_eq!(
        decide(&policy, &bare, &[gone, amd]),
        left(Reason::Unknown(LookupError::NotFound), "unknown")
    );
}

#[test]
fn a_volume_of_a_single_manifest_is_neutral() {
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
    assert_eq!(seen, left(Reason::PlatformMissing, "data"));
}

#[test]
fn opens_each_pool_by_its_own_platforms() {
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
    assert_eq!(seen, left(Reason::PlatformMissing, "amd-only"));
}

#[test]
fn a_second_pass_adds_nothing() {
    let again = pod(
        json!([{"operator": "Exists", "key": "x"}, own()]),
        Some("multi-arch"),
    );
    assert_eq!(
        decide(&multi_arch(), &again, &[both()]),
        (Reason::AlreadyTolerated, None, vec![], 0, None)
    );
}

#[test]
fn a_later_pass_takes_back_exactly_its_own() {
    let policy = multi_arch();
    let sidecar = [both(), runs("sidecar", &["linux/amd64"])];
    let others = json!([{"key": "early", "operator": "Exists"}, own(), {"key": "late", "operator": "Exists"}]);
    let gone: Summary = (
        Reason::Retracted,
        Some("sidecar".into()),
        vec![1],
        0,
        Some(String::new()),
    );
    assert_eq!(
        decide(&policy, &pod(others.clone(), Some("multi-arch")), &sidecar),
        gone
    );
    assert_eq!(
        decide(&policy, &pod(others, None), &sidecar),
        left(Reason::PlatformMissing, "sidecar")
    );
    let twice = pod(json!([own(), own()]), Some("multi-arch"));
    assert_eq!(
        decide(&policy, &twice, &sidecar).2,
        [1],
        "the last of equal ones"
    );
}

#[test]
fn a_later_pass_that_knows_less_opens_less() {
    let again = pod(json!([own()]), Some("multi-arch"));
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
fn takes_back_one_pool_and_keeps_the_other() {
    let arm = json!({"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"});
    let again = pod(json!([own(), arm]), Some("multi-arch,arm"));
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
fn a_hostile_annotation_costs_little() {
    let names: Vec<String> = (0..300_000).map(|i| i.to_string()).collect();
    let long = pod(json!([]), Some(&names.join(",")));
    // A quadratic comparison would take minutes.
    assert_eq!(
        decide(&multi_arch(), &long, &[unknown(LookupError::Denied)]),
        left(Reason::Unknown(LookupError::Denied), "unknown")
    );
}

#[test]
fn pools_of_another_configuration_stay_named() {
    let again = pod(json!([own()]), Some("older,multi-arch"));
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
fn a_toleration_of_the_user_is_never_taken_for_its_own() {
    let broad = pod(json!([{"operator": "Exists"}]), None);
    assert_eq!(
        decide(&multi_arch(), &broad, &[both()]),
        (Reason::AlreadyTolerated, None, vec![], 0, None)
    );
    assert_eq!(
        decide(&multi_arch(), &broad, &[runs("amd", &["linux/amd64"])]),
        left(Reason::PlatformMissing, "amd")
    );
}

/// A numeric comparison (alpha since Kubernetes 1.35) may be off in the scheduler, so the pool's toleration is added
/// beside it.
#[test]
fn a_comparison_of_the_user_neither_covers_the_pool_nor_is_taken_back() {
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
fn what_the_user_had_of_a_pool_stays_when_the_pool_is_taken_back() {
    let mut policy = two_pools();
    let both_keys = json!([own(), {"key": "extra", "operator": "Exists"}]);
    policy.pools[0] = pool("multi-arch", &["linux/amd64", "linux/arm64"], both_keys);
    policy.pools.truncate(1);
    // The user has one of the pool's two: both are added, so that both can be taken back.
    let seen = decide(&policy, &pod(json!([own()]), None), &[both()]);
    assert_eq!((seen.0, seen.3), (Reason::Tolerated, 2));
    let opened = pod(
        json!([own(), own(), {"key": "extra", "operator": "Exists"}]),
        Some("multi-arch"),
    );
    assert_eq!(
        decide(&policy, &opened, &[unknown(LookupError::Denied)]).2,
        [1, 2]
    );
}

#[test]
fn a_lost_toleration_is_given_again_and_a_stale_mark_removed() {
    let marked = pod(json!([]), Some("multi-arch"));
    assert_eq!(
        decide(&multi_arch(), &marked, &[both()]),
        (Reason::Tolerated, None, vec![], 1, None)
    );
    let seen = decide(&multi_arch(), &marked, &[runs("amd", &["linux/amd64"])]);
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
    let again = pod(json!([own()]), Some("multi-arch,arm"));
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
        left(Reason::PlatformMissing, "amd")
    );
}

#[test]
fn decides_without_images_where_nothing_can_be_gained() {
    let unseen = |policy: &Policy, pod: &Value| {
        let text = pod.to_string();
        Decision::without_images(policy, &serde_json::from_str(&text).unwrap())
            .map(|decision| decision.reason)
    };
    let policy = two_pools();
    assert_eq!(
        unseen(&policy, &pod(json!([{"operator": "Exists"}]), None)),
        Some(Reason::AlreadyTolerated)
    );
    assert_eq!(
        unseen(
            &policy,
            &pod(json!([{"operator": "Exists"}]), Some("multi-arch"))
        ),
        None
    );
    assert_eq!(unseen(&policy, &pod(json!([own()]), None)), None);
    assert_eq!(unseen(&policy, &pod(json!([]), None)), None);
    assert_eq!(
        unseen(&policy, &json!({"spec": {"containers": []}})),
        Some(Reason::Malformed)
    );
    assert_eq!(
        unseen(&policy, &json!({"spec": {"nodeName": "n"}})),
        Some(Reason::NodeAssigned)
    );
}

#[test]
fn a_log_line_names_the_first_five_images() {
    let images: Vec<ImageSupport<'static>> = (0..7)
        .map(|at| runs(&format!("app{at}"), &["linux/amd64"]))
        .collect();
    let text = pod(json!([]), None).to_string();
    let pod: Pod<'_> = serde_json::from_str(&text).unwrap();
    let policy = multi_arch();
    let told = |images: &[ImageSupport<'static>]| {
        Decision::of(&policy, &pod, Rank::FIRST, images)
            .blocker_list()
            .map(|list| list.to_string())
    };
    let five = "app0 (lacks linux/arm64), app1 (lacks linux/arm64), app2 (lacks linux/arm64), \
                app3 (lacks linux/arm64), app4 (lacks linux/arm64), and 2 more";
    assert_eq!(told(&images).as_deref(), Some(five));
    let mixed = [both(), unknown(LookupError::NotFound), images[0]];
    assert_eq!(
        told(&mixed).as_deref(),
        Some("unknown (not-found), app0 (lacks linux/arm64)")
    );
    assert_eq!(told(&[both()]), None);
}

#[test]
fn a_pod_says_itself_whether_it_is_changed() {
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
            assert!(warnings.iter().all(|told| {
                told.contains(&format!("\"{value}\" is none of off, observe, enforce"))
            }));
        }
    }
}
