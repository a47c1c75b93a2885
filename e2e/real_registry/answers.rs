//! Platforms and decisions for every kind of image.

use tolerarch_core::image::ImageRef;
use tolerarch_images::registry::{Digest, ResolvedImage};

use super::distribution::Distribution;
use super::webhook::{Webhook, registry};
use super::{images, second_opinion};

#[tokio::test]
async fn each_image_has_its_platforms_by_tag_and_by_digest() {
    let Some(distribution) = Distribution::start().await else {
        return;
    };
    let registry = registry(&distribution);
    for image in images::push(&distribution).await {
        let both = format!("{}@{}", distribution.reference(image.tag), image.digest);
        for reference in [
            distribution.reference(image.tag),
            distribution.reference(&image.digest),
            both,
        ] {
            let fetched = registry
                .fetch(&reference.parse().unwrap(), None)
                .await
                .unwrap();
            let expected = ResolvedImage {
                digest: Digest::of_text(&image.digest),
                support: image.support,
                lacks_parts: false,
            };
            assert_eq!(fetched, expected, "{}: {reference}", image.tag);
        }
        let tag: ImageRef = distribution.reference(image.tag).parse().unwrap();
        let head = registry.head(&tag, None).await.unwrap();
        assert_eq!(head, Some(Digest::of_text(&image.digest)), "{}", image.tag);
    }
}

#[tokio::test]
async fn platforms_are_those_of_another_client() {
    let Some(distribution) = Distribution::start().await else {
        return;
    };
    let registry = registry(&distribution);
    for image in images::push(&distribution).await {
        for reference in [
            distribution.reference(image.tag),
            distribution.reference(&image.digest),
        ] {
            let theirs =
                second_opinion::nodes(&distribution.client, &reference.parse().unwrap()).await;
            let ours = registry
                .fetch(&reference.parse().unwrap(), None)
                .await
                .unwrap();
            assert_eq!(ours.support.runs_on(), theirs, "{}: {reference}", image.tag);
        }
    }
}

#[tokio::test]
async fn pods_of_each_image_get_its_reason() {
    let Some(distribution) = Distribution::start().await else {
        return;
    };
    let webhook = Webhook::start(&distribution).await;
    for image in images::push(&distribution).await {
        for reference in [
            distribution.reference(image.tag),
            distribution.reference(&image.digest),
        ] {
            let verdict = webhook.review(&reference).await;
            assert_eq!(verdict.reason, image.reason, "{}: {reference}", image.tag);
            assert_eq!(
                verdict.patch.is_some(),
                image.reason == "tolerated",
                "{}",
                image.tag
            );
        }
    }
}
