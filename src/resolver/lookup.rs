//! One lookup: the credential candidates of an image are tried in their order until one of them is accepted.
//!
//! A refusal, a missing image included, holds for one candidate; it is cached for that one only, and the next one is
//! tried. Any other failure is the registry's, and ends the lookup.

use std::borrow::Cow;
use std::fmt::Write;
use std::future::Future;

use tokio::time::{Duration, Instant, timeout};

use super::cache::{Cache, Cached, lookup_error};
use super::circuit::PROBE_TIME;
use super::host::{Access, Host};
use super::metrics::LookupResult;
use super::{Completed, Inner, Job, Outcome, Resolver};
use crate::concurrency::Queued;
use crate::credentials::{Credential, CredentialCandidate, CredentialId};
use crate::image::{ImageRef, LookupError, Support};
use crate::registry::{Error, Head, Recorder};

/// An image, and the credential candidates that a Pod may use for it.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) image: &'a ImageRef,
    pub(super) candidates: &'a [CredentialCandidate],
}

/// The same, owned by the lookup's task.
#[derive(Clone)]
pub(super) struct Lookup {
    image: ImageRef,
    candidates: Box<[CredentialCandidate]>,
}

impl From<Request<'_>> for Lookup {
    fn from(request: Request<'_>) -> Self {
        Self { image: request.image.clone(), candidates: request.candidates.into() }
    }
}

impl Lookup {
    pub(super) fn request(&self) -> Request<'_> {
        Request { image: &self.image, candidates: &self.candidates }
    }
}

/// How far a lookup has come.
struct Progress {
    /// The candidate in use.
    access: Access,
    /// Whether the registry has answered anything, be it with a refusal.
    answered: bool,
    /// When the registry was asked first, later by the time that credentials took since.
    begun: Option<Instant>,
    /// Whether it waits for a credential.
    fetching: bool,
    /// Whether the answer came by a credential that was read anew from a Pod's own source.
    by_another: bool,
}

impl Progress {
    fn of(access: Access) -> Self {
        Self { access, answered: false, begun: None, fetching: false, by_another: false }
    }

    /// Waits for a credential; the time does not count as the registry's.
    async fn fetched<T>(&mut self, credential: impl Future<Output = T>) -> T {
        let before = Instant::now();
        self.fetching = true;
        let credential = credential.await;
        self.fetching = false;
        self.begun = Some(self.begun.unwrap_or(before) + before.elapsed());
        credential
    }

    /// What a time-out means.
    fn late(&self, timeout: Duration) -> Result<Error, LookupError> {
        match self.begun {
            _ if self.fetching => Err(LookupError::Timeout),
            Some(begun) if begun.elapsed() >= timeout / 2 => Ok(Error::Timeout),
            // Time spent in the queue says nothing about the registry.
            _ => Err(LookupError::Overloaded),
        }
    }
}

