//! Lookup of an image: the credential candidates of an image are tried in their order until one of them is accepted. A
//! refusal, a missing image included, holds for one candidate; it is cached for that one only, and the next one is
//! tried. Any other failure is the registry's, and ends the lookup.

use std::slice::from_ref;
use std::sync::Arc;

use tokio::time::{Duration, Instant, timeout};

use super::cache::{Cache, Cached, Outcome};
use super::circuit::PROBE_TIME;
use super::host::{Attempt, Ending, Host};
use super::metrics::{LookupResult, ResolverMetrics};
use super::request::{Access, FlightKey, Request, says_more};
use crate::credentials::{Busy, Credential, CredentialCandidate};
use crate::registry::trace::{self, CREDENTIAL};
use crate::registry::{
    Digest, Error, FailureClass, Found, Pull, ReachedTarget, Registry, on_behalf_of,
};
use crate::shared_cache::SharedCache;
use tolerarch_core::image::{ImageRef, LookupError, Support};
use tolerarch_support::concurrency::{Permit, Tenant};
use tolerarch_support::single_flight::SingleFlight;
use tolerarch_text::escape::shortened;

/// Queries registries under one configuration, and caches their answers.
pub(super) struct Fetcher {
    pub(super) registry: Registry,
    pub(super) cache: Cache,
    pub(super) shared: Option<SharedCache>,
    pub(super) timeout: Duration,
    pub(super) metrics: ResolverMetrics,
}

/// Lookup to be done.
pub(super) struct Job {
    pub(super) image: ImageRef,
    pub(super) candidates: Box<[CredentialCandidate]>,
    pub(super) host: Arc<Host>,
    /// Access with the first candidate.
    pub(super) access: Access,
    /// Tenant of the Pod that began the lookup.
    pub(super) tenant: Tenant,
    /// UID of that Pod's review, shortened.
    pub(super) review: Option<Box<str>>,
    /// Lookups in flight, among them all that wait for this one.
    pub(super) flights: SingleFlight<FlightKey, Outcome>,
}

/// Lookup at a registry, and its progress.
struct Lookup<'a> {
    fetcher: &'a Fetcher,
    job: &'a Job,
    attempt: Attempt,
    /// The kind of the source of the candidate in use.
    credential: &'static str,
    /// True if the registry has answered, be it with a refusal.
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

impl Job {
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            image: &self.image,
            candidates: &self.candidates,
        }
    }

    /// Returns how many others have asked for the outcome meanwhile. Compares the keys of all lookups in flight, which the
    /// queue bounds (`QUEUE`).
    fn others(&self) -> usize {
        let (only, key) = self.request().shared_key(&self.tenant);
        let is_same =
            |(tenant, other): &FlightKey| *other == key && (only.is_none() || *tenant == only);
        self.flights.callers(is_same).saturating_sub(1)
    }

    /// Logs that the lookup failed. A probe of an open circuit is no news.
    fn log_failure(&self, error: &Error, credential: &str, outcome: &Outcome, is_probe: bool) {
        let image = &self.image;
        let (namespace, others) = match &self.tenant {
            Tenant::Namespace(namespace) => (Some(shortened(namespace)), Some(self.others())),
            Tenant::Operator => (None, None),
        };
        let uid = self.review.as_deref();
        let stale = is_stale(outcome);
        if is_probe {
            tracing::debug!(%image, namespace, uid, others, %error, credential, stale, "lookup failed");
        } else {
            tracing::warn!(%image, namespace, uid, others, %error, credential, stale, "lookup failed");
        }
    }
}

/// Returns whether the outcome of a failed lookup is an older good answer.
fn is_stale(outcome: &Outcome) -> bool {
    outcome.is_ok_and(|support| !matches!(support, Support::Partial { .. }))
}

impl Fetcher {
    pub(super) fn stale_or(&self, request: Request<'_>, error: LookupError) -> Outcome {
        let last_good =
            |candidate: &CredentialCandidate| self.cache.last_good(request.image, candidate.id);
        let outcome = request.candidates.iter().find_map(last_good).ok_or(error);
        let result = if is_stale(&outcome) {
            LookupResult::Stale
        } else {
            LookupResult::Failed
        };
        self.metrics.looked_up(request.image.host(), result);
        outcome
    }

    /// Returns the timeout of the registry's answer, and of the wait for the lookup's permit.
    pub(super) fn time(&self, attempt: &Attempt) -> Duration {
        if attempt.is_probe() {
            self.timeout.min(PROBE_TIME)
        } else {
            self.timeout
        }
    }

