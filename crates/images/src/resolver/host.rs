//! Registries are isolated from each other: each has a circuit breaker, and a pause where it asks for one.

use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache as Bounded;
use tokio::time::{Duration, Instant};

use super::circuit::{self, Change, Circuit, FAILURES, Slot};
use super::metrics::ResolverMetrics;
use super::request::{Access, Probe, Request};
use crate::credentials::CredentialId;
use tolerarch_core::image::LookupError;
use tolerarch_support::concurrency::Caller;

/// Hosts whose state is kept; the least recently used are evicted.
const HOSTS: usize = 4096;
/// How long a registry that does not support HEAD requests gets none.
const LACKS_HEAD: Duration = Duration::from_secs(600);
/// How often the failure of a probe is logged as a warning: there may be one every three seconds.
const WARN: Duration = Duration::from_secs(60);
/// How long a registry may leave a lookup without an answer before Pods wait no longer than that for it, until it answers;
/// and for a probe. Lookups at a healthy one take 300 to 700 ms at a distance of 40 ms.
pub(super) const PATIENCE: Duration = Duration::from_millis(750);
/// How long that counts without another lookup: what happened then says nothing of now.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(60);
/// Credentials of one host whose pauses are kept.
const ACCOUNTS: usize = 64;

/// All hosts.
pub(super) struct Hosts {
    hosts: Bounded<Box<str>, Arc<Host>>,
    hasher: RandomState,
    metrics: ResolverMetrics,
}

/// One registry host, as images name it.
pub(super) struct Host {
    name: Box<str>,
    state: Mutex<State>,
    metrics: ResolverMetrics,
}

#[derive(Default)]
struct State {
    circuit: Circuit,
    /// Until when the registry is not asked, as it throttles: rate limits are per account, or per address for anonymous
    /// access. That has a place of its own, which credentials cannot take.
    anonymous: Option<Instant>,
    accounts: Vec<(CredentialId, Instant)>,
    lacks_head: Option<Instant>,
    /// Since when lookups of these namespaces have had no answer: an answer to anyone ends that. Two namespaces show that
    /// it is not of one's making.
    silent: [Option<Silence>; 2],
    /// When the failure of a probe was last logged as a warning.
    warned: Option<Instant>,
    known: bool,
}

/// Lookups of one namespace that have had no answer.
#[derive(Clone, Copy)]
struct Silence {
    namespace: u64,
    since: Instant,
    /// When one of them was begun or joined last.
    last: Instant,
}

impl Silence {
    fn is_over(&self) -> bool {
        self.last.elapsed() >= FORGOTTEN
    }

    fn is_late(&self) -> bool {
        self.since.elapsed() >= PATIENCE && !self.is_over()
    }
}

/// Whether a registry may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    Allowed,
    /// The registry throttles this account.
    Throttled,
    CircuitOpen,
    /// The circuit is half-open, and this lookup is the probe.
    Probe(Slot),
}

impl Hosts {
    pub(super) fn new(metrics: ResolverMetrics) -> Self {
        Self { hosts: Bounded::new(HOSTS), hasher: RandomState::new(), metrics }
    }

    pub(super) fn get(&self, name: &str) -> Arc<Host> {
        if let Some(host) = self.hosts.get(name) {
            return host;
        }
        let (metrics, state) = (self.metrics.clone(), Mutex::default());
        let fresh = Arc::new(Host { name: name.into(), state, metrics });
        let inserted: Result<_, std::convert::Infallible> =
            self.hosts.get_or_insert_with(&Box::<str>::from(name), || Ok(fresh));
        let Ok(host) = inserted;
        host
    }

    /// What the request asks for first, on behalf of this caller.
    pub(super) fn access(&self, request: Request<'_>, caller: &Caller) -> Access {
        Access::of(request, caller, &self.hasher)
    }
}

impl Host {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A lookup waits for the registry from now on.
    pub(super) fn asked(&self, access: Access) {
        let (now, mut state) = (Instant::now(), self.state());
        let silent = &mut state.silent;
        for place in silent.iter_mut() {
            place.take_if(|silence| silence.is_over());
        }
        if let Some(known) = silent.iter_mut().flatten().find(|of| of.namespace == access.namespace) {
            known.last = now;
        } else if let Some(free) = silent.iter_mut().find(|place| place.is_none()) {
            *free = Some(Silence { namespace: access.namespace, since: now, last: now });
        }
    }

    /// A Pod of this namespace waits for a lookup as well that another began.
    pub(super) fn joined(&self, access: Access) {
        // Not while that waits for its turn.
        if self.state().silent.iter().any(Option::is_some) {
            self.asked(access);
        }
    }

    /// A lookup of this namespace has ended by something else than the registry.
    pub(super) fn left(&self, access: Access) {
        for place in &mut self.state().silent {
            place.take_if(|silence| silence.namespace == access.namespace);
        }
    }

    /// Whether it has not answered for so long that a Pod of this namespace should not wait as long as it may; or failed
    /// when it was last asked for the image.
    pub(super) fn is_silent(&self, access: Access) -> bool {
        let state = self.state();
        let late = || state.silent.iter().flatten().filter(|silence| silence.is_late());
        let is_late = late().count() == state.silent.len()
            || late().any(|silence| silence.namespace == access.namespace);
        is_late || state.circuit.fails(access)
    }

