use std::time::Duration;

use super::*;
use tolerarch_core::image::PlatformSet;
use tolerarch_support::metrics::Metrics;

const ANONYMOUS: CredentialId = CredentialId::ANONYMOUS;
const BOTH: Support = Support::Index(PlatformSet::AMD64_AND_ARM64);
const NONE: Support = Support::Index(PlatformSet::EMPTY);
const SECOND: Duration = Duration::from_secs(1);

fn cache() -> Cache {
    let settings = CacheSettings {
        tag: 100 * SECOND,
        stale_while_revalidate: 50 * SECOND,
        stale_if_error: 1000 * SECOND,
        not_found: 20 * SECOND,
        throttled: 20 * SECOND,
        timeout: 10 * SECOND,
        ..CacheSettings::default()
    };
    Cache::new(
        settings,
        ResolverMetrics::register(&Metrics::new([]).unwrap()).unwrap(),
    )
}

fn image(text: &str) -> ImageRef {
    text.parse().unwrap()
}

/// Records a failed lookup, and returns what Pods get now.
fn failed(cache: &Cache, image: &ImageRef, error: &Error) -> Outcome {
    cache.fail(image, ANONYMOUS, error);
    match cache.get(image, ANONYMOUS) {
        Cached::Fresh(outcome) => outcome,
        Cached::Stale { support, .. } => Ok(support),
        other => panic!("{other:?}"),
    }
}

fn resolved(content: &[u8], support: Support) -> ResolvedImage {
    ResolvedImage {
        digest: Digest::of_content(content),
        support,
        lacks_parts: false,
    }
}

#[tokio::test(start_paused = true)]
async fn tag_is_fresh_then_stale_then_expired_then_gone() {
    let cache = cache();
    let app = image("a.b/app:1");
    assert_eq!(cache.get(&app, ANONYMOUS), Cached::Nothing);
    cache.store(&app, ANONYMOUS, &resolved(b"1", BOTH));
    for (after, expected) in [
        (0, Cached::Fresh(Ok(BOTH))),
        (89, Cached::Fresh(Ok(BOTH))),
        (
            11,
            Cached::Stale {
                support: BOTH,
                due: true,
            },
        ),
        (
            39,
            Cached::Stale {
                support: BOTH,
                due: true,
            },
        ),
        (11, Cached::Expired(BOTH)),
        (939, Cached::Expired(BOTH)),
        (11, Cached::Nothing),
    ] {
        tokio::time::advance(after * SECOND).await;
        assert_eq!(cache.get(&app, ANONYMOUS), expected, "after {after} s more");
    }
}

#[tokio::test(start_paused = true)]
async fn digest_never_expires_and_stays_in_its_repository() {
    let cache = cache();
    let digest = testregistry::sha256(b"1");
    let pinned = image(&format!("a.b/app@{digest}"));
    cache.store(&pinned, ANONYMOUS, &resolved(b"1", BOTH));
    tokio::time::advance(1_000_000 * SECOND).await;
    assert_eq!(cache.get(&pinned, ANONYMOUS), Cached::Fresh(Ok(BOTH)));
    assert_eq!(
        cache.get(&image(&format!("a.b/other@{digest}")), ANONYMOUS),
        Cached::Nothing
    );
    assert_eq!(
        cache.get(&image(&format!("c.d/app@{digest}")), ANONYMOUS),
        Cached::Nothing
    );
    // A tag that points to known content needs no second request.
    assert_eq!(
        cache.confirm(&image("a.b/app:1"), ANONYMOUS, Digest::of_content(b"1")),
        Some(BOTH)
    );
    assert_eq!(
        cache.confirm(&image("a.b/app:1"), ANONYMOUS, Digest::of_content(b"2")),
        None
    );
    let long = image(&format!("a.b/app@{}", testregistry::sha512(b"1")));
    cache.store(&long, ANONYMOUS, &resolved(b"1", BOTH));
    assert_eq!(cache.get(&long, ANONYMOUS), Cached::Fresh(Ok(BOTH)));
}

