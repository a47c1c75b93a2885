//! Tokens: fetched where a challenge says, and remembered.
//!
//! What a registry wants is remembered by its origin; a token by origin, repository, realm and the credential that it was
//! issued for. So the next lookup of a repository is one request, and no caller uses a token of another one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderValue, Method};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::Deserialize;
use tokio::time::{Duration, Instant};
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::challenge::{Challenge, challenges};
use super::fetches::Fetches;
use super::realm::Realm;
use crate::credentials::{Credential, CredentialId};
use crate::registry::error::Error;
use crate::registry::hosts::{Endpoint, Hosts};
use crate::registry::limits;
use crate::registry::metrics::RequestKind;
use crate::registry::net::{HttpRequest, HttpResponse, Transport, label};
use crate::registry::trace::Recorder;

const UNUSABLE: &str = "the registry's token server issued no usable token";
/// The `client_id` of token requests.
const CLIENT: &str = "tolerarch";

/// How registries authenticate clients, and the tokens that they issued.
pub(crate) struct Tokens {
    /// By origin.
    schemes: Cache<String, Scheme>,
    tokens: Cache<TokenKey, CachedToken, Weight>,
    fetches: Fetches<TokenKey, Result<HeaderValue, Error>>,
}

/// What a token is needed for.
#[derive(Clone, Copy)]
pub(crate) struct TokenRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) repository: &'a str,
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) recorder: &'a Recorder,
}

/// How a registry authenticates clients.
#[derive(Clone)]
enum Scheme {
    /// User name and password.
    Basic,
    /// A token of this realm.
    Bearer {
        realm: Realm,
        /// Whether it issues tokens for a password by GET, and not by POST.
        by_get: bool,
    },
}

/// What a token may be used for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TokenKey {
    origin: String,
    repository: String,
    credential: CredentialId,
    headers_fingerprint: Option<u64>,
    realm: Realm,
}

#[derive(Clone)]
struct CachedToken {
    authorization: HeaderValue,
    expires: Instant,
}

/// Weighs a token by the memory that it takes.
#[derive(Clone)]
struct Weight;

impl Weighter<TokenKey, CachedToken> for Weight {
    fn weight(&self, key: &TokenKey, token: &CachedToken) -> u64 {
        let TokenKey { origin, repository, realm: Realm { url, service }, .. } = key;
        let texts =
            origin.len() + repository.len() + url.as_str().len() + service.as_ref().map_or(0, String::len);
        (texts + token.authorization.len() + size_of::<(TokenKey, CachedToken)>()) as u64
    }
}

/// A token server's response; some use one name, some the other, some both.
#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
    /// Seconds; some servers write -1 for a token that does not expire.
    expires_in: Option<i64>,
}

impl TokenRequest<'_> {
    fn origin(&self) -> &Url {
        &self.endpoint.origin
    }

    fn key(&self, realm: &Realm) -> TokenKey {
        TokenKey {
            origin: self.origin().to_string(),
            repository: self.repository.to_owned(),
            credential: self.credential.map_or(CredentialId::ANONYMOUS, Credential::id),
            headers_fingerprint: self.endpoint.headers_fingerprint(),
            realm: realm.clone(),
        }
    }

    /// Our own scope, never the one of a challenge.
    fn scope(&self) -> String {
        format!("repository:{}:pull", self.repository)
    }

    /// Whether this realm may be asked with this credential, or anonymously.
    fn may_ask(&self, hosts: &Hosts, realm: &Realm) -> bool {
        match self.credential {
            None => realm.may_be_asked(hosts, self.origin()),
            Some(_) => realm.may_see_credentials(hosts, self.origin()),
        }
    }
}

impl Tokens {
    pub(crate) fn new() -> Self {
        Self {
            schemes: Cache::new(limits::CHALLENGES),
            tokens: Cache::with_weighter(limits::TOKENS, limits::TOKENS_BYTES, Weight),
            fetches: Fetches::default(),
        }
    }

    /// The `Authorization` of a first request, where it is known what the registry wants: the remembered token, or a new
    /// one, or the password.
    pub(crate) async fn remembered(
        &self,
        transport: &Transport,
        hosts: &Hosts,
        request: TokenRequest<'_>,
    ) -> Result<Option<HeaderValue>, Error> {
        if let Some(Credential::Bearer(token)) = request.credential {
            return bearer(token.reveal()).map(Some);
        }
        match self.schemes.get(request.origin().as_str()) {
            None => Ok(None),
            Some(Scheme::Basic) => Ok(request.credential.and_then(basic)),
            Some(Scheme::Bearer { realm, .. }) if !request.may_ask(hosts, &realm) => Ok(None),
            Some(Scheme::Bearer { realm, by_get }) => {
                if let Some(token) = self.valid(&request.key(&realm)) {
                    return Ok(Some(token));
                }
                let fetched = self.fetch(transport, request, realm, by_get).await;
                if fetched.is_err() {
                    // Perhaps the registry wants something else by now: the next lookup asks it again.
                    self.schemes.remove(request.origin().as_str());
                }
                fetched.map(Some)
            }
        }
    }