impl<'a> Request<'a> {
    /// The key of the lookup in flight. For anonymous access it is the image itself; no image has a space.
    pub(super) fn key(self) -> Cow<'a, str> {
        if let [candidate] = self.candidates
            && candidate.id() == CredentialId::ANONYMOUS
        {
            return Cow::Borrowed(self.image.as_str());
        }
        let mut key = self.image.to_string();
        for candidate in self.candidates {
            // Writing to a text cannot fail.
            let _ = write!(key, " {:x}", candidate.id());
        }
        Cow::Owned(key)
    }

    /// What is cached for any of the candidates, and the request that would refresh it: a stale answer is refreshed by
    /// the candidate that gave it.
    pub(super) fn cached(self, cache: &Cache) -> (Cached, Self) {
        let (mut stale, mut expired, mut refused, mut failed) = (None, None, None, None);
        let mut open = false;
        for (place, candidate) in self.candidates.iter().enumerate() {
            match cache.get(self.image, candidate.id()) {
                good @ Cached::Fresh(Ok(_)) => return (good, self),
                Cached::Fresh(Err(why)) if is_refusal(why) => {
                    refused = Some(combine_refusals(refused, why, candidate));
                }
                // In order: a failure after a candidate that may still be tried does not count.
                Cached::Fresh(Err(why)) => failed = failed.or((!open).then_some(why)),
                Cached::Stale { support, due } => {
                    let candidates = &self.candidates[place..=place];
                    stale = stale.or(Some((Cached::Stale { support, due }, Self { candidates, ..self })));
                }
                Cached::Expired(support) => {
                    open = true;
                    expired = expired.or(Some(support));
                }
                Cached::Nothing => open = true,
            }
        }
        if let Some(stale) = stale {
            return stale;
        }
        let cached = match (failed, expired) {
            (Some(_), Some(support)) => Cached::Stale { support, due: false },
            (Some(why), None) => Cached::Fresh(Err(why)),
            (None, Some(support)) => Cached::Expired(support),
            (None, None) if open => Cached::Nothing,
            (None, None) => Cached::Fresh(Err(refused.unwrap_or(LookupError::Denied))),
        };
        (cached, self)
    }

    /// The request by the candidate in use alone, unless its credential is a Pod's own.
    fn by(self, access: Access) -> Option<Lookup> {
        let place =
            self.candidates.iter().position(|own| own.id() == access.credential && !own.is_of_pod())?;
        Some(Lookup::from(Self { candidates: &self.candidates[place..=place], ..self }))
    }

    /// The good answer that serves while the registry fails.
    pub(super) fn last_good(self, cache: &Cache) -> Option<Support> {
        self.candidates.iter().find_map(|candidate| cache.last_good(self.image, candidate.id()))
    }
}

/// Whether a failure holds for one candidate only.
fn is_refusal(why: LookupError) -> bool {
    matches!(why, LookupError::Denied | LookupError::NotFound)
}

/// The refusal to report of several: a missing image tells more than a denial, if a credential was accepted for it.
fn combine_refusals(
    before: Option<LookupError>,
    now: LookupError,
    candidate: &CredentialCandidate,
) -> LookupError {
    match before {
        Some(LookupError::Denied) if candidate.id() != CredentialId::ANONYMOUS => now,
        Some(before) => before,
        None => now,
    }
}

impl Resolver {
    /// Asks the registry, within the lookup's own timeout, and caches the result.
    pub(super) async fn look_up(&self, request: Request<'_>, job: &Job, queued: Queued) -> Completed {
        let mut progress = Progress::of(job.access);
        let recorder = self.0.state.traces.as_ref().map(|traces| traces.recorder(request.image));
        let recorder = recorder.unwrap_or_default();
        let outcome = self.look_up_in_time(request, job, queued, &mut progress, &recorder).await;
        Completed { outcome, by_another: progress.by_another }
    }

