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
fn each_pool_has_its_blockers_with_their_causes() {
    let policy = two_pools();
    let images = [
        both(),
        runs("amd", &["linux/amd64"]),
        unknown(LookupError::Denied),
        runs("none", &[]),
    ];
    let verdicts = policy.verdicts(Rank::FIRST, &images);
    let mut blockers: Vec<Vec<Blocker<'_>>> = Vec::new();
    for pool in &policy.pools {
        let of_pool = images.iter().filter_map(|it| it.blocker(pool.platforms));
        blockers.push(of_pool.collect());
    }
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
fn pool_is_open_if_all_images_share_its_platforms() {
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
fn each_blocker_is_listed_once_with_all_platforms_it_lacks() {
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
    // A pool for arm64 is open: the Pod is eligible.
    assert_eq!(blockers(&[runs("arm", &["linux/arm64"])]), []);
    assert_eq!(blockers(&[both()]), []);
}

#[test]
fn failed_platform_is_another_cause_than_a_missing_one() {
    let since = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
    let failed = |platforms: &[&str]| {
        Some(Failure {
            platforms: set(platforms),
            since,
        })
    };
    let failed_image = ImageSupport {
        failure: failed(&["linux/arm64", "linux/s390x"]),
        ..both()
    };
    let wants = |image: &ImageSupport<'static>, platforms: &[&str]| {
        image.blocker(set(platforms)).map(|b| b.cause)
    };
    assert_eq!(wants(&failed_image, &["linux/amd64"]), None);
    let cause = wants(&failed_image, &["linux/amd64", "linux/arm64"]).unwrap();
    assert_eq!(
        cause.to_string(),
        "failed on linux/arm64 at 2027-01-15T08:00:00Z"
    );
    assert_eq!(
        (cause.lacks(), Reason::from(cause)),
        (Some(set(&["linux/arm64"])), Reason::FailedThere)
    );
    // The image lacks one of the platforms apart from the failure.
    let more = wants(&failed_image, &["linux/arm64", "linux/ppc64le"]).unwrap();
    assert_eq!(more, Cause::Lacks(set(&["linux/arm64", "linux/ppc64le"])));
    let volume = ImageSupport {
        purpose: Purpose::Mount,
        ..failed_image
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
    let (policy, images) = (two_pools(), [failed_image]);
    let verdicts = policy.verdicts(Rank::FIRST, &images);
    assert!(policy.pools.iter().all(|pool| !verdicts.is_open(pool)));
    assert_eq!(verdicts.shared(), Some(set(&["linux/amd64"])));
    assert_eq!(
        verdicts.decisive().map(|blocker| blocker.cause.into()),
        Some(Reason::FailedThere)
    );
}

#[test]
fn unknown_platform_closes_only_pools_with_that_platform() {
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
    // The image lacks nothing for certain, so the Pod's nodes are unknown.
    assert_eq!(partly(&amd64, &arm64).nodes(), Err(LookupError::Throttled));
}

#[test]
fn only_an_index_binds_a_volume_to_architectures() {
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