    /// Whether a lookup may begin. A probe holds its slot until [`Host::release`].
    pub(super) fn enter(&self, access: Access) -> Permission {
        let mut state = self.state();
        let permission = state.permission(access);
        if let Permission::Probe(slot) = permission {
            state.circuit.take(slot, access);
        }
        permission
    }

    /// Whether the registry may be asked right now.
    pub(super) fn permission(&self, access: Access) -> Permission {
        self.state().permission(access)
    }

    /// A probe that no Pod asked for, if one is due; `failed` is the lookup that failed. It holds its slot until
    /// [`Host::release`].
    pub(super) fn begin_probe(&self, failed: Option<Probe>) -> Option<(Probe, Slot)> {
        self.state().circuit.begin_probe(failed)
    }

    /// The probe has ended.
    pub(super) fn release(&self, slot: Slot, access: Access) {
        self.state().circuit.release(slot, access);
    }

    /// A Pod was refused, as the circuit is open.
    pub(super) fn refused(&self, access: Access, request: Request<'_>) {
        self.state().circuit.refused(access, || request.probe(access));
    }

    /// Whether it has served a manifest, and neither timed out nor opened its circuit since. Pods name hosts as they like:
    /// those that may not work share half of the lookups.
    pub(super) fn is_known(&self) -> bool {
        self.state().known
    }

    /// The registry served a manifest. `probe` asks for it again, without a credential of a Pod.
    pub(super) fn served(&self, access: Access, probe: Option<Probe>) {
        self.answered(access);
        let mut state = self.state();
        state.known = true;
        if let Some(probe) = probe {
            state.circuit.good(probe);
        }
    }

    /// The registry answered, be it with a refusal.
    pub(super) fn answered(&self, access: Access) {
        let mut state = self.state();
        state.silent = [None; 2];
        if state.circuit.answered(access) {
            tracing::info!(registry = &*self.name, "circuit closed");
        }
    }

    /// The registry failed: no answer in time, no connection, a status of 500 or above. When to probe it, if that is due
    /// without a Pod.
    pub(super) fn failed(&self, access: Access, slot: Option<Slot>, timed_out: bool) -> Option<Instant> {
        let mut state = self.state();
        // With a credential of a Pod, that may be the cause.
        state.known &= !timed_out || access.of_pod;
        match state.circuit.failed(access, slot, || self.metrics.circuit_open(&self.name)) {
            Change::None => None,
            Change::Opened { due, for_all } => {
                state.known &= !for_all;
                let namespaces = if for_all { "all" } else { "one" };
                tracing::warn!(registry = &*self.name, repositories = FAILURES, namespaces, "circuit opened");
                Some(due)
            }
            Change::StillOpen(due) => due,
        }
    }

    /// Whether to log the failure of a probe as a warning.
    pub(super) fn warns(&self) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let is_due = state.warned.is_none_or(|warned| now.duration_since(warned) >= WARN);
        if is_due {
            state.warned = Some(now);
        }
        is_due
    }

    /// The registry asked for a pause, which holds for this credential.
    pub(super) fn pause(&self, access: Access, pause: Duration) {
        self.state().pause(access.credential, Instant::now() + pause);
    }

    /// Whether HEAD requests are worth a try.
    pub(super) fn answers_head(&self) -> bool {
        self.state().lacks_head.is_none_or(|until| Instant::now() >= until)
    }

    /// A HEAD request failed where a GET request did not.
    pub(super) fn note_headless(&self) {
        self.state().lacks_head = Some(Instant::now() + LACKS_HEAD);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permission {
    /// Why the registry may not be asked.
    pub(super) fn refusal(self) -> Option<LookupError> {
        match self {
            Self::Allowed | Self::Probe(_) => None,
            Self::Throttled => Some(LookupError::Throttled),
            Self::CircuitOpen => Some(LookupError::CircuitOpen),
        }
    }
}

impl State {
    fn permission(&self, access: Access) -> Permission {
        if self.paused_until(access.credential).is_some_and(|until| Instant::now() < until) {
            return Permission::Throttled;
        }
        match self.circuit.state(access) {
            circuit::State::Closed => Permission::Allowed,
            circuit::State::Open => Permission::CircuitOpen,
            circuit::State::HalfOpen(slot) => Permission::Probe(slot),
        }
    }

    fn paused_until(&self, credential: CredentialId) -> Option<Instant> {
        if credential == CredentialId::ANONYMOUS {
            return self.anonymous;
        }
        self.accounts.iter().find(|(of, _)| *of == credential).map(|(_, until)| *until)
    }

    /// Pauses this credential; of two pauses the longer one counts. If there is no room, it replaces the pause that ends
    /// first.
    fn pause(&mut self, credential: CredentialId, until: Instant) {
        if credential == CredentialId::ANONYMOUS {
            self.anonymous = self.anonymous.max(Some(until));
        } else if let Some((_, before)) = self.accounts.iter_mut().find(|(of, _)| *of == credential) {
            *before = until.max(*before);
        } else if self.accounts.len() < ACCOUNTS {
            self.accounts.push((credential, until));
        } else if let Some(first) = self.accounts.iter_mut().min_by_key(|(_, until)| *until) {
            *first = (credential, until);
        }
    }
}

#[cfg(test)]
mod tests;
