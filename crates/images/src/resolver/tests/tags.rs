//! Lists of tags: with which credential, and when the registry is not asked.

use super::isolation::tenant;
use super::*;
use crate::registry::{Error, TagList};

async fn list(
    bench: &Bench,
    image: &ImageRef,
    candidates: &[CredentialCandidate],
) -> Result<TagList, Error> {
    let candidates = candidates.to_vec().into();
    bench.resolver.tags(image, candidates).await
}

fn asked(repo: &Repo) -> usize {
    repo.count(|request| request.kind == Kind::Tags)
}

#[tokio::test]
async fn the_first_credential_that_the_registry_accepts_lists() {
    let bench = Bench::on_another_clock().await;
    let (repo, image) = bench.multi("app");
    repo.require(Auth::basic("b", "b"));
    let candidates = [tenant("a"), tenant("b"), CredentialCandidate::anonymous()];
    let tags = list(&bench, &image, &candidates).await.unwrap();
    assert!(tags.is_complete && tags.tags.contains("v1"));
    repo.require(Auth::basic("c", "c"));
    let error = list(&bench, &image, &candidates).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");
    let error = list(&bench, &image, &[]).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");
}

#[tokio::test]
async fn a_registry_that_throttles_is_not_asked_again() {
    let bench = Bench::on_another_clock().await;
    let anonymous = [CredentialCandidate::anonymous()];
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::status(429)));
    for _ in 0..2 {
        let error = list(&bench, &image, &anonymous).await.unwrap_err();
        assert!(matches!(error, Error::Throttled(_)), "{error}");
    }
    assert_eq!(asked(&repo), 1);
    assert_eq!(bench.ask(&image).await, Err(LookupError::Throttled));
    assert!(bench.seen().is_empty());
}

#[tokio::test]
async fn a_later_page_that_is_throttled_counts_as_well() {
    let bench = Bench::on_another_clock().await;
    let anonymous = [CredentialCandidate::anonymous()];
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::custom(|request| {
        Some(match &*request.query {
            "n=1000" => Fault::reply(
                Reply::new(200)
                    .json(&serde_json::json!({"tags": ["v1"]}))
                    .header("Link", "<?last=v1>; rel=next"),
            ),
            _ => Fault::status(429),
        })
    })));
    let tags = list(&bench, &image, &anonymous).await.unwrap();
    assert!(matches!(tags.failure, Some(Error::Throttled(_))));
    let error = list(&bench, &image, &anonymous).await.unwrap_err();
    assert!(matches!(error, Error::Throttled(_)), "{error}");
    assert_eq!(asked(&repo), 2);
}
