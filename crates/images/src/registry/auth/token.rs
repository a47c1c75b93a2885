//! Tokens: fetched where a challenge says, and cached: schemes by origin, tokens by origin, repository, realm and
//! credential. So the next lookup of a repository is one request, and no caller uses another one's token.

use std::sync::Arc;

use http::HeaderValue;
use quick_cache::sync::Cache;
use tokio::time::Duration;

use super::challenge::{Challenge, challenges};
use super::exchange::{TokenRequest, basic, bearer, read};
use super::realm::Realm;
use crate::credentials::{Credential, CredentialId};
use crate::registry::error::Error;
use crate::registry::net::{label, shown_host};
use crate::registry::response::HttpResponse;
use crate::registry::target::Target;
use crate::ttl_cache::{Timed, TtlCache};

/// Maximum number of cached challenges (by host) and tokens (by repository and credential).
const CHALLENGES: usize = 1000;
const TOKENS: usize = 10_000;
/// Maximum bytes of all tokens.
const TOKENS_BYTES: u64 = 16 << 20;
/// Time before its end from which a token is no longer used.
const MARGIN: Duration = Duration::from_secs(5);

pub(crate) struct Tokens {
    /// Schemes by origin.
    schemes: Cache<String, Scheme>,
    tokens: Arc<TtlCache<TokenKey, HeaderValue>>,
    /// Requests under way, also by whether made by GET: many tags of one repository are often looked up at once. Each is
    /// part of a lookup, with its tenant, its trace and its end, so it is no task of a `SingleFlight`.
    fetches: Cache<(TokenKey, bool), Authorization>,
}

type Authorization = Result<HeaderValue, Error>;

