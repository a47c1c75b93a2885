//! One lookup: the credential candidates of an image are tried in their order until one of them is accepted.
//!
//! A refusal, a missing image included, holds for one candidate; it is cached for that one only, and the next one is
//! tried. Any other failure is the registry's, and ends the lookup.

use std::future::Future;
use std::sync::Arc;

use tokio::time::{Duration, Instant, timeout};

use super::cache::{Cache, Cached, Outcome, lookup_error};
use super::circuit::{PROBE_TIME, Slot};
use super::host::Host;
use super::metrics::{LookupResult, ResolverMetrics};
use super::request::{Access, Probe, Request, combine_refusals, is_refusal};
use crate::credentials::{Busy, Credential, CredentialCandidate};
use crate::registry::{Error, Head, Pull, Recorder, Registry, Traces};
use crate::shared_cache::SharedCache;
use tolerarch_core::image::{ImageRef, LookupError, Support};
use tolerarch_support::concurrency::{Callers, Queued};

/// Asks registries under one configuration, and caches what they answer.
pub(super) struct Fetcher {
    pub(super) registry: Registry,
    pub(super) cache: Cache,
    /// What replicas share.
    pub(super) shared: Option<SharedCache>,
    /// How long one lookup may take in all.
    pub(super) timeout: Duration,
    pub(super) metrics: ResolverMetrics,
    pub(super) traces: Option<Traces>,
}

/// What a lookup in flight holds, until it ends, also by a panic.
pub(super) struct Job {
    pub(super) host: Arc<Host>,
    /// The first candidate's.
    pub(super) access: Access,
    pub(super) probe: Option<Slot>,
    /// Why the registry may not be asked: only the shared cache is.
    pub(super) refused: Option<LookupError>,
    pub(super) callers: Callers,
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(slot) = self.probe {
            self.host.release(slot, self.access);
        }
    }
}

/// A completed lookup.
#[derive(Clone, Copy)]
pub(super) struct Completed {
    pub(super) outcome: Outcome,
    /// Whether the answer came by a credential that was read anew from the pull secret of the Pod that began the lookup.
    /// It is for Pods with that secret only.
    pub(super) by_another: bool,
}

/// When to probe the registry, and by what if nothing better is known.
pub(super) struct ProbeDue {
    pub(super) time: Instant,
    pub(super) failed: Option<Probe>,
}

