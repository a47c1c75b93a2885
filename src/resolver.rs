//! From image to platforms, in time: cache first, one lookup per key, and a Pod waits no longer than its budget.
//!
//! A lookup runs in a task of its own, independent of the Pods that wait for it, and ends by its own timeout; so a Pod
//! that could not wait leaves an answer behind for the next one. A good answer outlives its registry's failures.
//!
//! Answers, lookups in flight and failures are shared only between holders of the same credential, or by anonymous access.

mod cache;
mod circuit;
mod host;
mod lookup;
mod metrics;

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Duration, Instant, sleep_until, timeout, timeout_at};

pub use crate::concurrency::Tenant;
pub use cache::CacheSettings;
pub use metrics::ResolverMetrics;

use crate::concurrency::{Caller, Callers, Capacity, ConcurrencyLimit, Queued};
use crate::credentials::{CredentialCandidate, CredentialId};
use crate::image::{ImageRef, LookupError, Support};
use crate::registry::{Found, Registry, Traces};
use crate::single_flight::{self, InFlight, SingleFlight};
use cache::{Cache, Cached};
use circuit::Slot;
use host::{Access, Host, Hosts, Permission};
use lookup::{Lookup, Request};
use metrics::LookupResult;

/// The result of a lookup.
pub type Outcome = Result<Support, LookupError>;

/// How long a Pod waits for a lookup that probes a failing registry: enough for one that works again.
const PROBE_WAIT: Duration = Duration::from_millis(750);

/// How lookups are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// How long one Pod may wait; less when the API server's own timeout is near.
    pub budget: Duration,
    /// How long one lookup may take in all.
    pub timeout: Duration,
    /// Lookups that run at a time, in all.
    pub concurrency: usize,
    /// Lookups that run at a time, of one registry.
    pub per_registry: usize,
}

/// Finds platforms under one configuration, from the beginning of a review to the end of the lookups that it began.
/// Clones are the same resolver.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    registry: Registry,
    settings: LookupSettings,
    cache: Cache,
    state: Arc<State>,
}

/// What outlives a change of the configuration, beside what the cache holds.
struct State {
    hosts: Hosts,
    flights: Flights,
    limit: Arc<ConcurrencyLimit>,
    metrics: ResolverMetrics,
    traces: Option<Traces>,
}

type Flights = SingleFlight<Box<str>, Completed, Callers>;

/// A completed lookup.
#[derive(Clone, Copy)]
struct Completed {
    outcome: Outcome,
    /// Whether the answer came by a credential that was read anew from the pull secret of the Pod that began the lookup.
    /// It is for Pods with that secret only.
    by_another: bool,
}

/// What a lookup in flight holds, until it ends, also by a panic.
struct Job {
    host: Arc<Host>,
    /// The first candidate's.
    access: Access,
    probe: Option<Slot>,
    callers: Callers,
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(slot) = self.probe {
            self.host.release(slot, self.access);
        }
    }
}

/// Where the answer to one image comes from.
enum Answer {
    Ready(Outcome),
    Pending(Pending),
}

/// A lookup in flight that a Pod waits for.
struct Pending {
    flight: single_flight::Flight<Completed>,
    /// Whether another Pod began it.
    joined: bool,
    /// Whether it probes a failing registry.
    probe: bool,
}

impl Pending {
    /// The outcome; [`LookupError::CircuitOpen`] if a probe takes too long.
    async fn outcome(self) -> Outcome {
        let completed = match self.probe {
            true => timeout(PROBE_WAIT, self.flight).await.map_err(|_| LookupError::CircuitOpen)?,
            false => self.flight.await,
        };
        match completed {
            Ok(Completed { by_another: true, .. }) if self.joined => Err(LookupError::Denied),
            Ok(completed) => completed.outcome,
            Err(_) => Err(LookupError::Internal),
        }
    }
}

impl Resolver {
    /// A resolver with an empty cache.
    pub fn new(
        registry: Registry,
        lookup: LookupSettings,
        cache: CacheSettings,
        metrics: ResolverMetrics,
    ) -> Self {
        Self::with_traces(registry, lookup, cache, metrics, None)
    }

    /// A resolver that records its lookups, for a command that shows them.
    pub fn with_traces(
        registry: Registry,
        lookup: LookupSettings,
        cache: CacheSettings,
        metrics: ResolverMetrics,
        traces: Option<Traces>,
    ) -> Self {
        let state = State {
            hosts: Hosts::new(metrics.clone()),
            flights: SingleFlight::default(),
            limit: ConcurrencyLimit::new(Capacity { all: lookup.concurrency, per_host: lookup.per_registry }),
            metrics: metrics.clone(),
            traces,
        };
        let cache = Cache::new(cache, metrics);
        Self(Arc::new(Inner { registry, settings: lookup, cache, state: Arc::new(state) }))
    }