    /// Returns the fresh answer of another replica. Caches an older one, too, in case the registry fails.
    pub(super) async fn shared_answer(&self, job: &Job) -> Option<Support> {
        let shared = self.shared.as_ref()?;
        let found = shared
            .find(&job.image, Digest::named_by(&job.image), &job.candidates)
            .await;
        for (id, found, age) in &found {
            self.cache.adopt(&job.image, *id, found, *age);
        }
        if !found.is_empty()
            && let Cached::Fresh(Ok(support)) = self.cached(job)
        {
            self.metrics
                .looked_up(job.image.host(), LookupResult::Shared);
            return Some(support);
        }
        None
    }

    /// Looks up an image; holds the permit of the lookup that began the request until the request ends.
    pub(super) async fn request(
        self: Arc<Self>,
        job: Arc<Job>,
        attempt: Attempt,
        _permit: Permit,
    ) -> Outcome {
        let looked_up = on_behalf_of(&job.tenant, self.look_up(&job, attempt));
        trace::scope(self.registry.traces.as_ref(), &job.image, looked_up).await
    }

    /// Queries the registry within the lookup's own timeout, and caches the result.
    async fn look_up(&self, job: &Job, attempt: Attempt) -> Outcome {
        // Another lookup may have been answered since the cache was read.
        if let Cached::Fresh(outcome) = self.cached(job) {
            self.metrics
                .looked_up(job.image.host(), LookupResult::Joined);
            return outcome;
        }
        let time = self.time(&attempt);
        let mut lookup = Lookup {
            fetcher: self,
            job,
            attempt,
            credential: "",
            answered: false,
            reached: ReachedTarget::default(),
            waits_since: None,
        };
        let answer = match timeout(time, lookup.try_all()).await {
            Ok(answer) => answer,
            Err(_) => Err(lookup.late(time)),
        };
        match answer {
            Ok(support) => {
                lookup.attempt.finish(Ending::Found);
                self.metrics
                    .looked_up(job.image.host(), LookupResult::Fetched);
                Ok(support)
            }
            Err(Failure::Inconclusive(error)) => {
                drop(lookup);
                self.stale_or(job.request(), error)
            }
            Err(Failure::Registry(error)) => lookup.failed(&error),
        }
    }

    fn cached(&self, job: &Job) -> Cached {
        job.request().cached(&self.cache, self.cache.now()).0
    }

    /// Returns the shared cache if this configuration may still store answers.
    fn sharing(&self) -> Option<&SharedCache> {
        if self.cache.is_current() {
            self.shared.as_ref()
        } else {
            None
        }
    }

    /// Returns whether answers of other replicas can be read now.
    pub(super) fn reads_shared_answers(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(SharedCache::is_connected)
    }
}

/// Returns the refusal that is cached, as the error that the registry gave.
fn cached_refusal(cached: Cached) -> Option<Error> {
    match cached {
        Cached::Fresh(Err(LookupError::Denied)) => {
            Some(Error::Denied("the registry refused a moment ago".into()))
        }
        Cached::Fresh(Err(LookupError::NotFound)) => Some(Error::NotFound),
        _ => None,
    }
}

