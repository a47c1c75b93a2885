//! How a registry is told who asks: a token (distribution's token specification and its OAuth2 form), or a password.
//!
//! What a registry wants is remembered by its origin, a token by origin, repository, realm and the credential that it was
//! got with, so that the next lookup of a repository is one request and nobody uses a token of somebody else.

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

use super::authority::label;
use super::challenge::{self, Challenge};
use super::endpoint::Endpoint;
use super::host::Hosts;
use super::realm::Realm;
use super::transport::{Answer, Get, Transport};
use super::{Error, RequestKind, limits};
use crate::credentials::{Credential, CredentialId};

/// As what this program asks for tokens.
const CLIENT: &str = "tolerarch";

/// What is remembered of registries' ways to authenticate.
pub(super) struct Tokens {
    /// By origin: what it wants to be shown.
    schemes: Cache<String, Scheme>,
    tokens: Cache<Key, Token, Weight>,
}

/// As whom something of a registry is asked for.
#[derive(Clone, Copy)]
pub(super) struct Access<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) repository: &'a str,
    pub(super) credential: Option<&'a Credential>,
}

/// What a registry wants to be shown.
#[derive(Clone)]
enum Scheme {
    /// User name and password.
    Basic,
    /// A token of this realm.
    Bearer {
        realm: Realm,
        /// Whether it gives tokens for a password by GET, and not by POST.
        by_get: bool,
    },
}

/// What a token is good for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    origin: String,
    repository: String,
    access: CredentialId,
    /// What was sent along.
    seal: Option<u64>,
    realm: Realm,
}

#[derive(Clone)]
struct Token {
    authorization: HeaderValue,
    expires: Instant,
}

/// Weighs a token by the memory that it takes.
#[derive(Clone)]
struct Weight;

impl Weighter<Key, Token> for Weight {
    fn weight(&self, key: &Key, token: &Token) -> u64 {
        let Key { origin, repository, realm: Realm { url, service }, .. } = key;
        let texts =
            origin.len() + repository.len() + url.as_str().len() + service.as_ref().map_or(0, String::len);
        (texts + token.authorization.len() + size_of::<(Key, Token)>()) as u64
    }
}

/// What a token server answers; some use one name, some the other, some both.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Access<'_> {
    fn origin(&self) -> &Url {
        &self.endpoint.origin
    }

    fn key(&self, realm: &Realm) -> Key {
        Key {
            origin: self.origin().to_string(),
            repository: self.repository.to_owned(),
            access: self.credential.map_or(CredentialId::ANONYMOUS, Credential::id),
            seal: self.endpoint.seal(),
            realm: realm.clone(),
        }
    }

    /// Our own scope, never the one of a challenge.
    fn scope(&self) -> String {
        format!("repository:{}:pull", self.repository)
    }

    /// Whether this realm may be asked on behalf of whoever asks.
    fn may_ask(&self, hosts: &Hosts, realm: &Realm) -> bool {
        match self.credential {
            None => realm.may_be_asked(hosts, self.origin()),
            Some(_) => realm.may_see_credentials(hosts, self.origin()),
        }
    }
}

impl Tokens {
    pub(super) fn new() -> Self {
        Self {
            schemes: Cache::new(limits::CHALLENGES),
            tokens: Cache::with_weighter(limits::TOKENS, limits::TOKENS_BYTES, Weight),
        }
    }

    /// What to authorise a first request with, where it is known what the registry wants: the remembered token, or a new
    /// one, or the password; `None` to ask straight away.
    pub(super) async fn remembered(
        &self,
        transport: &Transport,
        hosts: &Hosts,
        access: Access<'_>,
    ) -> Result<Option<HeaderValue>, Error> {
        if let Some(Credential::Bearer(token)) = access.credential {
            return bearer(token.reveal()).map(Some);
        }
        match self.schemes.get(access.origin().as_str()) {
            None => Ok(None),
            Some(Scheme::Basic) => Ok(access.credential.and_then(basic)),
            Some(Scheme::Bearer { realm, .. }) if !access.may_ask(hosts, &realm) => Ok(None),
            Some(Scheme::Bearer { realm, by_get }) => {
                let token = self.tokens.get(&access.key(&realm));
                if let Some(token) = token.filter(|token| Instant::now() < token.expires) {
                    return Ok(Some(token.authorization));
                }
                let fetched = self.fetch(transport, access, realm, by_get).await;
                if fetched.is_err() {
                    // Perhaps the registry wants something else by now: the next lookup asks it.
                    self.schemes.remove(access.origin().as_str());
                }
                fetched.map(Some)
            }
        }
    }