/// How far a lookup has come.
struct Progress {
    /// The candidate in use.
    access: Access,
    /// The kind of its source.
    credential: &'static str,
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
        Self { access, credential: "", answered: false, begun: None, fetching: false, by_another: false }
    }

    fn use_candidate(&mut self, job: &Job, candidate: &CredentialCandidate) {
        self.access = job.access.with(candidate);
        self.credential = candidate.kind();
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

impl Fetcher {
    /// A good answer that may serve although the registry does not answer, or why there is none.
    pub(super) fn instead(&self, request: Request<'_>, error: LookupError) -> Outcome {
        let outcome = request.last_good(&self.cache).ok_or(error);
        let result = if outcome.is_ok() { LookupResult::Stale } else { LookupResult::Failed };
        self.metrics.looked_up(request.image.host(), result);
        outcome
    }

    /// Asks the registry, within the lookup's own timeout, and caches the result. If that opened the circuit or kept it
    /// open, a probe is due.
    pub(super) async fn look_up(
        &self,
        request: Request<'_>,
        job: &Job,
        queued: Queued,
    ) -> (Completed, Option<ProbeDue>) {
        // A probe is there to find out whether the registry works.
        if job.probe.is_none()
            && let Some(support) = self.shared(request).await
        {
            self.metrics.looked_up(request.image.host(), LookupResult::Shared);
            return (Completed { outcome: Ok(support), by_another: false }, None);
        }
        if let Some(error) = job.refused {
            return (Completed { outcome: self.instead(request, error), by_another: false }, None);
        }
        let mut progress = Progress::of(job.access);
        let recorder = self.traces.as_ref().map(|traces| traces.recorder(request.image));
        let recorder = recorder.unwrap_or_default();
        let _in_flight = self.metrics.lookup_in_flight();
        let time = if job.probe.is_some() { self.timeout.min(PROBE_TIME) } else { self.timeout };
        let answer = timeout(time, async {
            let _permit = queued.permit().await;
            self.try_all(request, job, &mut progress, &recorder).await
        });
        let answer = answer.await;
        let mut probe = None;
        let outcome = match answer.unwrap_or_else(|_| progress.late(time).map(Err)) {
            Err(error) => {
                job.host.left(progress.access);
                self.instead(request, error)
            }
            Ok(Ok(support)) => {
                job.host.served(progress.access, request.probe(progress.access));
                self.metrics.looked_up(request.image.host(), LookupResult::Fetched);
                Ok(support)
            }
            Ok(Err(error)) => {
                recorder.failed(&error);
                probe = self.note_failure(request, job, &progress, &error);
                self.outcome_of(request, job, &progress, &error)
            }
        };
        (Completed { outcome, by_another: progress.by_another }, probe)
    }

    /// The answer of another replica, if it is as good as the registry's own. An older one is taken into the cache: the
    /// registry can confirm it, and it serves where the registry fails.
    async fn shared(&self, request: Request<'_>) -> Option<Support> {
        let Request { image, candidates } = request;
        let found = self.shared.as_ref()?.find(image, candidates).await;
        for (id, entry) in &found {
            self.cache.adopt(image, *id, entry);
        }
        match found.is_empty() {
            true => None,
            false => match request.cached(&self.cache, self.cache.now()).0 {
                Cached::Fresh(Ok(support)) => Some(support),
                _ => None,
            },
        }
    }

    /// What a failure says of the registry. When to probe it, if that is due.
    fn note_failure(
        &self,
        request: Request<'_>,
        job: &Job,
        progress: &Progress,
        error: &Error,
    ) -> Option<ProbeDue> {
        let (host, access) = (&job.host, progress.access);
        if let Error::Throttled(_) = error.cause() {
            host.pause(access, self.cache.throttle(error));
        }
        // Slow after an answer is no fault of the registry: many candidates may have taken the time.
        if !error.is_fault() || progress.answered {
            host.answered(access);
            return None;
        }
        let time = host.failed(access, job.probe, matches!(error, Error::Timeout))?;
        Some(ProbeDue { time, failed: request.probe(access) })
    }

    fn outcome_of(&self, request: Request<'_>, job: &Job, progress: &Progress, error: &Error) -> Outcome {
        let image = request.image;
        let outcome = match lookup_error(error) {
            // It is cached already, for each candidate.
            refusal if is_refusal(refusal) => Err(refusal),
            _ => self.cache.fail(image, progress.access.credential, error),
        };
        let outcome = outcome.or_else(|error| request.last_good(&self.cache).ok_or(error));
        let result = if outcome.is_ok() { LookupResult::Stale } else { LookupResult::Failed };
        self.metrics.looked_up(image.host(), result);
        let Progress { credential, .. } = progress;
        let stale = outcome.is_ok();
        if job.probe.is_none() || job.host.warns() {
            tracing::warn!(%image, %error, credential, stale, "lookup failed");
        } else {
            tracing::debug!(%image, %error, credential, stale, "lookup failed");
        }
        outcome
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
        let mut busy = false;
        for candidate in candidates {
            progress.use_candidate(job, candidate);
            if let Some(error) = job.host.permission(progress.access).refusal().filter(|_| !probe) {
                return Err(error);
            }
            let mut answer = match self.cache.get(image, candidate.id()) {
                Cached::Fresh(Err(LookupError::Denied)) if !probe => {
                    Err(Error::Denied("the registry refused a moment ago".into()))
                }
                Cached::Fresh(Err(LookupError::NotFound)) if !probe => Err(Error::NotFound),
                _ => match self.try_one(image, candidate, job, progress, recorder).await {
                    Ok(asked) => asked,
                    Err(Busy) => {
                        tracing::debug!(%image, credential = candidate.kind(), "too many runs of its program");
                        busy = true;
                        continue;
                    }
                },
            };
            if let Err(Error::Denied(_)) = answer
                && let Some(changed) = progress.fetched(candidate.refetch(&job.callers)).await
            {
                progress.use_candidate(job, &changed);
                progress.by_another = changed.is_of_pod();
                if let Ok(again) = self.try_one(image, &changed, job, progress, recorder).await {
                    answer = again;
                }
            }
            progress.by_another &= answer.is_ok();
            let error = match answer {
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
        // The candidate that was passed over may be the one that works.
        if busy {
            return Err(LookupError::Overloaded);
        }
        Ok(Err(refused.unwrap_or(Error::Denied("there is no credential for the image".into()))))
    }

    /// Tries each credential of one candidate, and caches a refusal. [`Busy`] if its source cannot be asked now.
    async fn try_one(
        &self,
        image: &ImageRef,
        candidate: &CredentialCandidate,
        job: &Job,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Result<Result<Support, Error>, Busy> {
        let mut refused = Error::Denied("its source has no credential for the image".into());
        let recorder = recorder.with_credential(candidate.kind());
        for credential in progress.fetched(candidate.credentials_for(&job.callers)).await? {
            job.host.asked(progress.access);
            match self.ask(image, candidate, credential.as_deref(), &job.host, &recorder).await {
                Err(error) if is_refusal(lookup_error(&error)) => {
                    progress.answered = true;
                    refused = error;
                }
                Ok(support) => {
                    candidate.accepted();
                    return Ok(Ok(support));
                }
                Err(error) => {
                    if error.ends_older_answers() {
                        self.take_back(image, candidate);
                    }
                    return Ok(Err(error));
                }
            }
        }
        // An older good answer may outlive it (`last_good`), but first the next candidate is tried.
        let _ = self.cache.fail(image, candidate.id(), &refused);
        if refused.ends_older_answers() {
            self.take_back(image, candidate);
        }
        Ok(Err(refused))
    }

    /// Removes from the shared cache what the registry no longer says.
    fn take_back(&self, image: &ImageRef, candidate: &CredentialCandidate) {
        if let (Some((shared, _)), Some(credential)) = (self.sharing(), candidate.held_credential()) {
            shared.forget(image, credential);
        }
    }

    /// One HEAD request if that may suffice, as Docker Hub does not count those; otherwise the whole lookup.
    async fn ask(
        &self,
        image: &ImageRef,
        candidate: &CredentialCandidate,
        credential: Option<&Credential>,
        host: &Host,
        recorder: &Recorder,
    ) -> Result<Support, Error> {
        let Self { registry, cache, .. } = self;
        let id = candidate.id();
        let pull = Pull { image, credential, of_pod: candidate.is_of_pod(), recorder };
        // What helpers and plugins give is another credential on every replica.
        let sharing = self.sharing().filter(|_| candidate.held_credential().is_some());
        let mut lacks_head = false;
        if cache.points_to(image, id).is_some() && host.answers_head() {
            match registry.resolve(pull).await? {
                Head::Digest(digest) => {
                    if let Some((shared, _)) = sharing
                        && !cache.knows(image, id, digest)
                        && let Some(support) = shared.find_digest(image, credential, digest).await
                    {
                        cache.adopt_digest(image, id, digest, support);
                    }
                    if let Some(support) = cache.confirm(image, id, digest) {
                        if let Some((shared, life)) = sharing {
                            shared.confirm(image, credential, digest, support, life);
                        }
                        return Ok(support);
                    }
                }
                Head::Unsupported => lacks_head = true,
            }
        }
        let found = registry.find(pull).await?;
        if lacks_head {
            host.note_headless();
        }
        cache.learn(image, id, &found);
        if let Some((shared, life)) = sharing {
            shared.learn(image, credential, found, life);
        }
        Ok(found.support)
    }

    /// Where answers of this configuration are shared, and for how long.
    fn sharing(&self) -> Option<(&SharedCache, Duration)> {
        Some((self.shared.as_ref()?, self.cache.shared_life()?))
    }
}
