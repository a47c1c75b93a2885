//! One lookup: the ways to ask for an image are tried in their order until one of them is accepted.
//!
//! A refusal, also that there is no such image, is one way's own; it is remembered for that way only, and the next one is
//! tried. Any other failure is the registry's, and ends the lookup.

use std::borrow::Cow;
use std::fmt::Write;
use std::future::Future;

use tokio::time::{Duration, Instant, timeout};

use super::cache::{Cache, Known, lookup_error};
use super::host::{Asker, Host};
use super::metrics::LookupResult;
use super::{Inner, Landed, Outcome, Resolver};
use crate::credentials::{Credential, CredentialCandidate, CredentialId};
use crate::image::{ImageRef, LookupError, Support};
use crate::registry::{Error, Head, Recorder};

/// An image, and the ways in which a Pod may ask for it.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) image: &'a ImageRef,
    pub(super) candidates: &'a [CredentialCandidate],
}

/// The same, to be kept as long as the lookup takes.
pub(super) struct Lookup {
    image: ImageRef,
    candidates: Box<[CredentialCandidate]>,
}

impl From<Question<'_>> for Lookup {
    fn from(question: Question<'_>) -> Self {
        Self { image: question.image.clone(), candidates: question.candidates.into() }
    }
}

impl Lookup {
    pub(super) fn question(&self) -> Question<'_> {
        Question { image: &self.image, candidates: &self.candidates }
    }
}

/// How far a lookup has come.
struct Progress {
    /// Whose candidate it is at.
    asking: Asker,
    /// Whether the registry has answered anything, be it with a refusal.
    answered: bool,
    /// When the registry was asked first; later by the time that credentials took since.
    begun: Option<Instant>,
    /// Whether it waits for a credential.
    fetching: bool,
    /// Whether it is at a credential that has been read anew from where the Pod may read.
    by_another: bool,
}

impl Progress {
    fn of(question: Question<'_>) -> Self {
        Self { asking: question.first(), answered: false, begun: None, fetching: false, by_another: false }
    }

    /// Waits for a credential, which is no fault of the registry.
    async fn fetched<T>(&mut self, credential: impl Future<Output = T>) -> T {
        let before = Instant::now();
        self.fetching = true;
        let credential = credential.await;
        self.fetching = false;
        self.begun = Some(self.begun.unwrap_or(before) + before.elapsed());
        credential
    }

    /// What it means that the time is up.
    fn late(&self, timeout: Duration) -> Result<Error, LookupError> {
        match self.begun {
            _ if self.fetching => Err(LookupError::Timeout),
            Some(begun) if begun.elapsed() >= timeout / 2 => Ok(Error::Timeout),
            // What had waited for its turn most of the time says nothing about the registry.
            _ => Err(LookupError::Overloaded),
        }
    }
}

impl<'a> Question<'a> {
    /// Under what a lookup is known while it is under way. Without credentials it is the image's own text; no image has a
    /// space.
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

    /// Who asks first.
    pub(super) fn first(self) -> Asker {
        self.candidates.first().map_or_else(|| Asker::of(&CredentialCandidate::anonymous()), Asker::of)
    }

    /// What is known right now, whichever candidate it was learnt by, and what is to be asked to know more: for an answer
    /// that has become stale, the candidate that gave it.
    pub(super) fn known(self, cache: &Cache) -> (Known, Self) {
        let (mut stale, mut expired, mut refused, mut failed) = (None, None, None, None);
        let mut open = false;
        for (place, candidate) in self.candidates.iter().enumerate() {
            match cache.get(self.image, candidate.id()) {
                good @ Known::Fresh(Ok(_)) => return (good, self),
                Known::Fresh(Err(why)) if is_own(why) => refused = Some(telling(refused, why, candidate)),
                // In order: whoever comes after one that may still be asked does not keep it from being asked.
                Known::Fresh(Err(why)) => failed = failed.or((!open).then_some(why)),
                Known::Stale { support, due } => {
                    let candidates = &self.candidates[place..=place];
                    stale = stale.or(Some((Known::Stale { support, due }, Self { candidates, ..self })));
                }
                Known::Expired(support) => {
                    open = true;
                    expired = expired.or(Some(support));
                }
                Known::Nothing => open = true,
            }
        }
        if let Some(stale) = stale {
            return stale;
        }
        let known = match (failed, expired) {
            (Some(_), Some(support)) => Known::Stale { support, due: false },
            (Some(why), None) => Known::Fresh(Err(why)),
            (None, Some(support)) => Known::Expired(support),
            (None, None) if open => Known::Nothing,
            (None, None) => Known::Fresh(Err(refused.unwrap_or(LookupError::Denied))),
        };
        (known, self)
    }

    /// The good answer that serves while the registry fails.
    pub(super) fn last_good(self, cache: &Cache) -> Option<Support> {
        self.candidates.iter().find_map(|candidate| cache.last_good(self.image, candidate.id()))
    }
}

/// Whether a failure is that of one way to ask, and says nothing of another one.
fn is_own(why: LookupError) -> bool {
    matches!(why, LookupError::Denied | LookupError::NotFound)
}

/// What several refusals come to: that there is no such image tells more than a denial, if it was told to somebody who
/// was let in.
fn telling(before: Option<LookupError>, now: LookupError, candidate: &CredentialCandidate) -> LookupError {
    match before {
        Some(LookupError::Denied) if candidate.id() != CredentialId::ANONYMOUS => now,
        Some(before) => before,
        None => now,
    }
}

