//! Registries kept apart from each other: a share of the lookups for each, a pause where one asks for it, and a circuit
//! breaker for one that keeps failing. A registry that hangs costs its own Pods little, and others' nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache as Bounded;
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant};

use super::ResolverMetrics;
use crate::credentials::{CredentialCandidate, CredentialId};
use crate::image::LookupError;
use crate::metrics::Counted;

/// Hosts that are kept apart; those that nobody has asked for the longest are forgotten.
const HOSTS: usize = 4096;
/// Faults in a row that open a circuit.
const FAULTS: u32 = 3;
/// How long a circuit stays open before a probe: a registry that is well again is found out within a minute.
const OPEN: Duration = Duration::from_secs(20);
/// Probes of a registry that nobody asks for any more; after that the next Pod that does brings the next one.
const PROBES: u32 = 30;
/// How long a registry that cannot answer HEAD requests is not asked any.
const HEADLESS: Duration = Duration::from_secs(600);

/// Credentials of one host that are remembered because the host wants a pause from them, or fails when they are shown.
const ACCOUNTS: usize = 64;

/// All hosts.
pub(super) struct Hosts {
    hosts: Bounded<Box<str>, Arc<Host>>,
    per_registry: usize,
    metrics: ResolverMetrics,
}

/// One registry host, as images name it.
pub(super) struct Host {
    /// Lookups that run at a time.
    pub(super) running: Semaphore,
    name: Box<str>,
    state: Mutex<State>,
    metrics: ResolverMetrics,
}

#[derive(Default)]
struct State {
    /// Lookups under way, those that wait for their turn included.
    flights: usize,
    faults: u32,
    open: Option<(Instant, Counted)>,
    probing: bool,
    /// Probes to be made although no Pod asks.
    probes: u32,
    /// Those that ask without a credential. In a place of its own, which others cannot take.
    anonymous: Account,
    accounts: Vec<(CredentialId, Account)>,
    headless: Option<Instant>,
    /// It has answered before.
    known: bool,
}

/// Who asks a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) access: CredentialId,
    /// Whether the credential came with a Pod, so that whoever may create one can choose it.
    of_pod: bool,
}

/// What a registry thinks of one credential: rate limits are those of an account, or of the address for those without.
#[derive(Default)]
struct Account {
    /// Faults in a row, where the credential came with a Pod.
    faults: u32,
    /// Until when the registry is left alone by it, and why.
    rest: Option<(Instant, Gate)>,
}

/// Whether a registry may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// It may.
    Open,
    /// It asked to be left alone.
    Paused,
    /// It keeps failing.
    Broken,
    /// It kept failing; the one who is told this finds out whether it still does.
    Probe,
    /// Too many lookups wait for it.
    Full,
}

impl Hosts {
    pub(super) fn new(per_registry: usize, metrics: ResolverMetrics) -> Self {
        Self { hosts: Bounded::new(HOSTS), per_registry, metrics }
    }

    pub(super) fn get(&self, name: &str) -> Arc<Host> {
        if let Some(host) = self.hosts.get(name) {
            return host;
        }
        let fresh = Arc::new(Host {
            running: Semaphore::new(self.per_registry),
            name: name.into(),
            state: Mutex::default(),
            metrics: self.metrics.clone(),
        });
        let inserted: Result<_, std::convert::Infallible> =
            self.hosts.get_or_insert_with(&Box::<str>::from(name), || Ok(fresh));
        let Ok(host) = inserted;
        host
    }
}

impl Host {
    /// Whether a lookup may begin, which then is under way until [`Host::landed`]: `Open` and `Probe` say yes.
    pub(super) fn enter(&self, asker: Asker, flights_max: usize) -> Gate {
        let mut state = self.state();
        let gate = match state.gate(asker) {
            Gate::Open | Gate::Probe if state.flights >= flights_max => Gate::Full,
            gate => gate,
        };
        if gate == Gate::Broken {
            // Somebody still asks for it.
            state.probes = PROBES;
        }
        if matches!(gate, Gate::Open | Gate::Probe) {
            state.flights += 1;
            state.probing |= gate == Gate::Probe;
        }
        gate
    }

    /// Whether it has never answered: Pods name hosts as they like, and many that do not answer must not take the lookups of
    /// those that do.
    pub(super) fn is_stranger(&self) -> bool {
        !self.state().known
    }

    /// Whether the registry may be asked with this credential, right now.
    pub(super) fn gate(&self, asker: Asker) -> Gate {
        self.state().gate(asker)
    }