impl Lookup<'_> {
    /// Returns the failure of a timeout: the registry's if the registry had answered, or had half of the time to do so.
    fn late(&self, timeout: Duration) -> Failure {
        match self.waits_since {
            None => Failure::Inconclusive(LookupError::Timeout),
            Some(since) if self.answered || since.elapsed() >= timeout / 2 => {
                Failure::Registry(Error::Timeout)
            }
            // Time that others took says nothing about the registry.
            Some(_) => Failure::Inconclusive(LookupError::Overloaded),
        }
    }

    /// Records, caches and logs the registry's failure; returns the stale answer if one may be served, else the error.
    fn failed(self, error: &Error) -> Outcome {
        trace::record(|trace| trace.error = Some(error.to_string()));
        let ending = self.ending(error);
        let Self {
            fetcher,
            job,
            attempt,
            credential,
            ..
        } = self;
        let access = attempt.access();
        let is_probe = attempt.is_probe();
        attempt.finish(ending);
        // Cached for each candidate already, if it holds for one only.
        if !error.class().is_of_credential() {
            fetcher.cache.fail(&job.image, access.credential, error);
        }
        let outcome = fetcher.stale_or(job.request(), error.into());
        job.log_failure(error, credential, &outcome, is_probe);
        outcome
    }

    fn ending(&self, error: &Error) -> Ending {
        if !matches!(error.cause(), Error::Throttled(_)) {
            return Ending::Failed(self.class(error));
        }
        Ending::Throttled(error.target(), self.fetcher.cache.pauses(error))
    }

    /// Classifies the failure of the lookup as a whole.
    fn class(&self, error: &Error) -> FailureClass {
        match error.class() {
            // Many candidates may have taken the time of a timeout.
            FailureClass::Fault(_) if self.answered => FailureClass::Unclear,
            FailureClass::Fault(_) if matches!(error, Error::Timeout) => {
                FailureClass::Fault(self.reached.get())
            }
            class => class,
        }
    }

    async fn try_all(&mut self) -> Result<Support, Failure> {
        let Job {
            image, candidates, ..
        } = self.job;
        let mut refused: Option<Error> = None;
        let mut busy = false;
        for candidate in candidates {
            self.credential = candidate.kind;
            self.attempt
                .turn_to(candidate)
                .map_err(Failure::Inconclusive)?;
            let answer = match cached_refusal(self.fetcher.cache.get(image, candidate.id)) {
                Some(refusal) => Err(Failure::Registry(refusal)),
                None => self.try_one(candidate).await,
            };
            self.waits_since = None;
            let error = match answer {
                Err(Failure::Inconclusive(_)) => {
                    tracing::debug!(%image, credential = candidate.kind, "too many at a time, of its program or of requests to one server");
                    busy = true;
                    continue;
                }
                Err(Failure::Registry(error)) if error.class().is_of_credential() => error,
                answer => return answer,
            };
            if matches!(error, Error::Denied(_)) {
                candidate.refused();
            }
            tracing::debug!(%image, credential = candidate.kind, %error, "refused with this credential");
            if says_more(
                LookupError::from(&error),
                refused.as_ref().map(LookupError::from),
                candidate.id,
            ) {
                refused = Some(error);
            }
        }
        // A candidate that was skipped may be the one that works.
        if busy {
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
        let mut error = Error::Denied("its source has no credential for the image".into());
        let credentials = candidate.credentials(&self.job.tenant).await;
        for credential in
            credentials.map_err(|Busy| Failure::Inconclusive(LookupError::Overloaded))?
        {
            self.waits_since = Some(Instant::now());
            self.attempt.ask();
            let answer = self.ask(candidate, credential.as_deref());
            error = match CREDENTIAL.scope(candidate.kind, answer).await {
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
            self.answered = true;
        }
        let fetcher = self.fetcher;
        let image = &self.job.image;
        let class = error.class();
        if class.is_of_credential() {
            // An older good answer may outlive the refusal (`last_good`), but first the next candidate is tried.
            fetcher.cache.fail(image, candidate.id, &error);
        }
        if class.ends_older_answers()
            && let Some(shared) = fetcher.sharing()
        {
            shared.forget(image, candidate);
        }
        Err(Failure::Registry(error))
    }

    /// Finds the platforms with one credential, and shares them with the other replicas.
    async fn ask(
        &self,
        candidate: &CredentialCandidate,
        credential: Option<&Credential>,
    ) -> Result<Support, Error> {
        let shared = self.fetcher.sharing();
        let found = self.find(candidate, credential, shared).await?;
        if let Some(shared) = shared {
            shared.learn(&self.job.image, candidate, found);
        }
        Ok(found.support)
    }

    /// Sends one HEAD request if that may suffice, as Docker Hub does not count those; otherwise does the whole lookup.
    async fn find(
        &self,
        candidate: &CredentialCandidate,
        credential: Option<&Credential>,
        shared: Option<&SharedCache>,
    ) -> Result<Found, Error> {
        let registry = &self.fetcher.registry;
        let cache = &self.fetcher.cache;
        let Job { image, host, .. } = self.job;
        let id = candidate.id;
        let pull = Pull {
            image,
            credential,
            owner: candidate.owner,
            namespace: self.attempt.access().namespace,
            reached: Some(&self.reached),
        };
        let by_head = cache.points_to(image, id).is_some() && host.answers_head();
        let mut digest = None;
        if by_head {
            digest = registry.resolve(pull).await?;
        }
        if let Some(digest) = digest {
            if let Some(support) = cache.confirm(image, id, digest) {
                return Ok(Found {
                    digest,
                    support,
                    lacks_parts: false,
                });
            }
            if let Some(shared) = shared
                && let [(_, found, _)] =
                    shared.find(image, Some(digest), from_ref(candidate)).await[..]
                && found.digest == digest
            {
                cache.learn(image, id, &found);
                return Ok(found);
            }
        }
        let found = registry.find(pull).await?;
        if by_head && digest.is_none() {
            host.disable_head();
        }
        cache.learn(image, id, &found);
        Ok(found)
    }
}
