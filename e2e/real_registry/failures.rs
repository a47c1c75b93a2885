//! Missing images, missing credentials, and a registry that is stopped.

use testregistry::sha256;
use tolerarch_images::registry::Error;

use super::distribution::{Distribution, REPO};
use super::images;
use super::webhook::{Webhook, registry};

#[tokio::test]
async fn missing_image_is_not_found() {
    let Some(distribution) = Distribution::start().await else {
        return;
    };
    images::push(&distribution).await;
    let registry = registry(&distribution);
    let webhook = Webhook::start(&distribution).await;
    for reference in [
        distribution.reference("absent"),
        distribution.reference(&sha256(b"absent")),
        distribution
            .reference("buildkit")
            .replace(REPO, "team/absent"),
    ] {
        let error = registry
            .fetch(&reference.parse().unwrap(), None)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NotFound), "{reference}: {error}");
        assert_eq!(
            webhook.review(&reference).await.audit(),
            ("unchanged", "not-found", Some(&*reference))
        );
    }
}

#[tokio::test]
async fn request_without_a_password_is_denied() {
    let Some(distribution) = Distribution::start_private().await else {
        return;
    };
    images::push(&distribution).await;
    let registry = registry(&distribution);
    let webhook = Webhook::start(&distribution).await;
    for tag in ["buildkit", "absent"] {
        let reference = distribution.reference(tag);
        let error = registry
            .fetch(&reference.parse().unwrap(), None)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Denied(_)), "{reference}: {error}");
        assert_eq!(
            webhook.review(&reference).await.audit(),
            ("unchanged", "denied", Some(&*reference))
        );
    }
}

#[tokio::test]
async fn stopped_registry_is_unreachable() {
    let Some(mut distribution) = Distribution::start().await else {
        return;
    };
    images::push(&distribution).await;
    let registry = registry(&distribution);
    let webhook = Webhook::start(&distribution).await;
    let cached = distribution.reference("buildkit");
    let uncached = distribution.reference("nested");
    assert!(registry.fetch(&cached.parse().unwrap(), None).await.is_ok());
    assert_eq!(webhook.review(&cached).await.reason, "tolerated");

    distribution.kill().await;
    let error = registry
        .fetch(&cached.parse().unwrap(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoConnection(_)), "{error}");
    assert_eq!(
        webhook.review(&uncached).await.audit(),
        ("unchanged", "unreachable", Some(&*uncached))
    );
    // The cache still answers.
    assert_eq!(webhook.review(&cached).await.reason, "tolerated");
}