#[tokio::test(start_paused = true)]
async fn failures_have_lifetimes_by_kind() {
    let cache = cache();
    for (name, error, why, life) in [
        ("a.b/1", Error::NotFound, LookupError::NotFound, 20),
        ("a.b/2", Error::Timeout, LookupError::Timeout, 10),
        ("a.b/3", Error::Throttled(None), LookupError::Throttled, 20),
        (
            "a.b/4",
            Error::Throttled(Some(5 * SECOND)),
            LookupError::Throttled,
            20,
        ),
        (
            "a.b/5",
            Error::Throttled(Some(500 * SECOND)),
            LookupError::Throttled,
            500,
        ),
        (
            "a.b/6",
            Error::Throttled(Some(1_000_000 * SECOND)),
            LookupError::Throttled,
            3600,
        ),
    ] {
        let app = image(name);
        assert_eq!(failed(&cache, &app, &error), Err(why));
        tokio::time::advance(life * SECOND * 8 / 10).await;
        assert_eq!(
            cache.get(&app, ANONYMOUS),
            Cached::Fresh(Err(why)),
            "{name}"
        );
        tokio::time::advance(life * SECOND * 3 / 10).await;
        assert_eq!(cache.get(&app, ANONYMOUS), Cached::Nothing, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn good_answer_outlives_failures_but_not_refusals() {
    let cache = cache();
    let app = image("a.b/app:1");
    cache.store(&app, ANONYMOUS, &resolved(b"1", BOTH));
    tokio::time::advance(200 * SECOND).await;
    assert_eq!(cache.get(&app, ANONYMOUS), Cached::Expired(BOTH));
    // The registry failed a moment ago: no Pod waits, and the registry is not queried again at once.
    assert_eq!(failed(&cache, &app, &Error::Timeout), Ok(BOTH));
    assert_eq!(
        cache.get(&app, ANONYMOUS),
        Cached::Stale {
            support: BOTH,
            due: false
        }
    );
    tokio::time::advance(11 * SECOND).await;
    assert_eq!(
        cache.get(&app, ANONYMOUS),
        Cached::Stale {
            support: BOTH,
            due: true
        }
    );
    // The failure was long ago: the registry may work again, so a Pod waits.
    tokio::time::advance(100 * SECOND).await;
    assert_eq!(cache.get(&app, ANONYMOUS), Cached::Expired(BOTH));
    for error in [
        Error::Unreachable(String::new()),
        Error::Throttled(None),
        Error::Unexpected(String::new()),
        Error::NotFound,
    ] {
        assert_eq!(failed(&cache, &app, &error), Ok(BOTH));
    }
    // A denial or a bad manifest is an answer.
    assert_eq!(
        failed(&cache, &app, &Error::Denied("".into())),
        Err(LookupError::Denied)
    );
    assert_eq!(
        failed(&cache, &app, &Error::Timeout),
        Err(LookupError::Timeout)
    );
}

#[tokio::test(start_paused = true)]
async fn good_answer_expires_at_its_limit() {
    let cache = cache();
    let app = image("a.b/app:1");
    cache.store(&app, ANONYMOUS, &resolved(b"1", BOTH));
    for _ in 0..109 {
        tokio::time::advance(10 * SECOND).await;
        cache.fail(&app, ANONYMOUS, &Error::Timeout);
    }
    tokio::time::advance(20 * SECOND).await;
    assert!(!matches!(
        cache.get(&app, ANONYMOUS),
        Cached::Stale { .. } | Cached::Fresh(Ok(_)) | Cached::Expired(_)
    ));
    assert_eq!(
        failed(&cache, &app, &Error::Timeout),
        Err(LookupError::Timeout)
    );
}

#[tokio::test(start_paused = true)]
async fn new_digest_replaces_the_old_one() {
    let cache = cache();
    let app = image("a.b/app:1");
    cache.store(&app, ANONYMOUS, &resolved(b"1", BOTH));
    cache.store(&app, ANONYMOUS, &resolved(b"2", NONE));
    assert_eq!(cache.get(&app, ANONYMOUS), Cached::Fresh(Ok(NONE)));
    assert_eq!(
        cache.confirm(&app, ANONYMOUS, Digest::of_content(b"1")),
        Some(BOTH)
    );
    assert_eq!(cache.get(&app, ANONYMOUS), Cached::Fresh(Ok(BOTH)));
}

#[tokio::test]
async fn flood_is_bounded_and_leaves_the_working_set() {
    let metrics = Metrics::new([]).unwrap();
    let settings = CacheSettings {
        capacity: 10_000,
        ..cache().settings
    };
    let cache = Cache::new(settings, ResolverMetrics::register(&metrics).unwrap());
    let working: Vec<ImageRef> = (0..1000).map(|i| image(&format!("a.b/app:{i}"))).collect();
    for app in &working {
        cache.store(app, ANONYMOUS, &resolved(app.as_str().as_bytes(), BOTH));
    }
    let used = || {
        working
            .iter()
            .filter(|app| cache.get(app, ANONYMOUS) == Cached::Fresh(Ok(BOTH)))
            .count()
    };
    assert_eq!(used(), 1000);
    for i in 0..100_000 {
        cache.fail(
            &image(&format!("evil.test/x:{i}")),
            ANONYMOUS,
            &Error::NotFound,
        );
        if i % 10_000 == 0 {
            used();
        }
    }
    assert!(cache.levels.tags.len() <= 10_000 && cache.levels.platforms.len() <= 10_000);
    assert!(used() >= 900, "{} of 1000 are left", used());
    assert!(
        metrics
            .render()
            .unwrap()
            .contains("tolerarch_cache_evictions_total{level=\"tag\"} 9")
    );
}

#[tokio::test]
async fn lookup_ending_after_a_stricter_reload_stores_nothing() {
    let old = cache();
    let new = old.reconfigured(old.settings.clone(), false);
    let app = image("a.b/app:1");
    let digest = Digest::of_content(b"1");
    // This lookup checked earlier that its configuration is current, and stores only now.
    old.levels
        .platforms
        .insert(old.platforms_key(&app, ANONYMOUS, digest), BOTH);
    assert_eq!(new.confirm(&app, ANONYMOUS, digest), None);
    assert_eq!(new.get(&app, ANONYMOUS), Cached::Nothing);
}
