use std::collections::BTreeMap;

use super::*;
use crate::registry::hosts::{HostSettings, HostsDirectory};

fn realm(hosts: &Hosts, origin: &str, realm: &str) -> Option<Realm> {
    Realm::of(hosts, &Url::parse(origin).unwrap(), realm, None)
}

#[test]
fn unsafe_realms_are_refused() {
    let hosts = Hosts::default();
    let https = "https://registry.test:5000/";
    for (origin, text, expected) in [
        (
            https,
            "https://auth.test/token",
            Some("https://auth.test/token"),
        ),
        (
            https,
            "https://auth.test/token?a=b#c",
            Some("https://auth.test/token?a=b"),
        ),
        (https, "/token", Some("https://registry.test:5000/token")),
        (https, "token", Some("https://registry.test:5000/token")),
        (https, "//auth.test/token", Some("https://auth.test/token")),
        (https, "http://auth.test/token", None),
        (
            https,
            "http://registry.test/token",
            Some("https://registry.test:5000/token"),
        ),
        (
            https,
            "http://registry.test:8080/token?a=b",
            Some("https://registry.test:5000/token?a=b"),
        ),
        (https, "http://sub.registry.test/token", None),
        (https, "https://user:secret@auth.test/", None),
        (https, "file:///etc/passwd", None),
        (https, "https://", None),
        (
            "http://registry.test/",
            "http://auth.test/token",
            Some("http://auth.test/token"),
        ),
        ("http://registry.test/", "ftp://auth.test/token", None),
    ] {
        let url = realm(&hosts, origin, text).map(|realm| String::from(realm.url));
        assert_eq!(url.as_deref(), expected, "{text} of {origin}");
    }
}

#[test]
fn credentials_go_only_to_the_registry_and_its_token_hosts() {
    let settings = |plain_http, token_hosts: &[&str]| HostSettings {
        plain_http,
        token_hosts: token_hosts.iter().map(ToString::to_string).collect(),
        ..HostSettings::default()
    };
    let hosts = Hosts::new(
        BTreeMap::from([
            (
                "own.test:5000".into(),
                settings(false, &["auth.test", "plain.test", "port.test:8443"]),
            ),
            ("plain.test".into(), settings(true, &[])),
            ("open.test".into(), settings(true, &["auth.test"])),
            (
                "eighty.test:80".into(),
                settings(true, &["auth.test:80", "plain.test:80"]),
            ),
        ]),
        HostsDirectory::default(),
    );
    for (origin, text, expected) in [
        ("https://a.test/", "/token", true),
        ("https://a.test/", "https://A.test:443/token", true),
        ("https://a.test/", "https://a.test:444/token", true),
        ("https://a.test/", "https://auth.a.test/token", false),
        ("https://a.test/", "https://a.test.evil.test/token", false),
        ("https://a.test/", "https://auth.docker.io/token", false),
        ("https://a.test/", "https://gitlab.com/jwt/auth", false),
        (
            "https://registry-1.docker.io/",
            "https://auth.docker.io/token",
            true,
        ),
        ("https://own.test:5000/", "https://auth.test/token", true),
        (
            "https://own.test:5000/",
            "https://AUTH.test:443/token",
            true,
        ),
        (
            "https://own.test:5000/",
            "https://auth.test:444/token",
            false,
        ),
        (
            "https://own.test:5000/",
            "https://port.test:8443/token",
            true,
        ),
        ("https://own.test:5000/", "https://port.test/token", false),
        ("https://own.test:5000/", "http://plain.test/token", true),
        ("https://own.test/", "https://auth.test/token", false),
        // Without TLS only the registry itself may get the credentials, and hosts that are configured for plain HTTP.
        ("http://open.test/", "http://open.test/token", true),
        ("http://open.test/", "https://auth.test/token", true),
        ("http://open.test/", "http://auth.test/token", false),
        ("http://eighty.test/", "http://plain.test/token", true),
        ("http://eighty.test/", "http://auth.test/token", false),
        ("http://eighty.test/", "https://auth.test/token", false),
    ] {
        let url = Url::parse(origin).unwrap();
        let realm = realm(&hosts, origin, text).unwrap();
        let may_see = realm.may_see_credentials(&hosts, &url, CredentialOwner::Operator);
        assert_eq!(may_see, expected, "{text} of {origin}");
    }
}

#[test]
fn pods_credential_also_goes_to_hosts_of_the_same_owner() {
    let hosts = Hosts::default();
    for (origin, text, operators_goes, pods_goes) in [
        (
            "https://registry.example.com/",
            "https://gitlab.example.com/jwt/auth",
            false,
            true,
        ),
        (
            "https://git.example.com:5050/",
            "https://git.example.com/jwt/auth",
            true,
            true,
        ),
        (
            "https://registry.example.com/",
            "https://auth.evil.com/token",
            false,
            false,
        ),
        (
            "https://a.github.io/",
            "https://b.github.io/token",
            false,
            false,
        ),
        (
            "http://registry.example.com/",
            "https://gitlab.example.com/jwt/auth",
            false,
            false,
        ),
        (
            "http://registry.example.com/",
            "http://gitlab.example.com/jwt/auth",
            false,
            false,
        ),
    ] {
        let url = Url::parse(origin).unwrap();
        let realm = realm(&hosts, origin, text).unwrap();
        for (owner, expected) in [
            (CredentialOwner::Operator, operators_goes),
            (CredentialOwner::Pod, pods_goes),
        ] {
            let may_see = realm.may_see_credentials(&hosts, &url, owner);
            assert_eq!(may_see, expected, "{text} of {origin}, {owner:?}");
        }
    }
}