    /// What the challenge of a 401 asks for, a token before a password as containerd chooses
    /// (`core/remotes/docker/auth/parse.go`). The token that was refused is forgotten; `sent` is what was refused.
    pub(super) async fn renewed(
        &self,
        transport: &Transport,
        hosts: &Hosts,
        access: Access<'_>,
        sent: Option<&HeaderValue>,
        refused: &Answer,
    ) -> Result<HeaderValue, Error> {
        if let Some(Scheme::Bearer { realm, .. }) = self.schemes.get(access.origin().as_str()) {
            self.tokens.remove(&access.key(&realm));
        }
        if let Some(Credential::Bearer(_)) = access.credential {
            return Err(Error::Denied("it refuses the token"));
        }
        let headers = refused.headers.get_all(http::header::WWW_AUTHENTICATE);
        let challenges = challenge::parse(headers.iter().filter_map(|value| value.to_str().ok()));
        let mut fault = Error::Denied("it asks for credentials");
        for challenge in &challenges {
            let Challenge::Bearer { realm, service } = challenge else { continue };
            match Realm::of(hosts, access.origin(), realm, service.clone()) {
                Some(realm) if access.may_ask(hosts, &realm) => {
                    return self.fetch(transport, access, realm, false).await;
                }
                Some(realm) => {
                    fault = Error::TokenHost { registry: label(access.origin()), host: realm.host() };
                }
                None => fault = Error::Denied("its realm is not acceptable"),
            }
        }
        let password = access.credential.filter(|_| challenges.contains(&Challenge::Basic)).and_then(basic);
        let Some(password) = password else { return Err(fault) };
        self.schemes.insert(access.origin().to_string(), Scheme::Basic);
        // The same again would be refused again, and perhaps counted against the account.
        if sent == Some(&password) { Err(Error::Denied("it refuses the credentials")) } else { Ok(password) }
    }

    /// Fetches a token and remembers it, and where it came from. With a credential by POST first; where that cannot be,
    /// by GET, as containerd does (`core/remotes/docker/authorizer.go`: GCR says 404, Artifactory 401, ACR 400).
    async fn fetch(
        &self,
        transport: &Transport,
        access: Access<'_>,
        realm: Realm,
        by_get: bool,
    ) -> Result<HeaderValue, Error> {
        let mut by_get = by_get && matches!(access.credential, Some(Credential::Basic { .. }));
        let mut answer = None;
        if let Some(credential) = access.credential.filter(|_| !by_get) {
            let posted = post(transport, access, &realm, credential).await?;
            by_get = matches!(posted.status.as_u16(), 400 | 401 | 404 | 405);
            answer = Some(posted).filter(|_| !by_get);
        }
        let answer = match answer {
            Some(answer) => answer,
            None => get(transport, access, &realm).await?,
        };
        let (authorization, life) = read(&answer)?;
        let expires = Instant::now() + life.saturating_sub(limits::TOKEN_MARGIN);
        self.tokens.insert(access.key(&realm), Token { authorization: authorization.clone(), expires });
        self.schemes.insert(access.origin().to_string(), Scheme::Bearer { realm, by_get });
        Ok(authorization)
    }
}

/// Asks for a token as the token specification has it: a password, if there is one, in the header.
async fn get(transport: &Transport, access: Access<'_>, realm: &Realm) -> Result<Answer, Error> {
    let mut url = realm.url.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &realm.service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &access.scope());
    }
    let password = access.credential.and_then(basic);
    let get = Get {
        kind: RequestKind::Token,
        method: Method::GET,
        url: &url,
        home: access.endpoint.at_home(&url),
        accept: "application/json",
        authorization: password.as_ref(),
        limit: limits::TOKEN,
        form: None,
    };
    transport.get(&get).await
}

/// Asks for a token in the OAuth2 form, with everything in the body.
async fn post(
    transport: &Transport,
    access: Access<'_>,
    realm: &Realm,
    credential: &Credential,
) -> Result<Answer, Error> {
    let get = Get {
        kind: RequestKind::Token,
        method: Method::POST,
        url: &realm.url,
        home: access.endpoint.at_home(&realm.url),
        accept: "application/json",
        authorization: None,
        limit: limits::TOKEN,
        form: Some(form(access, realm, credential)),
    };
    transport.get(&get).await
}

/// The form of such a request; wiped when it is dropped.
fn form(access: Access<'_>, realm: &Realm, credential: &Credential) -> Bytes {
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
    form.append_pair("scope", &access.scope());
    if let Some(service) = &realm.service {
        form.append_pair("service", service);
    }
    Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()))
}

/// What a token server has given, and for how long.
fn read(answer: &Answer) -> Result<(HeaderValue, Duration), Error> {
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
    let life = given.expires_in.map_or(limits::TOKEN_LIFE, Duration::from_secs).min(limits::TOKEN_LIFE_MAX);
    Ok((bearer(&token.ok_or_else(unusable)?)?, life))
}

/// The header with a token.
fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let usable =
        (1..=limits::TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let text = usable.then(|| Zeroizing::new(format!("Bearer {token}")));
    text.and_then(|text| sensitive(&text)).ok_or(Error::Denied("its token server gives no usable token"))
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