    /// The resolver of another configuration: it shares the cache, and lookups in flight end as they began. The limits on
    /// concurrency and on cached answers stay as at the start.
    #[must_use]
    pub fn reconfigured(&self, registry: Registry, lookup: LookupSettings, cache: CacheSettings) -> Self {
        let cache = self.0.cache.reconfigured(cache);
        Self(Arc::new(Inner { registry, settings: lookup, cache, state: self.0.state.clone() }))
    }

    /// Looks up all images at once, until all are known, one of them is `enough` by itself, or the deadline comes.
    ///
    /// The answer has the order of `images`. `None` stands where another image was enough; an image that the deadline cut
    /// short has its expired good answer, or [`LookupError::BudgetExceeded`].
    ///
    /// Lookups count towards the shares of `tenant`, the Pod's namespace. `candidates` are an image's credential
    /// candidates in the order in which they are tried
    /// ([`Keyring::candidates`](crate::credentials::Keyring::candidates)); without any the image is denied.
    pub async fn resolve(
        &self,
        tenant: Tenant<'_>,
        images: &[&ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
        deadline: Instant,
        enough: impl Fn(&ImageRef, Outcome) -> bool,
    ) -> Vec<Option<Outcome>> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(images.len());
        let (mut settled, mut pending) = (false, Vec::new());
        {
            // Cached answers need no caller.
            let mut caller = None;
            let mut caller = || caller.get_or_insert_with(|| Caller::of(tenant)).clone();
            for (place, image) in images.iter().enumerate() {
                let request = Request { image, candidates: &candidates(image) };
                outcomes.push(match self.find(request, &mut caller) {
                    Answer::Ready(outcome) => {
                        settled |= enough(image, outcome);
                        Some(outcome)
                    }
                    Answer::Pending(flight) => {
                        pending.push((place, flight));
                        None
                    }
                });
            }
        }
        if settled || pending.is_empty() {
            return outcomes;
        }
        // On the heap, as few Pods have to wait, and all others would carry the room for it.
        Box::pin(async move {
            let late: Vec<(usize, bool)> =
                pending.iter().map(|(place, pending)| (*place, pending.probe)).collect();
            let wait = |(place, pending): (usize, Pending)| async move { (place, pending.outcome().await) };
            let mut pending: FuturesUnordered<_> = pending.into_iter().map(wait).collect();
            let instead = |place: usize, why| {
                let image = images[place];
                self.instead(Request { image, candidates: &candidates(image) }, why)
            };
            loop {
                match timeout_at(deadline, pending.next()).await {
                    Ok(Some((place, outcome))) => {
                        let outcome = match outcome {
                            Err(why @ LookupError::CircuitOpen) => instead(place, why),
                            outcome => outcome,
                        };
                        outcomes[place] = Some(outcome);
                        if enough(images[place], outcome) {
                            return outcomes;
                        }
                    }
                    Ok(None) => return outcomes,
                    Err(_) => {
                        for (place, is_probe) in late {
                            let why = match is_probe {
                                true => LookupError::CircuitOpen,
                                false => LookupError::BudgetExceeded,
                            };
                            outcomes[place] = outcomes[place].or_else(|| Some(instead(place, why)));
                        }
                        return outcomes;
                    }
                }
            }
        })
        .await
    }

