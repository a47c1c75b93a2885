//! Registries are isolated from each other: each has a circuit breaker, and a pause where it asks for one.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache as Bounded;
use tokio::time::{Duration, Instant};

use super::ResolverMetrics;
use super::circuit::{self, Change, Circuit, FAILURES, OPEN, Repository, Slot};
use super::lookup::{Lookup, Request};
use crate::credentials::{CredentialCandidate, CredentialId};
use crate::image::LookupError;

/// Hosts whose state is kept; the least recently used are evicted.
const HOSTS: usize = 4096;
/// How long a registry that does not support HEAD requests gets none.
const HEADLESS: Duration = Duration::from_secs(600);
/// Credentials of one host whose pauses and failures are kept.
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
    /// Anonymous access has a place of its own, which credentials cannot take.
    anonymous: Account,
    accounts: Vec<(CredentialId, Account)>,
    headless: Option<Instant>,
    known: bool,
}

/// Which repository is asked for, with which credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) repository: Repository,
    pub(super) credential: CredentialId,
    /// Whether the credential came with a Pod: anyone who may create a Pod can choose it.
    pub(super) of_pod: bool,
}

/// What a registry makes of one credential: rate limits are per account, or per address for anonymous access.
#[derive(Default)]
struct Account {
    /// Failures in a row, if the credential came with a Pod.
    failures: usize,
    /// Until when the registry is not asked with it, and why.
    pause: Option<(Instant, Permission)>,
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

    /// How the request asks first.
    pub(super) fn access(&self, request: Request<'_>) -> Access {
        let repository = self.hasher.hash_one(request.image.repository());
        let anonymous = CredentialCandidate::anonymous();
        Access { repository, credential: CredentialId::ANONYMOUS, of_pod: false }
            .with(request.candidates.first().unwrap_or(&anonymous))
    }
}

impl Access {
    /// The same with another candidate.
    pub(super) fn with(self, candidate: &CredentialCandidate) -> Self {
        Self { credential: candidate.id(), of_pod: candidate.is_of_pod(), ..self }
    }
}

impl Host {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether a lookup may begin. A probe holds its slot until [`Host::release`].
    pub(super) fn enter(&self, access: Access) -> Permission {
        let mut state = self.state();
        let permission = state.permission(access);
        if let Permission::Probe(slot) = permission {
            state.circuit.take(slot, access.repository);
        }
        permission
    }

    /// Whether the registry may be asked right now.
    pub(super) fn permission(&self, access: Access) -> Permission {
        self.state().permission(access)
    }

    /// The probe has ended.
    pub(super) fn release(&self, slot: Slot, access: Access) {
        self.state().circuit.release(slot, access.repository);
    }

    /// A Pod was refused, as the circuit is open.
    pub(super) fn refused(&self, access: Access, request: Request<'_>) {
        let lookup = || (!access.of_pod).then(|| Lookup::from(request));
        self.state().circuit.refused(access.repository, lookup);
    }

    /// The image by which to find out whether the registry works again.
    pub(super) fn probe(&self) -> Option<Lookup> {
        self.state().circuit.probe()
    }

    /// Whether it has served a manifest, and has not failed since. Pods name hosts as they like: those that may not work
    /// share half of the lookups.
    pub(super) fn is_known(&self) -> bool {
        self.state().known
    }

    /// The registry served a manifest. `lookup` asks for it again, without a credential of a Pod.
    pub(super) fn served(&self, access: Access, lookup: Option<Lookup>) {
        self.answered(access);
        let mut state = self.state();
        state.known = true;
        if let Some(lookup) = lookup {
            state.circuit.good(lookup);
        }
    }

    /// The registry answered, be it with a refusal.
    pub(super) fn answered(&self, access: Access) {
        let mut state = self.state();
        if let Some(account) = state.find_account(access.credential) {
            account.failures = 0;
        }
        if state.circuit.answered(access.repository) {
            tracing::info!(registry = &*self.name, "circuit closed");
        }
    }

    /// The registry failed: no answer in time, no connection, a status of 500 or above. When to probe it, if that is due
    /// without a Pod.
    ///
    /// A credential of a Pod may be the cause, so it fails alone.
    pub(super) fn failed(&self, access: Access, slot: Option<Slot>) -> Option<Instant> {
        let mut state = self.state();
        state.known = false;
        if access.of_pod && slot.is_none() {
            let account = state.account(access.credential);
            account.failures += 1;
            if account.failures >= FAILURES {
                account.pause_for(OPEN, Permission::CircuitOpen);
            }
            return None;
        }
        match state.circuit.failed(access.repository, slot, || self.metrics.circuit_open(&self.name)) {
            Change::None => None,
            Change::Opened(until) => {
                tracing::warn!(registry = &*self.name, repositories = FAILURES, "circuit opened");
                Some(until)
            }
            Change::StillOpen(until) => until,
        }
    }

    /// The registry asked for a pause, which holds for this credential.
    pub(super) fn pause(&self, access: Access, pause: Duration) {
        self.state().account(access.credential).pause_for(pause, Permission::Throttled);
    }

    /// Whether HEAD requests are worth a try.
    pub(super) fn answers_head(&self) -> bool {
        self.state().headless.is_none_or(|until| Instant::now() >= until)
    }

    /// A HEAD request failed where a GET request did not.
    pub(super) fn note_headless(&self) {
        self.state().headless = Some(Instant::now() + HEADLESS);
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

impl Account {
    fn pause_for(&mut self, time: Duration, why: Permission) {
        let until = Instant::now() + time;
        if self.pause.is_none_or(|(before, _)| before < until) {
            self.pause = Some((until, why));
        }
    }
}

impl State {
    fn permission(&mut self, access: Access) -> Permission {
        let account = self.find_account(access.credential);
        if let Some((until, why)) = account.and_then(|account| account.pause)
            && Instant::now() < until
        {
            return why;
        }
        match self.circuit.state(access.repository) {
            circuit::State::Closed => Permission::Allowed,
            circuit::State::Open => Permission::CircuitOpen,
            circuit::State::HalfOpen(slot) => Permission::Probe(slot),
        }
    }

    fn find_account(&mut self, credential: CredentialId) -> Option<&mut Account> {
        if credential == CredentialId::ANONYMOUS {
            return Some(&mut self.anonymous);
        }
        self.accounts.iter_mut().find(|(of, _)| *of == credential).map(|(_, account)| account)
    }

    /// The account of this credential. If there is no room, it replaces the one whose pause ends first.
    fn account(&mut self, credential: CredentialId) -> &mut Account {
        if credential == CredentialId::ANONYMOUS {
            return &mut self.anonymous;
        }
        let known = self.accounts.iter().position(|(of, _)| *of == credential);
        let place = known.unwrap_or_else(|| {
            let fresh = (credential, Account::default());
            if self.accounts.len() < ACCOUNTS {
                self.accounts.push(fresh);
                return self.accounts.len() - 1;
            }
            let until = |place: &usize| self.accounts[*place].1.pause.map(|(until, _)| until);
            let first = (0..self.accounts.len()).min_by_key(until).unwrap_or_default();
            self.accounts[first] = fresh;
            first
        });
        &mut self.accounts[place].1
    }
}

#[cfg(test)]
mod tests;
