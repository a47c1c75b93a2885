//! Lookup of an image at its registry. The credential candidates of the image are tried in order until one is accepted.
//! A refusal, or a missing image, holds for one candidate: it is cached for that candidate only, and the next one is
//! tried. Any other failure is the registry's, and ends the lookup.

use std::slice::from_ref;
use std::sync::Arc;

use tokio::time::{Duration, Instant, timeout};

use super::cache::{Cached, Outcome};
use super::candidates::{CachedForAny, replaces};
use super::fetcher::{Fetcher, is_stale};
use super::host::{Attempt, Ending};
use super::metrics::LookupResult;
use super::request::LookupRequest;
use crate::credentials::{Busy, Credential, CredentialCandidate};
use crate::registry::trace::{self, CREDENTIAL_KIND};
use crate::registry::{
    Digest, Error, FailureClass, Pull, ReachedTarget, ResolvedImage, on_behalf_of,
};
use tolerarch_core::image::{LookupError, Support};
use tolerarch_support::concurrency::{Permit, Tenant};
use tolerarch_text::escape::shortened;

/// Lookup at a registry, and its progress.
pub(super) struct Lookup {
    fetcher: Arc<Fetcher>,
    request: Arc<LookupRequest>,
    attempt: Attempt,
    /// Held until the lookup ends.
    _permit: Permit,
    /// Kind of the source of the candidate in use.
    credential: &'static str,
    /// True if the registry has answered; a refusal is an answer, too.
    answered: bool,
    reached: ReachedTarget,
    /// Time since which the lookup waits for the registry; `None` while it waits for a credential.
    waits_since: Option<Instant>,
}

/// Reason why a lookup has no good answer.
enum Failure {
    Registry(Error),
    /// The registry was not queried, or the failure says nothing about the registry.
    Inconclusive(LookupError),
}

impl Lookup {
    pub(super) fn new(
        fetcher: Arc<Fetcher>,
        request: Arc<LookupRequest>,
        attempt: Attempt,
        permit: Permit,
    ) -> Self {
        Self {
            fetcher,
            request,
            attempt,
            _permit: permit,
            credential: "",
            answered: false,
            reached: ReachedTarget::default(),
            waits_since: None,
        }
    }

    /// Records that the tenant waits for another tenant's query.
    pub(super) fn joined(&self) {
        self.attempt.joined();
    }

    /// Queries the registry on behalf of the tenant, and caches the result.
    pub(super) async fn run(self) -> Outcome {
        let fetcher = Arc::clone(&self.fetcher);
        let request = Arc::clone(&self.request);
        let traces = fetcher.registry.traces.as_ref();
        let query = on_behalf_of(&request.tenant, self.query());
        trace::scope(traces, &request.image, query).await
    }

    /// Queries the registry within the lookup's own timeout.
    async fn query(mut self) -> Outcome {
        // Another lookup may have got an answer since the cache was read.
        if let CachedForAny::Fresh(outcome) = self.fetcher.cached(&self.request) {
            self.count(LookupResult::Joined);
            return outcome;
        }
        let time = self.fetcher.timeout_of(&self.attempt);
        let answer = match timeout(time, self.try_candidates()).await {
            Ok(answer) => answer,
            Err(_) => Err(self.timed_out(time)),
        };
        match answer {
            Ok(support) => {
                self.count(LookupResult::Fetched);
                self.attempt.finish(Ending::Found);
                Ok(support)
            }
            Err(Failure::Inconclusive(error)) => {
                drop(self.attempt);
                self.fetcher.stale_or(&self.request, error)
            }
            Err(Failure::Registry(error)) => self.failed(&error),
        }
    }

    /// Returns the failure of a timeout. It is the registry's if the registry had answered, or had half of the time to
    /// do so.
    fn timed_out(&self, timeout: Duration) -> Failure {
        match self.waits_since {
            None => Failure::Inconclusive(LookupError::Timeout),
            Some(since) if self.answered || since.elapsed() >= timeout / 2 => {
                Failure::Registry(Error::Timeout)
            }
            // Others took most of the time, which says nothing about the registry.
            Some(_) => Failure::Inconclusive(LookupError::Overloaded),
        }
    }

