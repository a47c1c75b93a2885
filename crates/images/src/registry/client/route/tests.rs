use std::collections::BTreeMap;

use super::*;
use crate::registry::client::is_tag;
use crate::registry::hosts::{HostSettings, HostsDirectory};

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn endpoint(origin: &str) -> Endpoint {
    Endpoint::new(url(origin).join("/v2/").unwrap()).unwrap()
}

/// Makes the route of a request for the manifest of a tag.
fn to_manifest(endpoint: &Endpoint, url: Url) -> Route<'_> {
    Route::new(endpoint, RequestKind::Manifest, url, true)
}

fn hosts() -> Hosts {
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let certificate = HostSettings {
        client_cert_file: Some("/c.crt".into()),
        ..HostSettings::default()
    };
    let listing = HostSettings {
        token_hosts: vec!["cert.test".into()],
        ..HostSettings::default()
    };
    let settings = [
        ("minio.test:9000".into(), plain),
        ("cert.test".into(), certificate.clone()),
        ("own.test".into(), certificate),
        ("listing.test".into(), listing),
    ];
    Hosts::new(BTreeMap::from(settings), HostsDirectory::default())
}

#[test]
fn redirects_are_followed_only_where_allowed() {
    let hosts = hosts();
    for (from, to, expected) in [
        ("https://a.b/v2/x", "/v2/y", Some("https://a.b/v2/y")),
        ("https://a.b/v2/x", "y?z#f", Some("https://a.b/v2/y?z#f")),
        (
            "https://a.b/v2/x",
            "https://a.b:443/y",
            Some("https://a.b/y"),
        ),
        (
            "https://a.b/v2/x",
            "https://a.b:5000/y",
            Some("https://a.b:5000/y"),
        ),
        ("https://a.b/v2/x", "https://c.d/y", Some("https://c.d/y")),
        ("https://a.b/v2/x", "//c.d/y", Some("https://c.d/y")),
        ("https://a.b/v2/x", "http://a.b/y", None),
        ("https://a.b/v2/x", "http://c.d/y", None),
        ("http://a.b/v2/x", "http://c.d/y", Some("http://c.d/y")),
        ("http://a.b/v2/x", "https://c.d/y", Some("https://c.d/y")),
        ("https://a.b/v2/x", "https://u:p@c.d/y", None),
        ("https://a.b/v2/x", "https://u@a.b/y", None),
        ("https://a.b/v2/x", "file:///etc/passwd", None),
        ("https://a.b/v2/x", "data:,x", None),
        ("https://a.b/v2/x", "https://", None),
        ("https://a.b/v2/x", "http://minio.test:9000/y", None),
        ("https://a.b/v2/x", "https://cert.test/y", None),
        (
            "https://listing.test/v2/x",
            "https://cert.test/y",
            Some("https://cert.test/y"),
        ),
        (
            "https://own.test/v2/x",
            "https://own.test/y",
            Some("https://own.test/y"),
        ),
    ] {
        let endpoint = endpoint(from);
        let route = to_manifest(&endpoint, url(from));
        let next = route.next(&hosts, Some(to));
        assert_eq!(
            next.ok().as_ref().map(Url::as_str),
            expected,
            "{from} to {to}"
        );
    }
}

#[test]
fn plain_http_is_only_for_digests_at_configured_hosts() {
    let hosts = hosts();
    let endpoint = endpoint("https://a.b/");
    let digest = format!("sha256:{}", "a".repeat(64));
    for (reference, to, expected) in [
        (&*digest, "http://minio.test:9000/y", true),
        ("v1", "http://minio.test:9000/y", false),
        (&digest, "http://minio.test/y", false),
        (&digest, "http://c.d/y", false),
    ] {
        for kind in [
            RequestKind::Head,
            RequestKind::Manifest,
            RequestKind::Config,
        ] {
            let route = Route::new(&endpoint, kind, url("https://a.b/v2/x"), is_tag(reference));
            assert_eq!(
                route.next(&hosts, Some(to)).is_ok(),
                expected,
                "{reference} to {to}"
            );
        }
    }
    // A route that has used HTTPS may not use plain HTTP elsewhere, even after a permitted hop without TLS.
    let route = Route::new(&endpoint, RequestKind::Config, url("https://a.b/"), false);
    let route = Route {
        url: url("http://minio.test:9000/x"),
        ..route
    };
    assert!(route.next(&hosts, Some("http://c.d/y")).is_err());
}

#[test]
fn client_certificate_is_not_used_after_another_origin() {
    let hosts = hosts();
    for (origin, to) in [
        ("https://own.test/", "https://own.test/y"),
        ("https://listing.test/", "https://cert.test/y"),
    ] {
        let endpoint = endpoint(origin);
        let route = Route {
            target: Target::RedirectTarget,
            ..to_manifest(&endpoint, url("https://evil.test/v2/x"))
        };
        let error = route.next(&hosts, Some(to)).unwrap_err();
        assert!(error.to_string().contains("client certificate"), "{error}");
    }
    let endpoint = endpoint("https://a.b/");
    let route = to_manifest(&endpoint, url("https://a.b/v2/x"));
    let error = route.next(&hosts, Some("https://cert.test/y")).unwrap_err();
    let line = r#"set registries.hosts."a.b".tokenHosts: [cert.test]"#;
    assert!(error.to_string().ends_with(line), "{error}");
}

#[test]
fn host_in_an_error_is_truncated_and_ascii() {
    let endpoint = endpoint("https://a.b/");
    let to = url(&format!("https://\u{fc}.{}test/x", "x.".repeat(1000)));
    let route = Route {
        target: Target::RedirectTarget,
        ..to_manifest(&endpoint, to)
    };
    let text = route.located(Error::NotFound).to_string();
    assert!(
        text.starts_with("a.b redirects to xn--") && text.is_ascii() && text.len() < 200,
        "{text}"
    );
}

#[test]
fn only_urls_of_the_registry_api_are_endpoints() {
    let endpoint = endpoint("https://a.b/");
    let digest = format!("sha256:{}", "a".repeat(64));
    for (path, expected) in [
        ("/v2/team/app/manifests/v1", Some("team/app")),
        (
            "/v2/k8s-artifacts-prod/images/pause/manifests/3.9?ns=x",
            Some("k8s-artifacts-prod/images/pause"),
        ),
        (&format!("/v2/app/blobs/{digest}"), Some("app")),
        (
            &format!("/v2/a/manifests/b/manifests/{digest}"),
            Some("a/manifests/b"),
        ),
        ("/v2/Team/app/manifests/v1", None),
        ("/v2/team%2Fapp/manifests/v1", None),
        ("/v2/team//app/manifests/v1", None),
        ("/v2//manifests/v1", None),
        ("/v2/app/manifests/", None),
        ("/v2/app/manifests/v 1", None),
        ("/v2/app/manifests/sha256:abc", None),
        ("/v2/app/tags/list", None),
        ("/v2/app:pull,push/manifests/v1", None),
        ("/v2/app@sha256/manifests/v1", None),
        ("/api/v2/app/manifests/v1", None),
        ("/cdn/sha256", None),
        ("/v2/", None),
    ] {
        let route = to_manifest(&endpoint, url("https://c.d/").join(path).unwrap());
        let target = route.target_endpoint();
        assert_eq!(
            target.as_ref().map(|(_, name)| name.as_str()),
            expected,
            "{path}"
        );
        assert!(target.is_none_or(|(target, _)| target.origin.as_str() == "https://c.d/"));
    }
}
