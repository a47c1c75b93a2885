//! Bearer tokens (distribution's token specification): where they are fetched, and which are remembered.
//!
//! Access is anonymous. A challenge is remembered by host, a token by host and repository, so that the next lookup of
//! a repository is one request.

use http::{HeaderValue, Method};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Deserialize;
use tokio::time::{Duration, Instant};
use url::Url;

use super::challenge::{self, Challenge};
use super::host::Hosts;
use super::transport::{Answer, Get, Transport};
use super::{Error, limits};
use crate::metrics::RequestKind;

/// What is remembered of registries' ways to authenticate.
pub(super) struct Tokens {
    /// By origin: where its tokens are fetched.
    realms: Cache<String, Realm>,
    /// By origin and repository.
    tokens: Cache<String, Token, Bytes>,
}

/// Where a registry's tokens are fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Realm {
    url: Url,
    service: Option<String>,
}

#[derive(Clone)]
struct Token {
    /// `Bearer …`, marked as sensitive.
    authorization: HeaderValue,
    expires: Instant,
}

/// Weighs a token by the memory that it takes.
#[derive(Clone)]
struct Bytes;

impl Weighter<String, Token> for Bytes {
    fn weight(&self, key: &String, token: &Token) -> u64 {
        (key.len() + token.authorization.len() + size_of::<Token>()) as u64
    }
}

/// What a token server answers; some use one name, some the other, some both.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Tokens {
    pub(super) fn new() -> Self {
        Self {
            realms: Cache::new(limits::CHALLENGES),
            tokens: Cache::with_weighter(limits::TOKENS, limits::TOKENS_BYTES, Bytes),
        }
    }

    /// What to authorise a first request with: the remembered token, or a new one where the registry is known to want
    /// one; `None` to ask straight away.
    pub(super) async fn remembered(
        &self,
        transport: &Transport,
        origin: &Url,
        repository: &str,
    ) -> Result<Option<HeaderValue>, Error> {
        if let Some(token) =
            self.tokens.get(&key(origin, repository)).filter(|token| Instant::now() < token.expires)
        {
            return Ok(Some(token.authorization));
        }
        let Some(realm) = self.realms.get(origin.as_str()) else {
            return Ok(None);
        };
        let fetched = self.fetch(transport, origin, repository, &realm).await;
        if fetched.is_err() {
            // Perhaps the registry wants something else by now: the next lookup asks it.
            self.realms.remove(origin.as_str());
        }
        fetched.map(Some)
    }

    /// A new token, as the challenge of a 401 asks for it. What was remembered is forgotten.
    pub(super) async fn renewed(
        &self,
        transport: &Transport,
        hosts: &Hosts,
        origin: &Url,
        repository: &str,
        refused: &Answer,
    ) -> Result<HeaderValue, Error> {
        self.tokens.remove(&key(origin, repository));
        let headers = refused.headers.get_all(http::header::WWW_AUTHENTICATE);
        let challenges = challenge::parse(headers.iter().filter_map(|value| value.to_str().ok()));
        let bearer = challenges.into_iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service)),
            Challenge::Basic => None,
        });
        let short = |text: &String| text.len() <= limits::CHALLENGE_BYTES;
        let bearer = bearer.filter(|(realm, service)| short(realm) && service.iter().all(short));
        let (realm, service) = bearer.ok_or(Error::Denied("it asks for credentials"))?;
        let url = realm_url(hosts, origin, &realm).ok_or(Error::Denied("its realm is not acceptable"))?;
        let realm = Realm { url, service };
        let authorization = self.fetch(transport, origin, repository, &realm).await?;
        self.realms.insert(origin.to_string(), realm);
        Ok(authorization)
    }

    async fn fetch(
        &self,
        transport: &Transport,
        origin: &Url,
        repository: &str,
        realm: &Realm,
    ) -> Result<HeaderValue, Error> {
        let mut url = realm.url.clone();
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = &realm.service {
                query.append_pair("service", service);
            }
            // Our own scope, never the one of the challenge.
            query.append_pair("scope", &format!("repository:{repository}:pull"));
        }
        let get = Get {
            kind: RequestKind::Token,
            method: Method::GET,
            url: &url,
            accept: "application/json",
            authorization: None,
            limit: limits::TOKEN,
        };
        let answer = transport.get(&get).await?;
        match answer.status.as_u16() {
            200..=299 => {}
            429 => return Err(Error::Throttled(answer.retry_after())),
            400..=499 => return Err(Error::Denied("its token server refuses")),
            status @ 500.. => {
                return Err(Error::Unreachable(format!("its token server answers with status {status}")));
            }
            status => return Err(Error::Unexpected(format!("status {status} of its token server"))),
        }
        let unusable = || Error::Denied("its token server gives no usable token");
        let given: TokenAnswer = serde_json::from_slice(answer.body()).map_err(|_| unusable())?;
        let token = given.token.filter(|token| !token.is_empty()).or(given.access_token);
        let token = token
            .filter(|token| {
                (1..=limits::TOKEN_BYTES).contains(&token.len())
                    && token.bytes().all(|b| b.is_ascii_graphic())
            })
            .ok_or_else(unusable)?;
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| unusable())?;
        authorization.set_sensitive(true);
        let life =
            given.expires_in.map_or(limits::TOKEN_LIFE, Duration::from_secs).min(limits::TOKEN_LIFE_MAX);
        let expires = Instant::now() + life.saturating_sub(limits::TOKEN_MARGIN);
        self.tokens.insert(key(origin, repository), Token { authorization: authorization.clone(), expires });
        Ok(authorization)
    }
}

fn key(origin: &Url, repository: &str) -> String {
    format!("{origin}{repository}")
}

/// Where to fetch a token: the realm relative to the registry, HTTPS unless the registry itself has none, without user
/// information. Its host may be another one, as no credential is sent; the address guard looks at it all the same.
fn realm_url(hosts: &Hosts, origin: &Url, realm: &str) -> Option<Url> {
    let mut url = origin.join(realm).ok()?;
    let plain = origin.scheme() == "http" || hosts.is_plain(&super::host::authority(&url));
    let scheme = url.scheme() == "https" || plain && url.scheme() == "http";
    if !scheme || !url.has_host() || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    url.set_fragment(None);
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_realms_that_cannot_hurt() {
        let hosts = Hosts::default();
        let url = |origin: &str, realm: &str| {
            realm_url(&hosts, &Url::parse(origin).unwrap(), realm).map(String::from)
        };
        let https = "https://registry.test:5000/";
        for (origin, realm, expected) in [
            (https, "https://auth.test/token", Some("https://auth.test/token")),
            (https, "https://auth.test/token?a=b#c", Some("https://auth.test/token?a=b")),
            (https, "/token", Some("https://registry.test:5000/token")),
            (https, "token", Some("https://registry.test:5000/token")),
            (https, "//auth.test/token", Some("https://auth.test/token")),
            (https, "http://auth.test/token", None),
            (https, "https://user:secret@auth.test/", None),
            (https, "file:///etc/passwd", None),
            (https, "https://", None),
            ("http://registry.test/", "http://auth.test/token", Some("http://auth.test/token")),
            ("http://registry.test/", "ftp://auth.test/token", None),
        ] {
            assert_eq!(url(origin, realm).as_deref(), expected, "{realm} of {origin}");
        }
    }
}
