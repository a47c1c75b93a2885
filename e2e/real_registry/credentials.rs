//! Private images of a real registry: with a password, and with tokens that it verifies by itself.

use testregistry::Kind;
use tolerarch_core::image::ImageRef;
use tolerarch_images::credentials::Credential;
use tolerarch_images::registry::{AddressGuard, Digest, Error, Found, HostSettings, Registry};

use super::distribution::Distribution;
use super::images;
use super::token_server::{PASSWORD, TokenServer, USER};
use super::webhook::{registry, registry_metrics};

fn basic(user: &str, password: &str) -> Credential {
    Credential::Basic {
        user: user.into(),
        password: password.to_owned().into(),
    }
}

/// Reads every image with the password, and none without it or with another one.
async fn judge(distribution: &Distribution, registry: &Registry) {
    let credential = basic(USER, PASSWORD);
    for image in images::push(distribution).await {
        let tag: ImageRef = distribution.reference(image.tag).parse().unwrap();
        let expected = Found {
            digest: Digest::of_text(&image.digest),
            support: image.support,
            lacks_parts: false,
        };
        assert_eq!(
            registry.fetch(&tag, Some(&credential)).await.unwrap(),
            expected,
            "{tag}"
        );
        assert_eq!(
            registry.head(&tag, Some(&credential)).await.unwrap(),
            Some(expected.digest)
        );
        for other in [
            None,
            Some(basic(USER, "wrong")),
            Some(basic("other", PASSWORD)),
        ] {
            let error = registry.fetch(&tag, other.as_ref()).await.unwrap_err();
            assert!(matches!(error, Error::Denied(_)), "{tag}: {error}");
        }
    }
    let absent: ImageRef = distribution.reference("absent").parse().unwrap();
    let error = registry
        .fetch(&absent, Some(&credential))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotFound), "{error}");
}

#[tokio::test]
async fn a_password_opens_what_it_opens_to_others() {
    let Some(distribution) = Distribution::start_private().await else {
        return;
    };
    judge(&distribution, &registry(&distribution)).await;
}

/// A client that knows the registry's token server, and may send it credentials or not.
fn client(distribution: &Distribution, server: &TokenServer, may: bool) -> Registry {
    let trusted = HostSettings {
        ca_file: Some(distribution.directory.path().join("ca.crt")),
        ..HostSettings::default()
    };
    let token_hosts = if may {
        vec![server.address()]
    } else {
        Vec::new()
    };
    let own = HostSettings {
        token_hosts,
        ..trusted.clone()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..AddressGuard::default()
    };
    let hosts = [
        (distribution.address.clone(), own),
        (server.address(), trusted),
    ];
    Registry::new(hosts, guard, registry_metrics()).unwrap()
}

#[tokio::test]
async fn tokens_are_got_by_post_or_by_get() {
    for by_post in [true, false] {
        let server = TokenServer::start(by_post).await;
        let Some(distribution) = Distribution::start_with_tokens(&server).await else {
            return;
        };
        judge(&distribution, &client(&distribution, &server, true)).await;
        let given = |method: &str| {
            server
                .seen()
                .iter()
                .filter(|r| r.method == method && r.kind == Kind::Token)
                .count()
        };
        assert!(given(if by_post { "POST" } else { "GET" }) > 0);
    }
}

#[tokio::test]
async fn a_token_server_that_is_not_configured_gets_nothing() {
    let server = TokenServer::start(true).await;
    let Some(distribution) = Distribution::start_with_tokens(&server).await else {
        return;
    };
    images::push(&distribution).await;
    server.seen();
    let registry = client(&distribution, &server, false);
    let image = distribution.reference("buildkit").parse().unwrap();
    let error = registry
        .fetch(&image, Some(&basic(USER, PASSWORD)))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::TokenHost { host, .. } if *host == server.address()),
        "{error}"
    );
    assert_eq!(server.seen().len(), 0);
}