    /// Returns whether the registry answered with the candidate in use, or had half of a lookup's time to do so. It may
    /// not have had that time: other candidates, which other tenants need not have, may have taken it, and a probe has
    /// little.
    fn had_time(&self) -> bool {
        self.waits_since
            .is_none_or(|since| since.elapsed() >= self.fetcher.timeout / 2)
    }

    fn count(&self, result: LookupResult) {
        let host = self.request.image.host();
        self.fetcher.metrics.count_lookup(host, result);
    }

    /// Records, caches and logs the registry's failure. Returns a stale answer if one may be served, otherwise the
    /// error.
    fn failed(self, error: &Error) -> Outcome {
        trace::record(|trace| trace.error = Some(error.to_string()));
        let ending = self.ending(error);
        let access = self.attempt.access();
        let is_probe = self.attempt.is_probe();
        let had_time = self.had_time();
        self.attempt.finish(ending);
        let image = &self.request.image;
        // A failure that holds for one candidate only has been cached already.
        if had_time && !error.class().is_of_credential() {
            self.fetcher.cache.fail(image, access.credential, error);
        }
        let outcome = self.fetcher.stale_or(&self.request, error.into());
        let (namespace, others) = match &self.request.tenant {
            Tenant::Namespace(namespace) => {
                let others = self.fetcher.other_callers(&self.request);
                (Some(shortened(namespace)), Some(others))
            }
            Tenant::Operator => (None, None),
        };
        let uid = self.request.review.as_deref();
        let credential = self.credential;
        let stale = is_stale(&outcome);
        // A probe of an open circuit is no news.
        if is_probe {
            tracing::debug!(%image, namespace, uid, others, %error, credential, stale, "lookup failed");
        } else {
            tracing::warn!(%image, namespace, uid, others, %error, credential, stale, "lookup failed");
        }
        outcome
    }

    fn ending(&self, error: &Error) -> Ending {
        match error.cause() {
            Error::Throttled(_) => {
                Ending::Throttled(error.target(), self.fetcher.cache.pauses(error))
            }
            _ => Ending::Failed(self.class(error)),
        }
    }

    /// Classifies the failure of the lookup as a whole.
    fn class(&self, error: &Error) -> FailureClass {
        match error.class() {
            // Many candidates may have taken the time of a timeout.
            FailureClass::Fault(_) if self.answered => FailureClass::Unclear,
            FailureClass::Fault(_) if matches!(error, Error::Timeout) => {
                FailureClass::Fault(self.reached.get())
            }
            // The registry refused the credential of another candidate.
            FailureClass::NoCredential if self.answered => FailureClass::Refused,
            class => class,
        }
    }

    /// Tries the candidates in order until one is accepted.
    async fn try_candidates(&mut self) -> Result<Support, Failure> {
        let request = Arc::clone(&self.request);
        let image = &request.image;
        let mut refused: Option<Error> = None;
        let mut has_skipped = false;
        for candidate in &*request.candidates {
            self.credential = candidate.kind;
            self.attempt
                .use_candidate(candidate)
                .map_err(Failure::Inconclusive)?;
            let cached = self.fetcher.cache.get(image, candidate.id);
            let answer = match cached_refusal(cached) {
                Some(refusal) => Err(Failure::Registry(refusal)),
                None => self.try_one(candidate).await,
            };
            self.waits_since = None;
            let error = match answer {
                Err(Failure::Inconclusive(_)) => {
                    tracing::debug!(%image, credential = candidate.kind, "skipped: too many runs of its program, or requests to one server, at a time");
                    has_skipped = true;
                    continue;
                }
                Err(Failure::Registry(error)) if error.class().is_of_credential() => error,
                answer => return answer,
            };
            if matches!(error, Error::Denied(_) | Error::NoCredential) {
                candidate.refused();
            }
            tracing::debug!(%image, credential = candidate.kind, %error, "refused with this credential");
            let earlier = refused.as_ref().map(LookupError::from);
            if replaces(LookupError::from(&error), earlier, candidate.id) {
                refused = Some(error);
            }
        }
        // A skipped candidate may be the one that is accepted.
        if has_skipped {
            return Err(Failure::Inconclusive(LookupError::Overloaded));
        }
        let error = match refused {
            Some(error) => error,
            None => Error::Denied("there is no credential for the image".into()),
        };
        Err(Failure::Registry(error))
    }

