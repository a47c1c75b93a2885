//! Fetches tokens from the realm that a challenge names, and caches them. A scheme is cached by origin, a token by
//! origin, repository, realm and credential. So the next lookup in a repository takes one request, and no caller uses a
//! token of another credential.

use std::sync::Arc;

use http::HeaderValue;
use quick_cache::sync::Cache;
use tokio::time::Duration;

use super::challenge::{Challenge, challenges};
use super::exchange::{TokenRequest, basic_header, bearer_header, read_answer};
use super::realm::Realm;
use crate::credentials::{Credential, CredentialId};
use crate::registry::error::Error;
use crate::registry::net::{label, shown_host};
use crate::registry::response::HttpResponse;
use crate::registry::target::Target;
use crate::ttl_cache::{Timed, TtlCache};

/// Maximum number of cached schemes, by origin.
const MAX_SCHEMES: usize = 1000;
/// Maximum number of cached tokens, by repository and credential.
const MAX_TOKENS: usize = 10_000;
/// Maximum bytes of all cached tokens.
const MAX_TOKEN_BYTES: u64 = 16 << 20;
/// A token is no longer used from this time before it expires.
const EXPIRY_MARGIN: Duration = Duration::from_secs(5);

pub(crate) struct Tokens {
    /// Schemes by origin.
    schemes: Cache<String, Scheme>,
    tokens: Arc<TtlCache<TokenKey, HeaderValue>>,
    /// Requests under way. They are shared because many tags of one repository are often looked up at once. Each
    /// request is part of a lookup, with that lookup's tenant, trace and end, so it is not a task of a `SingleFlight`.
    fetches: Cache<Fetch, Authorization>,
}

/// A request for a token.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Fetch {
    key: TokenKey,
    /// True if a password is sent by GET, without trying POST first.
    by_get: bool,
}

type Authorization = Result<HeaderValue, Error>;

