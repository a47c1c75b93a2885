//! Indexes of which some entries cannot be requested.

use super::*;
use crate::registry::Verified;
use tolerarch_core::testing::platforms;

async fn bench() -> (Bench, Repo, ImageRef) {
    let mut bench = Bench::new().await;
    let verified = Verified {
        manifests: PlatformSet::AMD64_AND_ARM64,
        ..Verified::default()
    };
    let lookup = LookupSettings::default();
    let cache = CacheSettings::default();
    let registry = registry([&bench.remote]).verifying(verified);
    bench.resolver = bench.resolver.reconfigured(registry, lookup, cache);
    let (repo, image) = bench.multi("app");
    (bench, repo, image)
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
async fn what_is_unknown_is_asked_again_when_a_failure_would_be() {
    let (bench, repo, _) = bench().await;
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
        assert_eq!(bench.ask(&image).await, partial);
        repo.fault(None);
        bench.seen();
        assert_eq!(bench.ask(&image).await, partial);
        assert_eq!(bench.seen(), [""; 0], "it is remembered");
        later(life).await;
        assert_eq!(bench.ask(&image).await, Ok(BOTH), "{status}");
        bench.seen();
        assert_eq!(bench.ask(&image).await, Ok(BOTH));
        assert_eq!(bench.seen(), [""; 0]);
    }
}

#[tokio::test]
async fn an_older_whole_answer_serves_instead() {
    let (bench, repo, image) = bench().await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
    repo.index(Some("v1"), ["linux/arm64", "linux/amd64"]);
    fail(&repo, 503);
    later(CacheSettings::default().tag + CacheSettings::default().stale_while_revalidate).await;
    assert_eq!(bench.ask(&image).await, Ok(BOTH));
}

/// A mirror may have an index before its images, and a retention rule may be undone.
#[tokio::test]
async fn what_was_missing_is_looked_for_again() {
    for by_digest in [false, true] {
        let (bench, repo, tag) = bench().await;
        let digest = repo.digest_of("v1").unwrap();
        let image = if by_digest {
            repo.reference(&digest).parse().unwrap()
        } else {
            tag
        };
        fail(&repo, 404);
        let amd64 = Ok(Support::Index(platforms(&["linux/amd64"])));
        assert_eq!(bench.ask(&image).await, amd64);
        repo.fault(None);
        bench.seen();
        later(CacheSettings::default().tag / 2).await;
        assert_eq!(bench.ask(&image).await, amd64, "{image}");
        assert_eq!(bench.seen(), [""; 0]);
        later(CacheSettings::default().tag / 2).await;
        assert_eq!(bench.ask(&image).await, Ok(BOTH), "{image}");
    }
}

/// Anyone who can push an index to a registry can push one of which a part fails.
#[tokio::test]
async fn entries_that_fail_do_not_open_the_circuit() {
    let (bench, repo, _) = bench().await;
    fail(&repo, 503);
    let tagged = |tag: &str| -> ImageRef {
        repo.index(Some(tag), ["linux/amd64", "linux/arm64"]);
        repo.reference(tag).parse().unwrap()
    };
    for i in 0..30 {
        let answer = bench.ask(&tagged(&format!("v1.{i}"))).await;
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
    assert_eq!(bench.ask(&tagged("v2")).await, Ok(BOTH));
}
