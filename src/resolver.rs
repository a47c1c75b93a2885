//! From image to platforms, in time: cache first, one lookup a key, and a Pod waits no longer than its budget.
//!
//! A lookup runs in a task of its own, whatever becomes of the Pods that wait for it, and ends by its own timeout; so a
//! Pod that could not wait leaves an answer behind for the next one. A good answer outlives its registry's failures.
//!
//! A Pod is answered by what the credentials that it may use have given, or anonymous access, and waits for no lookup with
//! others: who shares an answer, a flight or a failure could have got it by himself.

mod cache;
mod host;
mod lookup;
mod metrics;

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

pub use cache::CacheSettings;
pub use metrics::ResolverMetrics;

use crate::credentials::{CredentialCandidate, CredentialId};
use crate::image::{ImageRef, LookupError, Support};
use crate::registry::{Found, Registry, Traces};
use crate::single_flight::{self, InFlight, SingleFlight};
use cache::{Cache, Known};
use host::{Gate, Host, Hosts};
use lookup::{Lookup, Question};
use metrics::LookupResult;

/// What is known of an image.
pub type Outcome = Result<Support, LookupError>;

/// Lookups that may wait for their turn, for each one that may run.
const QUEUE: usize = 8;

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
    flights: SingleFlight<Box<str>, Landed>,
    running: Semaphore,
    /// Half of them, for registries that have never answered.
    strangers: Semaphore,
    metrics: ResolverMetrics,
    traces: Option<Traces>,
}

/// A lookup in flight.
type Flight = single_flight::Flight<Landed>;

/// What came of a lookup.
#[derive(Clone, Copy)]
struct Landed {
    outcome: Outcome,
    /// Whether it was got by a credential that only the Pod which began the lookup may use: its pull secret has another
    /// one by now.
    by_another: bool,
}

type Flights<'a> = InFlight<'a, Box<str>, Landed>;

/// A lookup that a Pod may wait for.
enum Started {
    /// It begins.
    New(Flight),
    /// It is under way.
    Joined(Flight),
    /// It is over.
    Landed(Outcome),
}