    /// Tries each credential of one candidate, and caches a refusal.
    async fn try_one(&mut self, candidate: &CredentialCandidate) -> Result<Support, Failure> {
        let mut error = Error::NoCredential;
        let credentials = match candidate.credentials(&self.request.tenant).await {
            Ok(credentials) => credentials,
            Err(Busy) => return Err(Failure::Inconclusive(LookupError::Overloaded)),
        };
        for credential in credentials {
            self.waits_since = Some(Instant::now());
            self.attempt.begin_query();
            let answer = self.find_and_share(candidate, credential.as_deref());
            error = match CREDENTIAL_KIND.scope(candidate.kind, answer).await {
                Ok(support) => return Ok(support),
                // Not cached: the next lookup may be another tenant's.
                Err(error) if matches!(error.cause(), Error::Crowded) => {
                    return Err(Failure::Inconclusive(LookupError::Overloaded));
                }
                Err(error) => error,
            };
            if !error.class().is_of_credential() {
                break;
            }
            self.answered |= error.class() != FailureClass::NoCredential;
        }
        let fetcher = &self.fetcher;
        let image = &self.request.image;
        let class = error.class();
        if class.is_of_credential() {
            // An older good answer may outlive the refusal (`last_good`), but the next candidate is tried first.
            fetcher.cache.fail(image, candidate.id, &error);
        }
        // Such a refusal holds for this owner only: the token server gets the credential if it is a Pod's.
        let is_of_owner = matches!(error, Error::TokenHost { .. });
        if class.ends_older_answers()
            && !is_of_owner
            && let Some(shared) = fetcher.sharing()
        {
            shared.forget(image, candidate);
        }
        Err(Failure::Registry(error))
    }

    /// Finds the platforms with one credential, and shares them with the other replicas.
    async fn find_and_share(
        &self,
        candidate: &CredentialCandidate,
        credential: Option<&Credential>,
    ) -> Result<Support, Error> {
        let resolved = self.find(candidate, credential).await?;
        // Checked after the lookup: the configuration may have changed meanwhile.
        if let Some(shared) = self.fetcher.sharing() {
            shared.share(&self.request.image, candidate, resolved);
        }
        Ok(resolved.support)
    }

    /// Sends one HEAD request if it may suffice, as Docker Hub does not count HEAD requests. Otherwise does the whole
    /// lookup.
    async fn find(
        &self,
        candidate: &CredentialCandidate,
        credential: Option<&Credential>,
    ) -> Result<ResolvedImage, Error> {
        let registry = &self.fetcher.registry;
        let cache = &self.fetcher.cache;
        let image = &self.request.image;
        let id = candidate.id;
        let pull = Pull {
            image,
            credential,
            owner: candidate.owner,
            namespace: self.attempt.access().namespace,
            reached: Some(&self.reached),
        };
        let uses_head =
            cache.last_digest(image, id).is_some() && self.attempt.host().answers_head();
        let mut digest = None;
        if uses_head {
            digest = registry.resolve(pull).await?;
        }
        if let Some(digest) = digest {
            if let Some(support) = cache.confirm(image, id, digest) {
                return Ok(ResolvedImage {
                    digest,
                    support,
                    lacks_parts: false,
                });
            }
            if let Some(resolved) = self.shared_platforms(digest, candidate).await {
                cache.store(image, id, &resolved);
                return Ok(resolved);
            }
        }
        let resolved = registry.find(pull).await?;
        if uses_head && digest.is_none() {
            self.attempt.host().disable_head();
        }
        cache.store(image, id, &resolved);
        Ok(resolved)
    }

    /// Reads the platforms of a digest from the shared cache.
    async fn shared_platforms(
        &self,
        digest: Digest,
        candidate: &CredentialCandidate,
    ) -> Option<ResolvedImage> {
        let shared = self.fetcher.sharing()?;
        let image = &self.request.image;
        let answers = shared.find(image, Some(digest), from_ref(candidate)).await;
        let [(_, resolved, _)] = answers[..] else {
            return None;
        };
        (resolved.digest == digest).then_some(resolved)
    }
}

/// Returns a cached refusal as the registry's error.
fn cached_refusal(cached: Cached) -> Option<Error> {
    match cached {
        Cached::Fresh(Err(LookupError::Denied)) => {
            Some(Error::Denied("the registry refused a moment ago".into()))
        }
        Cached::Fresh(Err(LookupError::NotFound)) => Some(Error::NotFound),
        _ => None,
    }
}
