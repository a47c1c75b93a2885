//! Private images of a real registry, by password and by tokens that the registry verifies.

use testregistry::Kind;
use tolerarch_core::image::ImageRef;
use tolerarch_images::credentials::Credential;
use tolerarch_images::registry::{
    AddressGuard, Digest, Error, HostSettings, Registry, ResolvedImage,
};

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

/// Checks that every image can be read with the right password only.
async fn check_access(distribution: &Distribution, registry: &Registry) {
    let credential = basic(USER, PASSWORD);
    for image in images::push(distribution).await {
        let tag: ImageRef = distribution.reference(image.tag).parse().unwrap();
        let expected = ResolvedImage {
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
async fn password_reads_every_image() {
    let Some(distribution) = Distribution::start_private().await else {
        return;
    };
    check_access(&distribution, &registry(&distribution)).await;
}

/// Returns a client that trusts the registry and its token server. `allowed` says whether it may send credentials to the token
/// server.
fn client(distribution: &Distribution, server: &TokenServer, allowed: bool) -> Registry {
    let trusted = HostSettings {
        ca_file: Some(distribution.directory.path().join("ca.crt")),
        ..HostSettings::default()
    };
    let token_hosts = if allowed {
        vec![server.address()]
    } else {
        Vec::new()
    };
    let registry_settings = HostSettings {
        token_hosts,
        ..trusted.clone()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..AddressGuard::default()
    };
    let hosts = [
        (distribution.address.clone(), registry_settings),
        (server.address(), trusted),
    ];
    Registry::new(hosts, guard, registry_metrics()).unwrap()
}

#[tokio::test]
async fn tokens_are_requested_by_post_or_by_get() {
    for by_post in [true, false] {
        let server = TokenServer::start(by_post).await;
        let Some(distribution) = Distribution::start_with_tokens(&server).await else {
            return;
        };
        check_access(&distribution, &client(&distribution, &server, true)).await;
        let token_requests = |method: &str| {
            server
                .take_requests()
                .iter()
                .filter(|request| request.method == method && request.kind == Kind::Token)
                .count()
        };
        assert!(token_requests(if by_post { "POST" } else { "GET" }) > 0);
    }
}

#[tokio::test]
async fn unconfigured_token_server_gets_no_request() {
    let server = TokenServer::start(true).await;
    let Some(distribution) = Distribution::start_with_tokens(&server).await else {
        return;
    };
    images::push(&distribution).await;
    server.take_requests();
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
    assert_eq!(server.take_requests().len(), 0);
}