#[derive(Clone)]
enum Scheme {
    Basic,
    Bearer {
        realm: Realm,
        /// True if the realm issues tokens for a password by GET, and not by POST.
        by_get: bool,
        /// True if the realm last refused a token, or failed. It may have moved, and is asked only once a challenge names it.
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

    /// Estimates the bytes of a token with its key.
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
            schemes: Cache::new(CHALLENGES),
            tokens: TtlCache::new(TOKENS, TOKENS_BYTES, TokenKey::weight),
            fetches: Cache::new(TOKENS),
        }
    }

    /// Returns the `Authorization` of a first request, if the registry's scheme is known: a token or the password.
    pub(crate) async fn remembered(
        &self,
        request: TokenRequest<'_>,
    ) -> Result<Option<HeaderValue>, Error> {
        if let Some(Credential::Bearer(token)) = request.credential {
            return match bearer(token.reveal()) {
                Ok(header) => Ok(Some(header)),
                // Nothing was sent that the registry could have refused.
                Err(_) => Err(Error::NoCredential),
            };
        }
        if let Some(Scheme::Basic) = self.schemes.get(request.endpoint.origin.as_str()) {
            return Ok(request.credential.and_then(basic));
        }
        let Some((key, by_get)) = self.key(request) else {
            return Ok(None);
        };
        if let Some(token) = self.tokens.get(&key) {
            return Ok(Some(token));
        }
        if self.is_doubtful(&key) {
            return Ok(None);
        }
        let realm = key.realm.clone();
        let token = self.fetch(request, key, by_get).await;
        if let Err(error) = &token
            && !matches!(error, Error::Crowded)
        {
            let scheme = Scheme::Bearer {
                realm,
                by_get,
                is_doubtful: true,
            };
            let origin = request.endpoint.origin.to_string();
            self.schemes.insert(origin, scheme);
        }
        token.map(Some)
    }

    /// Returns whether the remembered realm has given no token since it refused one, or failed.
    fn is_doubtful(&self, key: &TokenKey) -> bool {
        let scheme = self.schemes.get(key.origin.as_str());
        matches!(
            scheme,
            Some(Scheme::Bearer {
                is_doubtful: true,
                ..
            })
        )
    }

    /// Returns the key of a token by the remembered realm, if that may be asked, and whether by GET alone.
    fn key(&self, request: TokenRequest<'_>) -> Option<(TokenKey, bool)> {
        match self.schemes.get(request.endpoint.origin.as_str())? {
            Scheme::Bearer { realm, by_get, .. } if request.may_ask(&realm) => {
                Some((TokenKey::of(request, realm), by_get))
            }
            _ => None,
        }
    }

    /// Returns the `Authorization` that the challenge of a 401 asks for; a token is preferred to a password, as in
    /// containerd (`core/remotes/docker/auth/parse.go`). `sent` was refused; a refused token is removed from the cache.
    pub(crate) async fn renewed(
        &self,
        request: TokenRequest<'_>,
        sent: Option<&HeaderValue>,
        refused: &HttpResponse,
    ) -> Result<HeaderValue, Error> {
        let mut remembered = None;
        if request.target == Target::Registry {
            remembered = self.key(request);
        }
        if let Some((key, _)) = &remembered {
            match self.tokens.get(key) {
                // Another lookup has renewed the token since.
                Some(token) if Some(&token) != sent => return Ok(token),
                _ => self.tokens.remove(key),
            }
        }
        if let Some(Credential::Bearer(_)) = request.credential {
            return Err(Error::Denied("the registry refused the token".into()));
        }
        let challenges = challenges(&refused.headers);
        let error = match realm_to_ask(request, &challenges) {
            Ok(realm) => {
                let key = TokenKey::of(request, realm);
                let by_get =
                    remembered.is_some_and(|(remembered, by_get)| by_get && remembered == key);
                return self.fetch(request, key, by_get).await;
            }
            Err(error) => error,
        };
        if !challenges.contains(&Challenge::Basic) {
            return Err(error);
        }
        let Some(password) = request.credential.and_then(basic) else {
            return Err(error);
        };
        let origin = request.endpoint.origin.to_string();
        self.schemes.insert(origin, Scheme::Basic);
        if sent == Some(&password) {
            // The same password would be refused again, and perhaps counted against the account.
            return Err(Error::Denied("the registry refused the credentials".into()));
        }
        Ok(password)
    }

    /// Returns another token for the same password, by GET, where the refused one may have come by POST: OpenShift's
    /// token server reads no form, and answers it with a token for nobody.
    pub(crate) async fn by_get(
        &self,
        request: TokenRequest<'_>,
        refused: &HeaderValue,
    ) -> Result<Option<HeaderValue>, Error> {
        let is_password = matches!(request.credential, Some(Credential::Basic { .. }));
        if !is_password {
            return Ok(None);
        }
        let Some((key, by_get)) = self.key(request) else {
            return Ok(None);
        };
        match self.tokens.get(&key) {
            // Another lookup has a new token by now.
            Some(token) if token != *refused => return Ok(Some(token)),
            Some(_) if by_get => return Ok(None),
            _ => self.tokens.remove(&key),
        }
        self.fetch(request, key, true).await.map(Some)
    }

    /// Fetches a token, or waits for another lookup that does; if that lookup is cut off, a waiting one takes over.
    async fn fetch(&self, request: TokenRequest<'_>, key: TokenKey, by_get: bool) -> Authorization {
        let key = (key, by_get);
        let work = async {
            match self.fetch_now(request, &key.0, by_get).await {
                // It is another tenant's turn, perhaps one that waits: it takes over as well.
                Err(Error::Crowded) => Err(Error::Crowded),
                token => Ok(token),
            }
        };
        let token = self.fetches.get_or_insert_async(&key, work).await?;
        self.fetches.remove_if(&key, |_| true);
        token
    }

    /// Fetches and caches a token, and its realm. By POST first, if there is a credential; if refused, by GET, as
    /// containerd does (`core/remotes/docker/authorizer.go`).
    async fn fetch_now(
        &self,
        request: TokenRequest<'_>,
        key: &TokenKey,
        by_get: bool,
    ) -> Authorization {
        let realm = &key.realm;
        let mut posted = None;
        if let Some(credential) = request.credential
            && !(by_get && matches!(credential, Credential::Basic { .. }))
        {
            let form = request.form(realm, credential);
            posted = Some(request.send(&realm.url, None, Some(form)).await?);
        }
        let (response, by_get) = match posted {
            Some(response) if !response.refuses_form() => (response, false),
            _ => (request.get(realm).await?, request.credential.is_some()),
        };
        let (token, life) = read(&response)?;
        // The registry that redirects chose the path at its target, so nothing of the target is cached.
        if request.target == Target::Registry {
            let life = life.saturating_sub(MARGIN);
            self.tokens.put(key.clone(), token.clone(), life);
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

/// Returns the first realm of the challenges that may be asked, or why there is none.
fn realm_to_ask(request: TokenRequest<'_>, challenges: &[Challenge]) -> Result<Realm, Error> {
    let origin = &request.endpoint.origin;
    let mut error = Error::Denied("the registry asks for credentials".into());
    for challenge in challenges {
        let Challenge::Bearer { realm, service } = challenge else {
            continue;
        };
        match Realm::of(request.hosts, origin, realm, service.clone()) {
            Some(realm) if request.may_ask(&realm) => return Ok(realm),
            Some(realm) => {
                error = Error::TokenHost {
                    registry: label(origin).to_owned(),
                    host: shown_host(&realm.url),
                };
            }
            None => {
                error = Error::Denied("the registry named a realm that may not be asked".into());
            }
        }
    }
    Err(error)
}