    /// A lookup is over, however it ended.
    pub(super) fn landed(&self, probe: bool) {
        let mut state = self.state();
        state.flights = state.flights.saturating_sub(1);
        state.probing &= !probe;
    }

    /// The registry answered, be it with a refusal.
    pub(super) fn answered(&self, asker: Asker) {
        let mut state = self.state();
        state.known = true;
        state.faults = 0;
        if let Some(account) = state.remembered(asker) {
            account.faults = 0;
        }
        if state.open.take().is_some() {
            tracing::info!(registry = &*self.name, "registry is well again");
        }
    }

    /// The registry failed: no answer in time, no connection, a status of 500 or above. Where that makes it one to be
    /// left alone: the time at which to find out whether it is well again.
    ///
    /// A credential that came with a Pod may be what it stumbles over; so such faults count against the credential only.
    pub(super) fn failed(&self, asker: Asker, probe: bool) -> Option<Instant> {
        let mut state = self.state();
        if asker.of_pod && !probe {
            let account = state.account(asker);
            account.faults = account.faults.saturating_add(1);
            if account.faults >= FAULTS {
                account.rest_for(OPEN, Gate::Broken);
            }
            return None;
        }
        state.faults = state.faults.saturating_add(1);
        if state.faults < FAULTS || state.open.is_some() && !probe {
            // Lookups that had begun before the circuit opened do not keep it open.
            return None;
        }
        let until = Instant::now() + OPEN;
        if let Some((open, _)) = &mut state.open {
            *open = until;
        } else {
            tracing::warn!(
                registry = &*self.name,
                faults = state.faults,
                "registry keeps failing, it is left alone for a while"
            );
            state.open = Some((until, self.metrics.circuit_open(&self.name)));
            state.probes = PROBES;
        }
        state.probes = state.probes.saturating_sub(1);
        (state.probes > 0).then_some(until)
    }

    /// The registry asked to be left alone for so long by those who ask with this credential.
    pub(super) fn pause(&self, asker: Asker, pause: Duration) {
        self.state().account(asker).rest_for(pause, Gate::Paused);
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

impl Gate {
    /// Why a Pod does not wait for this registry.
    pub(super) fn refusal(self) -> Option<LookupError> {
        match self {
            Self::Open => None,
            Self::Paused => Some(LookupError::Throttled),
            Self::Broken | Self::Probe => Some(LookupError::CircuitOpen),
            Self::Full => Some(LookupError::Overloaded),
        }
    }
}

impl Account {
    fn rest_for(&mut self, time: Duration, why: Gate) {
        let until = Instant::now() + time;
        if self.rest.is_none_or(|(before, _)| before < until) {
            self.rest = Some((until, why));
        }
    }
}

impl State {
    fn gate(&mut self, asker: Asker) -> Gate {
        let now = Instant::now();
        if let Some((until, gate)) = self.remembered(asker).and_then(|account| account.rest)
            && now < until
        {
            return gate;
        }
        match &self.open {
            None => Gate::Open,
            Some((until, _)) if now < *until || self.probing => Gate::Broken,
            Some(_) => Gate::Probe,
        }
    }

    fn remembered(&mut self, Asker { access, .. }: Asker) -> Option<&mut Account> {
        if access == CredentialId::ANONYMOUS {
            return Some(&mut self.anonymous);
        }
        self.accounts.iter_mut().find(|(of, _)| *of == access).map(|(_, account)| account)
    }

    /// The account of this credential, which takes the place of the one that has the least to say, if there is no room.
    fn account(&mut self, asker: Asker) -> &mut Account {
        if asker.access == CredentialId::ANONYMOUS {
            return &mut self.anonymous;
        }
        let known = self.accounts.iter().position(|(of, _)| *of == asker.access);
        let place = known.unwrap_or_else(|| {
            let fresh = (asker.access, Account::default());
            if self.accounts.len() < ACCOUNTS {
                self.accounts.push(fresh);
                return self.accounts.len() - 1;
            }
            let until = |place: &usize| self.accounts[*place].1.rest.map(|(until, _)| until);
            let least = (0..self.accounts.len()).min_by_key(until).unwrap_or_default();
            self.accounts[least] = fresh;
            least
        });
        &mut self.accounts[place].1
    }
}

impl Asker {
    /// Whoever asks in this way.
    pub(super) fn of(candidate: &CredentialCandidate) -> Self {
        Self { access: candidate.id(), of_pod: candidate.is_of_pod() }
    }
}

#[cfg(test)]
mod tests;