impl Resolver {
    /// Asks the registry, within the lookup's own timeout, and remembers what came of it.
    pub(super) async fn look_up(&self, question: Question<'_>, host: &Host, probe: bool) -> Landed {
        let mut progress = Progress::of(question);
        let recorder = self.0.state.traces.as_ref().map(|traces| traces.recorder(question.image));
        let recorder = recorder.unwrap_or_default();
        let outcome = self.look_up_in_time(question, host, probe, &mut progress, &recorder).await;
        Landed { outcome, by_another: progress.by_another }
    }

    async fn look_up_in_time(
        &self,
        question: Question<'_>,
        host: &Host,
        probe: bool,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Outcome {
        let inner = &self.0;
        let image = question.image;
        let _in_flight = inner.state.metrics.lookup_in_flight();
        let time = inner.settings.timeout;
        let asked = timeout(time, async {
            // First the host's share: a registry that hangs must not hold what others could use. Semaphores are never
            // closed; if one were, the lookup would run without its permit.
            let _share = host.running.acquire().await;
            let _half = if host.is_stranger() { Some(inner.state.strangers.acquire().await) } else { None };
            let _permit = inner.state.running.acquire().await;
            self.try_all(question, host, probe, progress, recorder).await
        });
        let asked = asked.await;
        let asked = asked.unwrap_or_else(|_| progress.late(time).map(Err));
        let answer = match asked {
            Ok(answer) => answer,
            Err(unknown) => return self.instead(question, unknown),
        };
        match answer {
            Ok(support) => {
                host.answered(progress.asking);
                inner.state.metrics.looked_up(image.host(), LookupResult::Fetched);
                Ok(support)
            }
            Err(error) => {
                // That it became slow after it had answered is no fault: many candidates may have taken the time.
                if !error.is_fault() || progress.answered {
                    host.answered(progress.asking);
                } else if let Some(time) = host.failed(progress.asking, probe) {
                    self.probe_at(question.into(), time);
                }
                if let Error::Throttled(_) = error {
                    host.pause(progress.asking, inner.cache.throttle(&error));
                }
                let outcome = match lookup_error(&error) {
                    // It is remembered already, as each candidate's own.
                    why if is_own(why) => Err(why),
                    _ => inner.cache.fail(image, progress.asking.access, &error),
                };
                let outcome = outcome.or_else(|why| question.last_good(&inner.cache).ok_or(why));
                let result = if outcome.is_ok() { LookupResult::Stale } else { LookupResult::Failed };
                inner.state.metrics.looked_up(image.host(), result);
                recorder.record(|trace| trace.error = Some(error.to_string()));
                tracing::warn!(%image, %error, stale = outcome.is_ok(), "lookup failed");
                outcome
            }
        }
    }

    /// Tries one candidate after the other. An [`LookupError`] where the registry is to be left alone.
    async fn try_all(
        &self,
        question: Question<'_>,
        host: &Host,
        probe: bool,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Result<Result<Support, Error>, LookupError> {
        let Question { image, candidates } = question;
        let mut refused: Option<Error> = None;
        for candidate in candidates {
            progress.asking = Asker::of(candidate);
            if let Some(unknown) = host.gate(progress.asking).refusal().filter(|_| !probe) {
                return Err(unknown);
            }
            let mut asked = match self.0.cache.get(image, candidate.id()) {
                Known::Fresh(Err(LookupError::Denied)) if !probe => {
                    Err(Error::Denied("it has refused a moment ago"))
                }
                Known::Fresh(Err(LookupError::NotFound)) if !probe => Err(Error::NotFound),
                _ => self.try_one(image, candidate, host, progress, recorder).await,
            };
            if let Err(Error::Denied(_)) = asked
                && let Some(changed) = progress.fetched(candidate.refetch()).await
            {
                progress.asking = Asker::of(&changed);
                progress.by_another = changed.is_of_pod();
                asked = self.try_one(image, &changed, host, progress, recorder).await;
            }
            progress.by_another &= asked.is_ok();
            let error = match asked {
                Err(error) if is_own(lookup_error(&error)) => error,
                answered => return Ok(answered),
            };
            tracing::debug!(%image, credential = candidate.kind(), %error, "not by this credential");
            let before = refused.as_ref().map(lookup_error);
            if before.is_none_or(|before| telling(Some(before), lookup_error(&error), candidate) != before) {
                refused = Some(error);
            }
        }
        Ok(Err(refused.unwrap_or(Error::Denied("there is no credential for it"))))
    }

    /// Asks with each credential of one candidate, and remembers a refusal.
    async fn try_one(
        &self,
        image: &ImageRef,
        candidate: &CredentialCandidate,
        host: &Host,
        progress: &mut Progress,
        recorder: &Recorder,
    ) -> Result<Support, Error> {
        let mut refused = Error::Denied("there is no credential after all");
        let recorder = recorder.with_credential(candidate.kind());
        for credential in progress.fetched(candidate.credentials()).await {
            match self.ask(image, candidate.id(), credential.as_deref(), host, &recorder).await {
                Err(error) if is_own(lookup_error(&error)) => {
                    progress.answered = true;
                    refused = error;
                }
                answered => return answered,
            }
        }
        // Never a good answer: a refusal ends that.
        let _ = self.0.cache.fail(image, candidate.id(), &refused);
        Err(refused)
    }

    /// One HEAD request where that can tell, as Docker Hub does not count those; else the whole lookup.
    async fn ask(
        &self,
        image: &ImageRef,
        access: CredentialId,
        credential: Option<&Credential>,
        host: &Host,
        recorder: &Recorder,
    ) -> Result<Support, Error> {
        let Inner { registry, cache, .. } = &*self.0;
        let mut headless = false;
        if cache.points_to(image, access).is_some() && host.answers_head() {
            match registry.head(image, credential, recorder).await? {
                Head::Digest(digest) => {
                    if let Some(support) = cache.confirm(image, access, digest) {
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
        cache.learn(image, access, &found);
        Ok(found.support)
    }
}