    /// The `Authorization` that the challenge of a 401 asks for; a token is preferred to a password, as in containerd
    /// (`core/remotes/docker/auth/parse.go`). The token that was refused is forgotten; `sent` is what was refused.
    pub(crate) async fn renewed(
        &self,
        transport: &Transport,
        hosts: &Hosts,
        request: TokenRequest<'_>,
        sent: Option<&HeaderValue>,
        refused: &HttpResponse,
    ) -> Result<HeaderValue, Error> {
        if let Some(Scheme::Bearer { realm, .. }) = self.schemes.get(request.origin().as_str()) {
            let key = request.key(&realm);
            // Another lookup may have renewed it since.
            match self.valid(&key).filter(|token| Some(token) != sent) {
                Some(token) => return Ok(token),
                None => drop(self.tokens.remove(&key)),
            }
        }
        if let Some(Credential::Bearer(_)) = request.credential {
            return Err(Error::Denied("the registry refused the token".into()));
        }
        let challenges = challenges(&refused.headers);
        let mut error = Error::Denied("the registry asks for credentials".into());
        for challenge in &challenges {
            let Challenge::Bearer { realm, service } = challenge else { continue };
            match Realm::of(hosts, request.origin(), realm, service.clone()) {
                Some(realm) if request.may_ask(hosts, &realm) => {
                    return self.fetch(transport, request, realm, false).await;
                }
                Some(realm) => {
                    error = Error::TokenHost { registry: label(request.origin()), host: realm.host() };
                }
                None => error = Error::Denied("the registry named a realm that may not be asked".into()),
            }
        }
        let password = request.credential.filter(|_| challenges.contains(&Challenge::Basic)).and_then(basic);
        let Some(password) = password else { return Err(error) };
        self.schemes.insert(request.origin().to_string(), Scheme::Basic);
        // The same would be refused again, and perhaps counted against the account.
        if sent == Some(&password) {
            Err(Error::Denied("the registry refused the credentials".into()))
        } else {
            Ok(password)
        }
    }

    /// A remembered token that has not expired.
    fn valid(&self, key: &TokenKey) -> Option<HeaderValue> {
        let token = self.tokens.get(key).filter(|token| Instant::now() < token.expires);
        token.map(|token| token.authorization)
    }

    /// Fetches a token, or waits for another lookup that fetches it.
    async fn fetch(
        &self,
        transport: &Transport,
        request: TokenRequest<'_>,
        realm: Realm,
        by_get: bool,
    ) -> Result<HeaderValue, Error> {
        let key = request.key(&realm);
        self.fetches.join(&key, self.fetch_now(transport, request, realm, by_get)).await
    }

    /// Fetches a token and remembers it, and where it came from. With a credential by POST first; where that cannot be,
    /// by GET, as containerd does (`core/remotes/docker/authorizer.go`: GCR says 404, Artifactory 401, ACR 400).
    async fn fetch_now(
        &self,
        transport: &Transport,
        request: TokenRequest<'_>,
        realm: Realm,
        by_get: bool,
    ) -> Result<HeaderValue, Error> {
        let mut by_get = by_get && matches!(request.credential, Some(Credential::Basic { .. }));
        let mut response = None;
        if let Some(credential) = request.credential.filter(|_| !by_get) {
            let posted = post(transport, request, &realm, credential).await?;
            by_get = matches!(posted.status.as_u16(), 400 | 401 | 404 | 405);
            response = Some(posted).filter(|_| !by_get);
        }
        let response = match response {
            Some(response) => response,
            None => get(transport, request, &realm).await?,
        };
        let (authorization, life) = read(&response)?;
        let expires = Instant::now() + life.saturating_sub(limits::TOKEN_MARGIN);
        self.tokens
            .insert(request.key(&realm), CachedToken { authorization: authorization.clone(), expires });
        self.schemes.insert(request.origin().to_string(), Scheme::Bearer { realm, by_get });
        Ok(authorization)
    }
}