    async fn look_up_in_time(
        &self,
        request: Request<'_>,
        job: &Job,
        queued: Queued,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Outcome {
        let (inner, host) = (&self.0, &job.host);
        let image = request.image;
        let _in_flight = inner.state.metrics.lookup_in_flight();
        let time = inner.settings.timeout;
        let time = if job.probe.is_some() { time.min(PROBE_TIME) } else { time };
        let asked = timeout(time, async {
            let _permit = queued.permit().await;
            self.try_all(request, job, progress, recorder).await
        });
        let asked = asked.await;
        let asked = asked.unwrap_or_else(|_| progress.late(time).map(Err));
        let answer = match asked {
            Ok(answer) => answer,
            Err(unknown) => return self.instead(request, unknown),
        };
        match answer {
            Ok(support) => {
                host.served(progress.access, request.by(progress.access));
                inner.state.metrics.looked_up(image.host(), LookupResult::Fetched);
                Ok(support)
            }
            Err(error) => {
                // Slow after an answer is no fault of the registry: many candidates may have taken the time.
                if !error.is_fault() || progress.answered {
                    host.answered(progress.access);
                } else if let Some(time) = host.failed(progress.access, job.probe) {
                    self.probe_at(request.into(), time);
                }
                if let Error::Throttled(_) = error {
                    host.pause(progress.access, inner.cache.throttle(&error));
                }
                let outcome = match lookup_error(&error) {
                    // It is cached already, for each candidate.
                    why if is_refusal(why) => Err(why),
                    _ => inner.cache.fail(image, progress.access.credential, &error),
                };
                let outcome = outcome.or_else(|why| request.last_good(&inner.cache).ok_or(why));
                let result = if outcome.is_ok() { LookupResult::Stale } else { LookupResult::Failed };
                inner.state.metrics.looked_up(image.host(), result);
                recorder.record(|trace| trace.error = Some(error.to_string()));
                tracing::warn!(%image, %error, stale = outcome.is_ok(), "lookup failed");
                outcome
            }
        }
    }

    /// Tries one candidate after the other. A [`LookupError`] if the registry may not be asked.
    async fn try_all(
        &self,
        request: Request<'_>,
        job: &Job,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Result<Result<Support, Error>, LookupError> {
        let Request { image, candidates } = request;
        let probe = job.probe.is_some();
        let mut refused: Option<Error> = None;
        for candidate in candidates {
            progress.access = job.access.with(candidate);
            if let Some(unknown) = job.host.permission(progress.access).refusal().filter(|_| !probe) {
                return Err(unknown);
            }
            let mut asked = match self.0.cache.get(image, candidate.id()) {
                Cached::Fresh(Err(LookupError::Denied)) if !probe => {
                    Err(Error::Denied("it has refused a moment ago"))
                }
                Cached::Fresh(Err(LookupError::NotFound)) if !probe => Err(Error::NotFound),
                _ => self.try_one(image, candidate, job, progress, recorder).await,
            };
            if let Err(Error::Denied(_)) = asked
                && let Some(changed) = progress.fetched(candidate.refetch(&job.callers)).await
            {
                progress.access = job.access.with(&changed);
                progress.by_another = changed.is_of_pod();
                asked = self.try_one(image, &changed, job, progress, recorder).await;
            }
            progress.by_another &= asked.is_ok();
            let error = match asked {
                Err(error) if is_refusal(lookup_error(&error)) => error,
                answered => return Ok(answered),
            };
            tracing::debug!(%image, credential = candidate.kind(), %error, "refused with this credential");
            let before = refused.as_ref().map(lookup_error);
            let now = lookup_error(&error);
            if before.is_none_or(|before| combine_refusals(Some(before), now, candidate) != before) {
                refused = Some(error);
            }
        }
        Ok(Err(refused.unwrap_or(Error::Denied("there is no credential for it"))))
    }

    /// Tries each credential of one candidate, and caches a refusal.
    async fn try_one(
        &self,
        image: &ImageRef,
        candidate: &CredentialCandidate,
        job: &Job,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Result<Support, Error> {
        let mut refused = Error::Denied("there is no credential after all");
        let recorder = recorder.with_credential(candidate.kind());
        for credential in progress.fetched(candidate.credentials_for(&job.callers)).await {
            match self.ask(image, candidate.id(), credential.as_deref(), &job.host, &recorder).await {
                Err(error) if is_refusal(lookup_error(&error)) => {
                    progress.answered = true;
                    refused = error;
                }
                Ok(support) => {
                    candidate.accepted();
                    return Ok(support);
                }
                failed => return failed,
            }
        }
        // Never a good answer: a refusal replaces it.
        let _ = self.0.cache.fail(image, candidate.id(), &refused);
        Err(refused)
    }

    /// One HEAD request if that may suffice, as Docker Hub does not count those; otherwise the whole lookup.
    async fn ask(
        &self,
        image: &ImageRef,
        id: CredentialId,
        credential: Option<&Credential>,
        host: &Host,
        recorder: &Recorder,
    ) -> Result<Support, Error> {
        let Inner { registry, cache, .. } = &*self.0;
        let mut headless = false;
        if cache.points_to(image, id).is_some() && host.answers_head() {
            match registry.head(image, credential, recorder).await? {
                Head::Digest(digest) => {
                    if let Some(support) = cache.confirm(image, id, digest) {
                        return Ok(support);
                    }
                }
                Head::Unsupported => headless = true,
            }
        }
        let found = registry.fetch(image, credential, recorder).await?;
        if headless {
            host.note_headless();
        }
        cache.learn(image, id, &found);
        Ok(found.support)
    }
}
