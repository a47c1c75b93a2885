//! Invariants that hold for every challenge.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use http::HeaderMap;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use url::Url;

use super::challenge::{Challenge, challenges};
use super::realm::Realm;
use crate::credentials::CredentialOwner;
use crate::registry::hosts::Hosts;

/// Checks that a parsed challenge, written in the form of RFC 9110, is parsed as the same challenge again. Checks also
/// that no realm leads a credential away from the registry's host, or any request away from TLS.
pub fn challenge(data: &[u8]) -> bool {
    let Ok(header) = HeaderValue::from_bytes(data) else {
        return false;
    };
    let parsed = parse(header);
    let rewritten: Vec<String> = parsed.iter().map(write).collect();
    let header = HeaderValue::from_bytes(rewritten.join(", ").as_bytes());
    let header = header.unwrap_or_else(|error| panic!("{error}: {rewritten:?}"));
    assert_eq!(parse(header), parsed, "{rewritten:?}");

    let hosts = Hosts::default();
    for registry in ["https://registry.test:5000/", "http://registry.test/"] {
        let origin = Url::parse(registry).unwrap_or_else(|error| panic!("{error}"));
        for challenge in &parsed {
            let Challenge::Bearer { realm, service } = challenge else {
                continue;
            };
            let Some(realm) = Realm::of(&hosts, &origin, realm, service.clone()) else {
                continue;
            };
            let url = &realm.url;
            assert!(
                url.scheme() == "https" || registry.starts_with("http:") && url.scheme() == "http",
                "{url}"
            );
            assert!(
                url.has_host() && url.username().is_empty() && url.password().is_none(),
                "{url}"
            );
            let owners = [CredentialOwner::Pod, CredentialOwner::Operator];
            let may_see = |owner| realm.may_see_credentials(&hosts, &origin, owner);
            if owners.into_iter().any(may_see) {
                assert_eq!(url.host(), origin.host());
                assert!(
                    url.origin() == origin.origin() || url.scheme() == origin.scheme(),
                    "{url}"
                );
            }
        }
    }
    true
}

fn parse(header: HeaderValue) -> Vec<Challenge> {
    challenges(&HeaderMap::from_iter([(WWW_AUTHENTICATE, header)]))
}

fn write(challenge: &Challenge) -> String {
    let quoted = |text: &str| text.replace('\\', r"\\").replace('"', r#"\""#);
    match challenge {
        Challenge::Basic => "Basic".to_owned(),
        Challenge::Bearer {
            realm,
            service: None,
        } => format!(r#"Bearer realm="{}""#, quoted(realm)),
        Challenge::Bearer {
            realm,
            service: Some(service),
        } => {
            format!(
                r#"Bearer realm="{}",service="{}""#,
                quoted(realm),
                quoted(service)
            )
        }
    }
}
