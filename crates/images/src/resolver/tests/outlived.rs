//! Failures that an older good answer outlives, and those that it does not.

use super::*;

#[tokio::test]
async fn a_good_answer_outlives_its_registry() {
    let bench = Bench::with(|lookup, _| lookup.timeout = Duration::from_millis(200)).await;
    let (repo, image) = bench.multi("app");
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    for fault in [
        Fault::hang(),
        Fault::status(500),
        Fault::status(429),
        Fault::reset(),
    ] {
        repo.fault(Some(fault));
        later(2 * 3600 * SECOND).await;
        assert_eq!(
            bench.unanswered(bench.ask(&image), SECOND / 2).await,
            Ok(BOTH)
        );
        assert_eq!(bench.ask_within(&image, Duration::ZERO).await, Ok(BOTH));
    }
    later(20 * 3600 * SECOND).await;
    assert!(bench.ask(&image).await.is_err(), "but not for ever");
}

#[tokio::test]
async fn a_budget_that_ends_is_covered_by_an_expired_answer() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    repo.fault(Some(Fault::hang()));
    later(2 * 3600 * SECOND).await;
    let asking = bench.ask_within(&image, Duration::from_millis(50));
    assert_eq!(bench.unanswered(asking, SECOND / 10).await, Ok(BOTH));
}

#[tokio::test]
async fn that_an_image_is_denied_or_no_image_is_no_failure_to_gloss_over() {
    for (fault, expected) in [
        (Fault::status(403), LookupError::Denied),
        (
            Fault::body("[]", testregistry::OCI_INDEX),
            LookupError::BadManifest,
        ),
    ] {
        let bench = Bench::new().await;
        let (repo, image) = bench.multi("app");
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
        repo.fault(Some(fault));
        later(2 * 3600 * SECOND).await;
        assert_eq!(bench.ask(&image).await, Err(expected));
    }
}

/// The caches of distribution 2.8 and Harbor say 404 where the registry behind them throttles.
#[tokio::test]
async fn that_an_image_is_missing_ends_no_older_good_answer() {
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    repo.fault(Some(Fault::status(404)));
    bench.seen();
    later(2 * 3600 * SECOND).await;
    for _ in 0..3 {
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
    }
    assert_eq!(bench.seen(), ["HEAD"], "and is not asked for with each Pod");
    later(61 * SECOND).await;
    repo.fault(None);
    repo.index(Some("v1"), ["linux/amd64"]);
    let _ = bench.ask(&image).await;
    bench.landed().await;
    let amd64 = Support::Index(tolerarch_core::testing::platforms(&["linux/amd64"]));
    assert_eq!(
        bench.ask(&image).await,
        Ok(amd64),
        "until the registry has it again"
    );
    repo.fault(Some(Fault::status(404)));
    later(26 * 3600 * SECOND).await;
    assert_eq!(
        bench.ask(&image).await,
        Err(LookupError::NotFound),
        "or for cache.staleIfError"
    );
}
