//! Lists of tags: with which credential they are requested, and when they are not requested.

use super::isolation::tenant;
use super::*;
use crate::registry::{Error, TagList};

async fn list(
    test: &ResolverTest,
    image: &ImageRef,
    candidates: &[CredentialCandidate],
) -> Result<TagList, Error> {
    let candidates = candidates.to_vec().into();
    test.resolver.tags(image, candidates).await
}

fn requests(repo: &Repo) -> usize {
    repo.count(|request| request.kind == Kind::Tags)
}

#[tokio::test]
async fn tags_are_listed_with_the_first_accepted_credential() {
    let test = ResolverTest::on_another_clock().await;
    let (repo, image) = test.multi("app");
    repo.require(Auth::basic("b", "b"));
    let candidates = [tenant("a"), tenant("b"), CredentialCandidate::anonymous()];
    let tags = list(&test, &image, &candidates).await.unwrap();
    assert!(tags.is_complete && tags.tags.contains("v1"));
    repo.require(Auth::basic("c", "c"));
    let error = list(&test, &image, &candidates).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");
    let error = list(&test, &image, &[]).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");
}

#[tokio::test]
async fn throttling_registry_gets_no_second_list_request() {
    let test = ResolverTest::on_another_clock().await;
    let anonymous = [CredentialCandidate::anonymous()];
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::status(429)));
    for _ in 0..2 {
        let error = list(&test, &image, &anonymous).await.unwrap_err();
        assert!(matches!(error, Error::Throttled(_)), "{error}");
    }
    assert_eq!(requests(&repo), 1);
    assert_eq!(test.look_up(&image).await, Err(LookupError::Throttled));
    assert!(test.new_requests().is_empty());
}

#[tokio::test]
async fn throttled_later_page_pauses_the_registry() {
    let test = ResolverTest::on_another_clock().await;
    let anonymous = [CredentialCandidate::anonymous()];
    let (repo, image) = test.multi("app");
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
    let tags = list(&test, &image, &anonymous).await.unwrap();
    assert!(matches!(tags.failure, Some(Error::Throttled(_))));
    let error = list(&test, &image, &anonymous).await.unwrap_err();
    assert!(matches!(error, Error::Throttled(_)), "{error}");
    assert_eq!(requests(&repo), 2);
}
