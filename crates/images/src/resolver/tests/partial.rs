//! Indexes with entries that cannot be requested.

use super::*;
use crate::registry::VerifiedPlatforms;
use tolerarch_core::testing::platforms;

async fn verifying_test() -> (ResolverTest, Repo, ImageRef) {
    let mut test = ResolverTest::new().await;
    let verified = VerifiedPlatforms {
        manifests: PlatformSet::AMD64_AND_ARM64,
        ..VerifiedPlatforms::default()
    };
    let lookup = LookupSettings::default();
    let cache = CacheSettings::default();
    let registry = registry([&test.remote]).verifying(verified);
    test.resolver = test.resolver.reconfigured(registry, lookup, cache);
    let (repo, image) = test.multi("app");
    (test, repo, image)
}

/// Answers requests for the entry of arm64 with this status.
fn fail(repo: &Repo, status: u16) {
    let arm64 = repo.image("linux/arm64", None)["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    repo.fault(Some(Fault::custom(move |request| {
        (request.reference.as_ref() == Some(&arm64)).then(|| Fault::status(status))
    })));
}

#[tokio::test]
async fn partial_answer_expires_like_a_failure() {
    let (test, repo, _) = verifying_test().await;
    for (status, why, life) in [
        (403, LookupError::Denied, 60 * SECOND),
        (429, LookupError::Throttled, 60 * SECOND),
        (503, LookupError::Unreachable, 15 * SECOND),
    ] {
        let image: ImageRef = repo.reference(&status.to_string()).parse().unwrap();
        repo.index(Some(image.target()), ["linux/amd64", "linux/arm64"]);
        fail(&repo, status);
        let [runs, unknown] = ["linux/amd64", "linux/arm64"].map(|platform| platforms(&[platform]));
        let partial = Ok(Support::Partial { runs, unknown, why });
        assert_eq!(test.look_up(&image).await, partial);
        repo.fault(None);
        test.new_requests();
        assert_eq!(test.look_up(&image).await, partial);
        assert_eq!(test.new_requests(), [""; 0], "it is cached");
        later(life).await;
        assert_eq!(test.look_up(&image).await, Ok(BOTH), "{status}");
        test.new_requests();
        assert_eq!(test.look_up(&image).await, Ok(BOTH));
        assert_eq!(test.new_requests(), [""; 0]);
    }
}

#[tokio::test]
async fn older_complete_answer_is_served_instead() {
    let (test, repo, image) = verifying_test().await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
    repo.index(Some("v1"), ["linux/arm64", "linux/amd64"]);
    fail(&repo, 503);
    later(CacheSettings::default().tag + CacheSettings::default().stale_while_revalidate).await;
    assert_eq!(test.look_up(&image).await, Ok(BOTH));
}

/// A mirror may have an index before its images, and a retention rule may be undone.
#[tokio::test]
async fn missing_parts_are_looked_up_again() {
    for by_digest in [false, true] {
        let (test, repo, tag) = verifying_test().await;
        let digest = repo.digest_of("v1").unwrap();
        let image = if by_digest {
            repo.reference(&digest).parse().unwrap()
        } else {
            tag
        };
        fail(&repo, 404);
        let amd64 = Ok(Support::Index(platforms(&["linux/amd64"])));
        assert_eq!(test.look_up(&image).await, amd64);
        repo.fault(None);
        test.new_requests();
        later(CacheSettings::default().tag / 2).await;
        assert_eq!(test.look_up(&image).await, amd64, "{image}");
        assert_eq!(test.new_requests(), [""; 0]);
        later(CacheSettings::default().tag / 2).await;
        assert_eq!(test.look_up(&image).await, Ok(BOTH), "{image}");
    }
}

/// Anyone who can push to a registry can push an index with failing entries.
#[tokio::test]
async fn failing_index_entries_open_no_circuit() {
    let (test, repo, _) = verifying_test().await;
    fail(&repo, 503);
    let tagged = |tag: &str| -> ImageRef {
        repo.index(Some(tag), ["linux/amd64", "linux/arm64"]);
        repo.reference(tag).parse().unwrap()
    };
    for i in 0..30 {
        let answer = test.look_up(&tagged(&format!("v1.{i}"))).await;
        assert!(
            matches!(
                answer,
                Ok(Support::Partial {
                    why: LookupError::Unreachable,
                    ..
                })
            ),
            "{answer:?}"
        );
    }
    repo.fault(None);
    assert_eq!(test.look_up(&tagged("v2")).await, Ok(BOTH));
}