/// Where the answer to one image comes from.
enum Answer {
    Ready(Outcome),
    Pending {
        flight: Flight,
        /// Whether another Pod had begun it.
        joined: bool,
    },
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
            hosts: Hosts::new(lookup.per_registry, metrics.clone()),
            flights: SingleFlight::default(),
            running: Semaphore::new(lookup.concurrency),
            strangers: Semaphore::new(lookup.concurrency.div_ceil(2)),
            metrics: metrics.clone(),
            traces,
        };
        let cache = Cache::new(cache, metrics);
        Self(Arc::new(Inner { registry, settings: lookup, cache, state: Arc::new(state) }))
    }

    /// The resolver of another configuration: it knows what this one knows, and lookups that are under way end as they
    /// began. How many run at a time, and how many answers are remembered, stays as it was at the start.
    #[must_use]
    pub fn reconfigured(&self, registry: Registry, lookup: LookupSettings, cache: CacheSettings) -> Self {
        let cache = self.0.cache.reconfigured(cache);
        Self(Arc::new(Inner { registry, settings: lookup, cache, state: self.0.state.clone() }))
    }

    /// Looks up all images at once, until all are known, one of them is `enough` by itself, or the deadline comes.
    ///
    /// The answer has the order of `images`. `None` stands where another image was enough; what the deadline cut short
    /// is answered by an expired good answer, or [`LookupError::BudgetExceeded`].
    ///
    /// `candidates` are the ways to ask for an image, in the order in which they are tried
    /// ([`Keyring::candidates`](crate::credentials::Keyring::candidates)); without any of them it is denied.
    pub async fn resolve(
        &self,
        images: &[&ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
        deadline: Instant,
        enough: impl Fn(&ImageRef, Outcome) -> bool,
    ) -> Vec<Option<Outcome>> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(images.len());
        let (mut settled, mut pending) = (false, Vec::new());
        for (place, image) in images.iter().enumerate() {
            outcomes.push(match self.find(Question { image, candidates: &candidates(image) }) {
                Answer::Ready(outcome) => {
                    settled |= enough(image, outcome);
                    Some(outcome)
                }
                Answer::Pending { flight, joined } => {
                    pending.push(flight.map(move |landed| (place, joined, landed)));
                    None
                }
            });
        }
        if settled || pending.is_empty() {
            return outcomes;
        }
        // On the heap, as hardly any Pod has to wait, and all others would carry the room for it.
        Box::pin(async move {
            let mut pending: FuturesUnordered<_> = pending.into_iter().collect();
            loop {
                match timeout_at(deadline, pending.next()).await {
                    Ok(Some((place, joined, landed))) => {
                        let outcome = match landed {
                            Ok(Landed { by_another: true, .. }) if joined => Err(LookupError::Denied),
                            Ok(landed) => landed.outcome,
                            Err(_) => Err(LookupError::Internal),
                        };
                        outcomes[place] = Some(outcome);
                        if enough(images[place], outcome) {
                            return outcomes;
                        }
                    }
                    Ok(None) => return outcomes,
                    Err(_) => {
                        for (outcome, image) in
                            outcomes.iter_mut().zip(images).filter(|(outcome, _)| outcome.is_none())
                        {
                            let question = Question { image, candidates: &candidates(image) };
                            *outcome = Some(self.instead(question, LookupError::BudgetExceeded));
                        }
                        return outcomes;
                    }
                }
            }
        })
        .await
    }

    /// Whether a good answer to this image is at hand, or none can be had: then there is nothing to wait for, not even more
    /// credentials. Asks nobody.
    pub fn is_settled(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> bool {
        let known = || Question { image, candidates }.known(&self.0.cache).0;
        !self.0.registry.admits(image) || matches!(known(), Known::Fresh(Ok(_)) | Known::Stale { .. })
    }

    /// Takes in what anonymous access has told of an image: a door for whoever fills the cache ahead.
    pub fn learn(&self, image: &ImageRef, found: &Found) {
        self.0.cache.learn(image, CredentialId::ANONYMOUS, found);
    }

    /// The answer that serves at once, or the lookup that will give one.
    fn find(&self, question: Question<'_>) -> Answer {
        let count = |result| self.0.state.metrics.looked_up(question.image.host(), result);
        // Before the cache: a registry that is no longer allowed is not believed any more.
        if !self.0.registry.admits(question.image) {
            count(LookupResult::Failed);
            return Answer::Ready(Err(LookupError::NotAllowed));
        }
        let (known, to_ask) = question.known(&self.0.cache);
        match known {
            Known::Fresh(outcome) => {
                count(if outcome.is_ok() { LookupResult::Hit } else { LookupResult::Negative });
                Answer::Ready(outcome)
            }
            Known::Stale { support, due } => {
                count(LookupResult::Stale);
                if due {
                    // Whatever comes of it, this Pod has its answer.
                    let _ = self.start(to_ask);
                }
                Answer::Ready(Ok(support))
            }
            Known::Expired(_) | Known::Nothing => match self.start(to_ask) {
                Ok(Started::New(flight)) => Answer::Pending { flight, joined: false },
                Ok(Started::Joined(flight)) => {
                    count(LookupResult::Joined);
                    Answer::Pending { flight, joined: true }
                }
                Ok(Started::Landed(outcome)) => {
                    count(LookupResult::Joined);
                    Answer::Ready(outcome)
                }
                Err(unknown) => Answer::Ready(self.instead(question, unknown)),
            },
        }
    }

    /// A good answer that may serve although the registry does not answer, or why there is none.
    fn instead(&self, question: Question<'_>, unknown: LookupError) -> Outcome {
        let outcome = question.last_good(&self.0.cache).ok_or(unknown);
        let result = if outcome.is_ok() { LookupResult::Stale } else { LookupResult::Failed };
        self.0.state.metrics.looked_up(question.image.host(), result);
        outcome
    }

    /// The lookup of this image: one that is under way, or a new one. An error where none may begin, or none that is
    /// worth waiting for.
    fn start(&self, question: Question<'_>) -> Result<Started, LookupError> {
        let inner = &self.0;
        let host = inner.state.hosts.get(question.image.host());
        let flights = inner.state.flights.lock();
        if let Some(flight) = flights.get(&*question.key()) {
            // Nobody waits for a registry that is left alone, though a lookup may be under way.
            let refusal = host.gate(question.first()).refusal();
            return refusal.map_or_else(|| Ok(Started::Joined(flight)), Err);
        }
        if let (Known::Fresh(outcome), _) = question.known(&inner.cache) {
            // It has landed since the cache was asked.
            return Ok(Started::Landed(outcome));
        }
        // Registries that have never answered may take half of the queue, too.
        let share = if host.is_stranger() { 2 } else { 1 };
        if flights.len() >= inner.settings.concurrency * (1 + QUEUE) / share {
            return Err(LookupError::Overloaded);
        }
        let gate = host.enter(question.first(), inner.settings.per_registry * (1 + QUEUE));
        match (gate, gate.refusal()) {
            (Gate::Probe, _) => {
                // Nobody waits for it.
                drop(self.launch(flights, question.into(), host, true));
                Err(LookupError::CircuitOpen)
            }
            (_, Some(unknown)) => Err(unknown),
            (_, None) => Ok(Started::New(self.launch(flights, question.into(), host, false))),
        }
    }

    /// Begins a lookup that the host has let in, in a task of its own.
    fn launch(&self, flights: Flights<'_>, lookup: Lookup, host: Arc<Host>, probe: bool) -> Flight {
        let key = lookup.question().key().into();
        let begun = Begun { host, probe };
        let resolver = self.clone();
        flights.start(key, async move { resolver.look_up(lookup.question(), &begun.host, probe).await })
    }

    /// Finds out at this time whether a registry that kept failing is well again, also if no Pod asks for it. Not if the
    /// configuration has changed by then, as that may be what was wrong: the next Pod brings the probe.
    fn probe_at(&self, lookup: Lookup, time: Instant) {
        let resolver = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            sleep_until(time).await;
            let Some(resolver) = resolver.upgrade().map(Self) else { return };
            let inner = &resolver.0;
            let question = lookup.question();
            let host = inner.state.hosts.get(question.image.host());
            let flights = inner.state.flights.lock();
            let may = |host: &Host| host.enter(question.first(), usize::MAX) == Gate::Probe;
            if flights.get(&*question.key()).is_none() && may(&host) {
                drop(resolver.launch(flights, lookup, host, true));
            }
        });
    }
}

/// A lookup that its host counts, until it ends, also by a panic.
struct Begun {
    host: Arc<Host>,
    probe: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.host.landed(self.probe);
    }
}

#[cfg(test)]
mod tests;
