use super::*;
use crate::testing::platforms as set;

fn two_pools() -> Policy {
    let pool = |platforms: &[&str]| Pool {
        name: platforms.join(" "),
        platforms: set(platforms),
        tolerations: Vec::new(),
        ..Pool::default()
    };
    let pools = vec![
        pool(&["linux/amd64", "linux/arm64"]),
        pool(&["linux/arm64"]),
    ];
    Policy {
        pools,
        ..Policy::default()
    }
}

fn runs(given: &'static str, platforms: &[&str]) -> ImageSupport<'static> {
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

#[test]
fn names_every_image_that_keeps_a_pool_closed_and_why() {
    let policy = two_pools();
    let images = [
        both(),
        runs("amd", &["linux/amd64"]),
        unknown(LookupError::Denied),
        runs("none", &[]),
    ];
    let verdicts = policy.verdicts(Rank::FIRST, &images);
    let blockers: Vec<Vec<Blocker<'_>>> = policy
        .pools
        .iter()
        .map(|pool| {
            images
                .iter()
                .filter_map(|image| image.blocker(pool.platforms))
                .collect()
        })
        .collect();
    let lacks = |image, platforms: &[&str]| Blocker {
        image,
        cause: Cause::Lacks(set(platforms)),
    };
    let denied = Blocker {
        image: "unknown",
        cause: Cause::Unknown(LookupError::Denied),
    };
    let arm = ["linux/arm64"];
    assert_eq!(
        blockers,
        [
            [
                lacks("amd", &arm),
                denied,
                lacks("none", &["linux/amd64", "linux/arm64"])
            ],
            [lacks("amd", &arm), denied, lacks("none", &arm)],
        ]
    );
    assert!(policy.pools.iter().all(|pool| !verdicts.is_open(pool)));
    assert_eq!(verdicts.decisive(), Some(lacks("amd", &arm)));
}

#[test]
fn a_pool_is_open_to_what_all_images_share() {
    let policy = two_pools();
    let of = |images: &[ImageSupport<'static>]| {
        let verdicts = policy.verdicts(Rank::FIRST, images);
        let open: Vec<bool> = policy
            .pools
            .iter()
            .map(|pool| verdicts.is_open(pool))
            .collect();
        (verdicts.shared(), [open[0], open[1]])
    };
    let arm = runs("arm", &["linux/arm64", "linux/s390x"]);
    assert_eq!(
        of(&[both()]),
        (Some(set(&["linux/amd64", "linux/arm64"])), [true, true])
    );
    assert_eq!(
        of(&[both(), arm]),
        (Some(set(&["linux/arm64"])), [false, true])
    );
    assert_eq!(
        of(&[runs("amd", &["linux/amd64"]), arm]),
        (Some(PlatformSet::EMPTY), [false, false])
    );
    assert_eq!(
        of(&[both(), unknown(LookupError::Timeout)]),
        (None, [false, false])
    );
    assert_eq!(of(&[]), (None, [false, false]));
}

#[test]
fn one_image_may_close_every_pool() {
    let policy = two_pools();
    assert!(policy.is_closed_by(&Pod::default(), &unknown(LookupError::Denied)));
    assert!(policy.is_closed_by(&Pod::default(), &runs("amd", &["linux/amd64"])));
    assert!(!policy.is_closed_by(&Pod::default(), &runs("arm", &["linux/arm64"])));
    assert!(!policy.is_closed_by(&Pod::default(), &both()));
}

#[test]
fn every_image_that_keeps_a_pod_closed_is_told_once_with_all_that_it_lacks() {
    let policy = two_pools();
    let blockers =
        |images: &[ImageSupport<'static>]| policy.verdicts(Rank::FIRST, images).blockers();
    let lacks = |image, platforms: &[&str]| Blocker {
        image,
        cause: Cause::Lacks(set(platforms)),
    };
    let denied = Blocker {
        image: "unknown",
        cause: Cause::Unknown(LookupError::Denied),
    };
    let (amd, none) = (runs("amd", &["linux/amd64"]), runs("none", &[]));
    assert_eq!(
        blockers(&[both(), amd, unknown(LookupError::Denied), amd, none]),
        [
            lacks("amd", &["linux/arm64"]),
            denied,
            lacks("none", &["linux/amd64", "linux/arm64"])
        ]
    );
    // A pool for arm64 is open: the Pod is not closed.
    assert_eq!(blockers(&[runs("arm", &["linux/arm64"])]), []);
    assert_eq!(blockers(&[both()]), []);
}

#[test]
fn what_failed_is_told_apart_from_what_is_lacking() {
    let since = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
    let failed = |platforms: &[&str]| {
        Some(Failure {
            platforms: set(platforms),
            since,
        })
    };
    let lies = ImageSupport {
        failure: failed(&["linux/arm64", "linux/s390x"]),
        ..both()
    };
    let wants = |image: &ImageSupport<'static>, platforms: &[&str]| {
        image.blocker(set(platforms)).map(|b| b.cause)
    };
    assert_eq!(wants(&lies, &["linux/amd64"]), None);
    let cause = wants(&lies, &["linux/amd64", "linux/arm64"]).unwrap();
    assert_eq!(
        cause.to_string(),
        "failed on linux/arm64 at 2027-01-15T08:00:00Z"
    );
    assert_eq!(
        (cause.lacks(), Reason::from(cause)),
        (Some(set(&["linux/arm64"])), Reason::FailedThere)
    );
    // Some of it is lacking whether or not it failed.
    let more = wants(&lies, &["linux/arm64", "linux/ppc64le"]).unwrap();
    assert_eq!(more, Cause::Lacks(set(&["linux/arm64", "linux/ppc64le"])));
    let volume = ImageSupport {
        purpose: Purpose::Mount,
        ..lies
    };
    assert_eq!(wants(&volume, &["linux/arm64"]), None);
    let unknown = ImageSupport {
        failure: failed(&["linux/arm64"]),
        ..unknown(LookupError::Denied)
    };
    assert_eq!(
        wants(&unknown, &["linux/arm64"]),
        Some(Cause::Unknown(LookupError::Denied))
    );
    let (policy, images) = (two_pools(), [lies]);
    let verdicts = policy.verdicts(Rank::FIRST, &images);
    assert!(policy.pools.iter().all(|pool| !verdicts.is_open(pool)));
    assert_eq!(verdicts.shared(), Some(set(&["linux/amd64"])));
    assert_eq!(
        verdicts.decisive().map(|blocker| blocker.cause.into()),
        Some(Reason::FailedThere)
    );
}

#[test]
fn what_is_unknown_of_one_platform_closes_the_pools_that_have_it() {
    let policy = two_pools();
    let partly = |runs: &[&str], unknown: &[&str]| ImageSupport {
        support: Ok(Support::Partial {
            runs: set(runs),
            unknown: set(unknown),
            why: LookupError::Throttled,
        }),
        ..both()
    };
    let of = |image: ImageSupport<'static>| {
        let images = [both(), image];
        let verdicts = policy.verdicts(Rank::FIRST, &images);
        let open: Vec<bool> = policy
            .pools
            .iter()
            .map(|pool| verdicts.is_open(pool))
            .collect();
        (open, verdicts.decisive().map(|blocker| blocker.cause))
    };
    let throttled = Some(Cause::Unknown(LookupError::Throttled));
    let (amd64, arm64) = (["linux/amd64"], ["linux/arm64"]);
    assert_eq!(of(partly(&arm64, &amd64)), (vec![false, true], throttled));
    assert_eq!(of(partly(&amd64, &arm64)), (vec![false, false], throttled));
    assert_eq!(
        of(partly(&[], &amd64)),
        (vec![false, false], Some(Cause::Lacks(set(&arm64))))
    );
    assert_eq!(
        of(partly(&["linux/amd64", "linux/arm64"], &["linux/s390x"])).0,
        [true, true]
    );
    // It is not known to lack anything: nothing is required of the Pod's nodes.
    assert_eq!(partly(&amd64, &arm64).nodes(), Err(LookupError::Throttled));
}

#[test]
fn a_volume_is_bound_to_architectures_by_an_index_only() {
    let amd64 = set(&["linux/amd64"]);
    let nodes = |purpose, support| {
        ImageSupport {
            purpose,
            support: Ok(support),
            ..both()
        }
        .nodes()
    };
    assert_eq!(nodes(Purpose::Mount, Support::Index(amd64)), Ok(amd64));
    assert_eq!(
        nodes(Purpose::Mount, Support::Single(amd64)),
        Ok(PlatformSet::ALL)
    );
    assert_eq!(
        nodes(Purpose::Mount, Support::Artifact),
        Ok(PlatformSet::ALL)
    );
    assert_eq!(nodes(Purpose::Run, Support::Single(amd64)), Ok(amd64));
    assert_eq!(
        nodes(Purpose::Run, Support::Artifact),
        Err(LookupError::BadManifest)
    );
}