#[derive(Clone)]
enum Scheme {
    Basic,
    Bearer {
        realm: Realm,
        /// True if the realm issues tokens for a password by GET only, not by POST.
        by_get: bool,
        /// True if the last request to the realm was refused or failed. The realm may have moved, so it is used again
        /// only when a challenge names it.
        is_doubtful: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct TokenKey {
    origin: String,
    repository: String,
    credential: CredentialId,
    headers_fingerprint: Option<u64>,
    realm: Realm,
}

impl TokenKey {
    fn of(request: TokenRequest<'_>, realm: Realm) -> Self {
        Self {
            origin: request.endpoint.origin.to_string(),
            repository: request.repository.to_owned(),
            credential: request
                .credential
                .map_or(CredentialId::ANONYMOUS, Credential::id),
            headers_fingerprint: request.endpoint.headers_fingerprint(),
            realm,
        }
    }

    /// Estimates the bytes of a token and its key.
    fn weight(&self, (token, _): &Timed<HeaderValue>) -> u64 {
        let Self {
            origin,
            repository,
            realm: Realm { url, service },
            ..
        } = self;
        let texts = origin.len()
            + repository.len()
            + url.as_str().len()
            + service.as_ref().map_or(0, String::len);
        (texts + token.len() + size_of::<(Self, HeaderValue)>()) as u64
    }
}

impl Tokens {
    pub(crate) fn new() -> Self {
        Self {
            schemes: Cache::new(MAX_SCHEMES),
            tokens: TtlCache::new(MAX_TOKENS, MAX_TOKEN_BYTES, TokenKey::weight),
            fetches: Cache::new(MAX_TOKENS),
        }
    }

    /// Returns the `Authorization` of a first request, if the registry's scheme is cached: a token or the password.
    pub(crate) async fn for_first_request(
        &self,
        request: TokenRequest<'_>,
    ) -> Result<Option<HeaderValue>, Error> {
        if let Some(Credential::Bearer(token)) = request.credential {
            // No request was sent, so the registry has refused nothing.
            let header = bearer_header(token.reveal()).map_err(|_| Error::NoCredential)?;
            return Ok(Some(header));
        }
        if let Some(Scheme::Basic) = self.schemes.get(request.endpoint.origin.as_str()) {
            return Ok(request.credential.and_then(basic_header));
        }
        let Some(fetch) = self.fetch_at_cached_realm(request) else {
            return Ok(None);
        };
        if let Some(token) = self.tokens.get(&fetch.key) {
            return Ok(Some(token));
        }
        if self.is_doubtful(&fetch.key) {
            return Ok(None);
        }
        let realm = fetch.key.realm.clone();
        let by_get = fetch.by_get;
        let token = self.fetch(request, fetch).await;
        match token {
            Ok(token) => Ok(Some(token)),
            Err(Error::Crowded) => Err(Error::Crowded),
            Err(error) => {
                let scheme = Scheme::Bearer {
                    realm,
                    by_get,
                    is_doubtful: true,
                };
                let origin = request.endpoint.origin.to_string();
                self.schemes.insert(origin, scheme);
                Err(error)
            }
        }
    }

    /// Returns whether the cached realm has issued no token since it last refused one or failed.
    fn is_doubtful(&self, key: &TokenKey) -> bool {
        match self.schemes.get(key.origin.as_str()) {
            Some(Scheme::Bearer { is_doubtful, .. }) => is_doubtful,
            _ => false,
        }
    }

    /// Returns the request for a token from the cached realm. `None` if there is no cached realm, or it may not be used
    /// for this request.
    fn fetch_at_cached_realm(&self, request: TokenRequest<'_>) -> Option<Fetch> {
        match self.schemes.get(request.endpoint.origin.as_str())? {
            Scheme::Bearer { realm, by_get, .. } if request.may_use(&realm) => {
                let key = TokenKey::of(request, realm);
                Some(Fetch { key, by_get })
            }
            _ => None,
        }
    }

    /// Returns the `Authorization` that the challenge of a 401 demands. A token is preferred to a password, as in
    /// containerd (`core/remotes/docker/auth/parse.go`). The registry refused `sent`; if that is a cached token, it is
    /// removed from the cache.
    pub(crate) async fn after_refusal(
        &self,
        request: TokenRequest<'_>,
        sent: Option<&HeaderValue>,
        refused: &HttpResponse,
    ) -> Result<HeaderValue, Error> {
        let mut cached = None;
        if request.target == Target::Registry {
            cached = self.fetch_at_cached_realm(request);
        }
        if let Some(Fetch { key, .. }) = &cached {
            match self.tokens.get(key) {
                // Another lookup has already replaced the refused token.
                Some(token) if Some(&token) != sent => return Ok(token),
                _ => self.tokens.remove(key),
            }
        }
        if let Some(Credential::Bearer(_)) = request.credential {
            return Err(Error::Denied("the registry refused the token".into()));
        }
        let challenges = challenges(&refused.headers);
        let error = match usable_realm(request, &challenges) {
            Ok(realm) => {
                let key = TokenKey::of(request, realm);
                let by_get = match cached {
                    Some(cached) => cached.by_get && cached.key == key,
                    None => false,
                };
                return self.fetch(request, Fetch { key, by_get }).await;
            }
            Err(error) => error,
        };
        if !challenges.contains(&Challenge::Basic) {
            return Err(error);
        }
        let Some(password) = request.credential.and_then(basic_header) else {
            return Err(error);
        };
        let origin = request.endpoint.origin.to_string();
        self.schemes.insert(origin, Scheme::Basic);
        if sent == Some(&password) {
            // The registry would refuse the same password again, and might count that against the account.
            return Err(Error::Denied("the registry refused the credentials".into()));
        }
        Ok(password)
    }

    /// Returns another token for the same password by GET, if the refused one may have been issued by POST. OpenShift's
    /// token server ignores the form, and answers it with an anonymous token.
    pub(crate) async fn by_get(
        &self,
        request: TokenRequest<'_>,
        refused: &HeaderValue,
    ) -> Result<Option<HeaderValue>, Error> {
        let is_password = matches!(request.credential, Some(Credential::Basic { .. }));
        if !is_password {
            return Ok(None);
        }
        let Some(Fetch { key, by_get }) = self.fetch_at_cached_realm(request) else {
            return Ok(None);
        };
        match self.tokens.get(&key) {
            // Another lookup has already fetched another token.
            Some(token) if token != *refused => return Ok(Some(token)),
            Some(_) if by_get => return Ok(None),
            _ => self.tokens.remove(&key),
        }
        let fetch = Fetch { key, by_get: true };
        self.fetch(request, fetch).await.map(Some)
    }

    /// Fetches a token, or waits for another lookup that fetches it. If that lookup is cancelled, a waiting one takes
    /// over.
    async fn fetch(&self, request: TokenRequest<'_>, fetch: Fetch) -> Authorization {
        let work = async {
            match self.fetch_now(request, &fetch).await {
                // Not a result for the waiting lookups. They may be those of other tenants, and one of them takes over.
                Err(Error::Crowded) => Err(Error::Crowded),
                token => Ok(token),
            }
        };
        let token = self.fetches.get_or_insert_async(&fetch, work).await?;
        self.fetches.remove_if(&fetch, |_| true);
        token
    }

    /// Fetches and caches a token, and caches its realm. With a credential, the first request is a POST, and if that is
    /// refused, a GET follows, as in containerd (`core/remotes/docker/authorizer.go`).
    async fn fetch_now(&self, request: TokenRequest<'_>, fetch: &Fetch) -> Authorization {
        let key = &fetch.key;
        let realm = &key.realm;
        let mut posted = None;
        if let Some(credential) = request.credential {
            let is_password = matches!(credential, Credential::Basic { .. });
            if !fetch.by_get || !is_password {
                let form = request.form(realm, credential);
                posted = Some(request.send(&realm.url, None, Some(form)).await?);
            }
        }
        let (response, by_get) = match posted {
            Some(response) if !response.refuses_form() => (response, false),
            _ => (request.get(realm).await?, request.credential.is_some()),
        };
        let (token, lifetime) = read_answer(&response)?;
        // Nothing is cached for the target of a redirect, because the registry that redirects chose the target's path.
        if request.target == Target::Registry {
            let lifetime = lifetime.saturating_sub(EXPIRY_MARGIN);
            self.tokens.put(key.clone(), token.clone(), lifetime);
            let scheme = Scheme::Bearer {
                realm: realm.clone(),
                by_get,
                is_doubtful: false,
            };
            self.schemes.insert(key.origin.clone(), scheme);
        }
        Ok(token)
    }
}

/// Returns the first realm of the challenges that may be used, or the reason why there is none.
fn usable_realm(request: TokenRequest<'_>, challenges: &[Challenge]) -> Result<Realm, Error> {
    let origin = &request.endpoint.origin;
    let mut error = Error::Denied("the registry asks for credentials".into());
    for challenge in challenges {
        let Challenge::Bearer { realm, service } = challenge else {
            continue;
        };
        match Realm::of(request.hosts, origin, realm, service.clone()) {
            Some(realm) if request.may_use(&realm) => return Ok(realm),
            Some(realm) => {
                error = Error::TokenHost {
                    registry: label(origin).to_owned(),
                    host: shown_host(&realm.url),
                };
            }
            None => {
                error = Error::Denied("the registry named a realm that may not be used".into());
            }
        }
    }
    Err(error)
}