    /// Whether a good answer to this image is cached, or none is allowed: then there is nothing to wait for, not even more
    /// credentials. Asks no registry.
    pub fn is_settled(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> bool {
        let cached = || Request { image, candidates }.cached(&self.0.cache).0;
        !self.0.registry.admits(image) || matches!(cached(), Cached::Fresh(Ok(_)) | Cached::Stale { .. })
    }

    /// Caches what anonymous access said of an image, to fill the cache ahead.
    pub fn learn(&self, image: &ImageRef, found: &Found) {
        self.0.cache.learn(image, CredentialId::ANONYMOUS, found);
    }

    /// The answer that serves at once, or the lookup that will give one.
    fn find(&self, request: Request<'_>, caller: &mut impl FnMut() -> Caller) -> Answer {
        let count = |result| self.0.state.metrics.looked_up(request.image.host(), result);
        // Before the cache: a registry that is no longer allowed is no longer trusted either.
        if !self.0.registry.admits(request.image) {
            count(LookupResult::Failed);
            return Answer::Ready(Err(LookupError::NotAllowed));
        }
        let (cached, refresh) = request.cached(&self.0.cache);
        match cached {
            Cached::Fresh(outcome) => {
                count(if outcome.is_ok() { LookupResult::Hit } else { LookupResult::Negative });
                Answer::Ready(outcome)
            }
            Cached::Stale { support, due } => {
                count(LookupResult::Stale);
                if due {
                    // This Pod has its answer, whatever the result.
                    let _ = self.start(refresh, &caller());
                }
                Answer::Ready(Ok(support))
            }
            Cached::Expired(_) | Cached::Nothing => match self.start(request, &caller()) {
                Ok(answer) => {
                    if !matches!(answer, Answer::Pending(Pending { joined: false, .. })) {
                        count(LookupResult::Joined);
                    }
                    answer
                }
                Err(unknown) => Answer::Ready(self.instead(request, unknown)),
            },
        }
    }

    /// A good answer that may serve although the registry does not answer, or why there is none.
    fn instead(&self, request: Request<'_>, unknown: LookupError) -> Outcome {
        let outcome = request.last_good(&self.0.cache).ok_or(unknown);
        let result = if outcome.is_ok() { LookupResult::Stale } else { LookupResult::Failed };
        self.0.state.metrics.looked_up(request.image.host(), result);
        outcome
    }

    /// Joins the lookup of this image that is in flight, or begins one. An error if none may begin, or if its registry
    /// is known to fail.
    fn start(&self, request: Request<'_>, caller: &Caller) -> Result<Answer, LookupError> {
        let inner = &self.0;
        let host = inner.state.hosts.get(request.image.host());
        let access = inner.state.hosts.access(request);
        let flights = inner.state.flights.lock();
        if let Some((flight, callers)) = flights.get(&*request.key()) {
            if let Some(unknown) = host.permission(access).refusal() {
                return Err(unknown);
            }
            inner.state.limit.join(callers, caller);
            return Ok(Answer::Pending(Pending { flight: flight.clone(), joined: true, probe: false }));
        }
        if let (Cached::Fresh(outcome), _) = request.cached(&inner.cache) {
            // It has completed since the cache was asked.
            return Ok(Answer::Ready(outcome));
        }
        let permission = host.enter(access);
        if let Some(unknown) = permission.refusal() {
            if unknown == LookupError::CircuitOpen {
                host.refused(access, request);
            }
            return Err(unknown);
        }
        let probe = if let Permission::Probe(slot) = permission { Some(slot) } else { None };
        let job = Job { host, access, probe, callers: caller.clone().into() };
        let known = job.host.is_known();
        let queued =
            inner.state.limit.queue(&job.callers, job.host.name(), known).ok_or(LookupError::Overloaded)?;
        let flight = self.launch(flights, request.into(), job, queued);
        Ok(Answer::Pending(Pending { flight, joined: false, probe: probe.is_some() }))
    }

    /// Begins a lookup in a task of its own.
    fn launch(
        &self,
        flights: InFlight<'_, Box<str>, Completed, Callers>,
        lookup: Lookup,
        job: Job,
        queued: Queued,
    ) -> single_flight::Flight<Completed> {
        let resolver = self.clone();
        let key = lookup.request().key().into();
        let callers = job.callers.clone();
        flights.start(key, callers, async move { resolver.look_up(lookup.request(), &job, queued).await })
    }

    /// Finds out at this time whether a failing registry works again, also if no Pod asks: by an image that has worked, by
    /// one that was asked for since, or by the one that failed. Not if the configuration has changed by then, as that may
    /// have been the cause: the next Pod brings the probe.
    fn probe_at(&self, failed: Lookup, time: Instant) {
        let resolver = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            sleep_until(time).await;
            let Some(resolver) = resolver.upgrade().map(Self) else { return };
            let inner = &resolver.0;
            let host = inner.state.hosts.get(failed.request().image.host());
            let lookup = host.probe().unwrap_or(failed);
            let access = inner.state.hosts.access(lookup.request());
            let flights = inner.state.flights.lock();
            if flights.get(&*lookup.request().key()).is_some() {
                return;
            }
            let Permission::Probe(slot) = host.enter(access) else { return };
            let job = Job { host, access, probe: Some(slot), callers: Callers::operator() };
            if let Some(queued) = inner.state.limit.queue(&job.callers, job.host.name(), true) {
                drop(resolver.launch(flights, lookup, job, queued));
            }
        });
    }
}

#[cfg(test)]
mod tests;
