//! What a real registry cannot or will not tell.

use testregistry::sha256;
use tolerarch_images::registry::Error;

use super::distribution::{Distribution, REPO};
use super::images;
use super::webhook::{Webhook, registry};

#[tokio::test]
async fn what_is_not_there_is_not_found() {
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
async fn who_knows_no_password_is_denied() {
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
async fn a_registry_that_is_gone_is_unreachable() {
    let Some(mut distribution) = Distribution::start().await else {
        return;
    };
    images::push(&distribution).await;
    let registry = registry(&distribution);
    let webhook = Webhook::start(&distribution).await;
    let known = distribution.reference("buildkit");
    let other = distribution.reference("nested");
    assert!(registry.fetch(&known.parse().unwrap(), None).await.is_ok());
    assert_eq!(webhook.review(&known).await.reason, "tolerated");

    distribution.kill().await;
    let error = registry
        .fetch(&known.parse().unwrap(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoConnection(_)), "{error}");
    assert_eq!(
        webhook.review(&other).await.audit(),
        ("unchanged", "unreachable", Some(&*other))
    );
    // What is known stays known.
    assert_eq!(webhook.review(&known).await.reason, "tolerated");
}
