//! Failures that an older good answer outlives, and those that it does not.

use super::*;

#[tokio::test]
async fn good_answer_outlives_its_registry() {
    let test = ResolverTest::with(|lookup, _| lookup.timeout = Duration::from_millis(200)).await;
    let (repo, image) = test.multi("app");
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    for fault in [
        Fault::hang(),
        Fault::status(500),
        Fault::status(429),
        Fault::reset(),
    ] {
        repo.fault(Some(fault));
        later(2 * 3600 * SECOND).await;
        assert_eq!(
            test.without_answer(test.look_up(&image), SECOND / 2).await,
            Ok(BOTH)
        );
        assert_eq!(test.look_up_within(&image, Duration::ZERO).await, Ok(BOTH));
    }
    later(20 * 3600 * SECOND).await;
    assert!(test.look_up(&image).await.is_err(), "after a day");
}

#[tokio::test]
async fn expired_answer_is_served_when_the_budget_ends() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    repo.fault(Some(Fault::hang()));
    later(2 * 3600 * SECOND).await;
    let lookup = test.look_up_within(&image, Duration::from_millis(50));
    assert_eq!(test.without_answer(lookup, SECOND / 10).await, Ok(BOTH));
}

#[tokio::test]
async fn denial_or_bad_manifest_ends_older_answers() {
    for (fault, expected) in [
        (Fault::status(403), LookupError::Denied),
        (
            Fault::body("[]", testregistry::OCI_INDEX),
            LookupError::BadManifest,
        ),
    ] {
        let test = ResolverTest::new().await;
        let (repo, image) = test.multi("app");
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
        repo.fault(Some(fault));
        later(2 * 3600 * SECOND).await;
        assert_eq!(test.look_up(&image).await, Err(expected));
    }
}

/// The caches of distribution 2.8 and Harbor answer 404 while the registry behind them throttles.
#[tokio::test]
async fn missing_image_ends_no_older_answer() {
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    repo.fault(Some(Fault::status(404)));
    test.new_requests();
    later(2 * 3600 * SECOND).await;
    for _ in 0..3 {
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
    }
    assert_eq!(test.new_requests(), ["HEAD"], "one request for all Pods");
    later(61 * SECOND).await;
    repo.fault(None);
    repo.index(Some("v1"), ["linux/amd64"]);
    let _ = test.look_up(&image).await;
    test.wait_until_idle().await;
    let amd64 = Support::Index(tolerarch_core::testing::platforms(&["linux/amd64"]));
    assert_eq!(
        test.look_up(&image).await,
        Ok(amd64),
        "until the registry has it again"
    );
    repo.fault(Some(Fault::status(404)));
    later(26 * 3600 * SECOND).await;
    assert_eq!(
        test.look_up(&image).await,
        Err(LookupError::NotFound),
        "or for cache.staleIfError"
    );
}