/// Asks for a token as the token specification has it: a password, if there is one, in the header.
async fn get(transport: &Transport, request: TokenRequest<'_>, realm: &Realm) -> Result<HttpResponse, Error> {
    let mut url = realm.url.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &realm.service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &request.scope());
    }
    let password = request.credential.and_then(basic);
    send(transport, request, Method::GET, &url, password.as_ref(), None).await
}

/// Asks for a token in the OAuth2 form, with everything in the body.
async fn post(
    transport: &Transport,
    request: TokenRequest<'_>,
    realm: &Realm,
    credential: &Credential,
) -> Result<HttpResponse, Error> {
    let form = form(request, realm, credential);
    send(transport, request, Method::POST, &realm.url, None, Some(form)).await
}

async fn send(
    transport: &Transport,
    request: TokenRequest<'_>,
    method: Method,
    url: &Url,
    authorization: Option<&HeaderValue>,
    form: Option<Bytes>,
) -> Result<HttpResponse, Error> {
    let http = HttpRequest {
        kind: RequestKind::Token,
        method,
        url,
        accept: "application/json",
        authorization,
        headers: None,
        form,
        limit: limits::TOKEN,
        recorder: request.recorder,
    };
    request.endpoint.send(transport, http, request.endpoint.is_at(url)).await
}

/// The form of such a request; wiped when it is dropped.
fn form(request: TokenRequest<'_>, realm: &Realm, credential: &Credential) -> Bytes {
    let mut form = form_urlencoded::Serializer::new(String::new());
    match credential {
        Credential::Basic { user, password } => {
            form.append_pair("grant_type", "password");
            form.append_pair("username", user);
            form.append_pair("password", password.reveal());
        }
        Credential::Identity(token) | Credential::Bearer(token) => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", token.reveal());
        }
    }
    form.append_pair("client_id", CLIENT);
    form.append_pair("scope", &request.scope());
    if let Some(service) = &realm.service {
        form.append_pair("service", service);
    }
    Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()))
}

/// The token of a response, and how long it lives.
fn read(response: &HttpResponse) -> Result<(HeaderValue, Duration), Error> {
    match response.status.as_u16() {
        200..=299 => {}
        _ if response.is_throttled() => return Err(Error::Throttled(response.retry_after())),
        status @ 400..=499 => {
            return Err(Error::Denied(format!("the registry's token server answered {status}").into()));
        }
        status @ 500.. => {
            return Err(Error::Unreachable(format!("the registry's token server answered {status}")));
        }
        status => return Err(Error::Unexpected(format!("the registry's token server answered {status}"))),
    }
    let unusable = || Error::Denied(UNUSABLE.into());
    let given: TokenResponse = serde_json::from_slice(response.body()).map_err(|_| unusable())?;
    let token = given.token.filter(|token| !token.is_empty()).or(given.access_token);
    Ok((bearer(&token.ok_or_else(unusable)?)?, life(given.expires_in)))
}

fn life(expires_in: Option<i64>) -> Duration {
    let given = expires_in.and_then(|seconds| u64::try_from(seconds).ok());
    given.map_or(limits::TOKEN_LIFE, Duration::from_secs).min(limits::TOKEN_LIFE_MAX)
}

/// The header with a token.
fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let usable =
        (1..=limits::TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let text = usable.then(|| Zeroizing::new(format!("Bearer {token}")));
    text.and_then(|text| sensitive(&text)).ok_or(Error::Denied(UNUSABLE.into()))
}

/// The header with a password; an identity token goes without a user, as containerd sends it.
fn basic(credential: &Credential) -> Option<HeaderValue> {
    let (user, password) = match credential {
        Credential::Basic { user, password } => (user.as_str(), password),
        Credential::Identity(token) => ("", token),
        Credential::Bearer(_) => return None,
    };
    let plain = Zeroizing::new(format!("{user}:{}", password.reveal()));
    sensitive(&format!("Basic {}", *Zeroizing::new(BASE64.encode(plain.as_bytes()))))
}

/// A header value that no `Debug` shows.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_without_a_sensible_life_lives_for_the_default() {
        for (text, expected) in [
            (r#"{"token": "t"}"#, limits::TOKEN_LIFE),
            (r#"{"token": "t", "expires_in": -1}"#, limits::TOKEN_LIFE),
            (r#"{"token": "t", "expires_in": 300}"#, Duration::from_secs(300)),
            (r#"{"token": "t", "expires_in": 9223372036854775807}"#, limits::TOKEN_LIFE_MAX),
        ] {
            let read: TokenResponse = serde_json::from_str(text).unwrap();
            assert_eq!(life(read.expires_in), expected, "{text}");
        }
    }
}
