//! Isolates registries from each other: each has a circuit breaker, and pauses while it throttles.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

use quick_cache::sync::Cache as Bounded;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::cache::Pauses;
use super::circuit::{FAILURES, Faults, PROBE_PATIENCE, Scope};
use super::metrics::ResolverMetrics;
use super::request::{Access, Request};
use super::throttling::{Throttler, Throttling};
use crate::credentials::CredentialId;
use crate::registry::FaultScope;
use tolerarch_core::image::LookupError;
use tolerarch_support::concurrency::Tenant;
use tolerarch_support::metrics::{Counted, counted};
use tolerarch_support::sync::Mutex;

/// Hosts whose state is kept; the least recently used are evicted.
const HOSTS: usize = 4096;
/// Time for which a registry that does not support HEAD requests gets none.
const LACKS_HEAD: Duration = Duration::from_secs(600);
/// Time without an answer after which a registry counts as silent. From then on no Pod waits longer than this, until
/// the registry answers. Lookups at a healthy registry take 300 to 700 ms at a round-trip time of 40 ms.
pub(super) const PATIENCE: Duration = Duration::from_millis(750);
/// Time without an answer to anyone after which Pods wait [`PROBE_PATIENCE`] only. It is long, as tenants may have images
/// whose lookups hang, and a healthy registry answers others meanwhile.
pub(super) const LONG_SILENCE: Duration = Duration::from_secs(30);
/// Time without another lookup after which a failure or silence says nothing about the registry any more.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(60);
/// Number of namespaces without an answer that show a registry to be silent: one alone may have caused its silence.
const SILENT: usize = 2;

pub(super) struct Hosts {
    hosts: Bounded<String, Arc<Host>>,
    hasher: RandomState,
    metrics: ResolverMetrics,
}

/// Registry host, as images name it.
pub(super) struct Host {
    pub(super) name: Box<str>,
    state: Mutex<State>,
    metrics: ResolverMetrics,
}

/// Right of a lookup to probe a registry whose circuit is half-open. At a time, one lookup of a namespace holds it.
pub(super) type Probe = Arc<()>;

#[derive(Default)]
struct State {
    faults: Faults,
    /// Probes by the namespace and the circuit.
    probes: HashMap<(u64, Scope), Weak<()>>,
    /// Set while the circuit of the registry is open for any namespace.
    open: Option<Counted>,
    /// Set from a failure until the registry's next answer.
    failing: Option<Counted>,
    /// Task that closes the circuit if no Pod needs the registry any more.
    unused: Option<AbortOnDropHandle<()>>,
    throttling: Throttling,
    lacks_head: Option<Instant>,
    /// Namespaces whose lookups have had no answer. An answer to any namespace clears them all.
    silent: HashMap<u64, Silence>,
}

struct Silence {
    since: Instant,
    /// Time at which a lookup last began or was joined.
    last: Instant,
}

impl Silence {
    fn is_over(&self) -> bool {
        self.last.elapsed() >= FORGOTTEN
    }

    fn is_late(&self, time: Duration) -> bool {
        self.since.elapsed() >= time && !self.is_over()
    }
}

impl Hosts {
    pub(super) fn new(metrics: ResolverMetrics) -> Self {
        Self {
            hosts: Bounded::new(HOSTS),
            hasher: RandomState::new(),
            metrics,
        }
    }

    pub(super) fn get(&self, name: &str) -> Arc<Host> {
        let fresh = || Host {
            name: name.into(),
            state: Mutex::default(),
            metrics: self.metrics.clone(),
        };
        let Ok(host) = self
            .hosts
            .get_or_insert_with(name, || Ok::<_, Infallible>(fresh().into()));
        host
    }

    /// Returns the access that the request needs on behalf of this tenant, with the request's first candidate.
    pub(super) fn access(&self, request: Request<'_>, tenant: &Tenant) -> Access {
        let access = Access {
            image: self.hasher.hash_one(request.image.as_str()),
            repository: self.hasher.hash_one(request.image.repository()),
            namespace: self.hasher.hash_one(tenant),
            credential: CredentialId::ANONYMOUS,
            of_pod: false,
        };
        match request.candidates.first() {
            Some(candidate) => access.with(candidate),
            None => access,
        }
    }
}

impl Host {
    /// Records that a lookup waits for the registry from now on.
    pub(super) fn lookup_started(&self, access: Access) {
        let now = Instant::now();
        let silent = &mut self.state.lock().silent;
        silent.retain(|_, silence| !silence.is_over());
        if let Some(silence) = silent.get_mut(&access.namespace) {
            silence.last = now;
        } else if silent.len() < SILENT {
            let silence = Silence {
                since: now,
                last: now,
            };
            silent.insert(access.namespace, silence);
        }
    }

    /// Records that a Pod of this namespace waits for a lookup that another Pod began.
    pub(super) fn lookup_joined(&self, access: Access) {
        // Nothing to record while that lookup waits for its permit.
        if !self.state.lock().silent.is_empty() {
            self.lookup_started(access);
        }
    }

    /// Records that a lookup of this namespace has ended for a reason other than the registry.
    pub(super) fn lookup_abandoned(&self, access: Access) {
        self.state.lock().silent.remove(&access.namespace);
    }

    /// Returns how long a Pod of this namespace waits for a lookup at most.
    pub(super) fn patience(&self, access: Access) -> Duration {
        let state = self.state.lock();
        let is_silent_for_all = |time| {
            let late = state
                .silent
                .values()
                .filter(|silence| silence.is_late(time));
            late.count() == SILENT
        };
        if is_silent_for_all(LONG_SILENCE) {
            return PROBE_PATIENCE;
        }
        let silence = state.silent.get(&access.namespace);
        if silence.is_some_and(|silence| silence.is_late(PATIENCE))
            || is_silent_for_all(PATIENCE)
            || state.faults.has(access)
        {
            return PATIENCE;
        }
        Duration::MAX
    }

    /// Admits a lookup if the registry may be queried; as a probe where a circuit is half-open.
    pub(super) fn enter(&self, access: Access) -> Result<Option<Probe>, LookupError> {
        let mut state = self.state.lock();
        let Some(scope) = state.permission(access)? else {
            return Ok(None);
        };
        let probe = Probe::default();
        state.probes.retain(|_, probe| probe.strong_count() > 0);
        state
            .probes
            .insert((access.namespace, scope), Arc::downgrade(&probe));
        Ok(Some(probe))
    }

    /// Fails if the registry must not be queried right now, not even by a probe.
    pub(super) fn permission(&self, access: Access) -> Result<(), LookupError> {
        self.state.lock().permission(access).map(drop)
    }

    /// Records an answer of the registry, be it a refusal.
    pub(super) fn answered(&self, access: Access) {
        let mut state = self.state.lock();
        state.silent.clear();
        state.faults.answered(access);
        state
            .probes
            .retain(|(_, scope), _| scope.is_some_and(|scope| scope != access.repository));
        state.failing = None;
        self.close(&mut state);
    }

    /// Records that the registry answered a lookup with an image.
    pub(super) fn succeeded(&self, access: Access) {
        self.answered(access);
        self.state
            .lock()
            .throttling
            .answered(access, Instant::now());
    }

    /// Records a failed lookup: no answer in time, no connection, a status of 500 or above.
    pub(super) fn failed(self: &Arc<Self>, access: Access, scope: FaultScope, is_probe: bool) {
        let mut state = self.state.lock();
        state
            .failing
            .get_or_insert_with(|| counted(&self.metrics.hosts.get(&self.name).failing));
        if scope == FaultScope::Repository {
            state.faults.registry_answered();
            state.probes.retain(|(_, scope), _| scope.is_some());
            self.close(&mut state);
        }
        // Lookups that began before the circuit opened do not keep it open.
        if !is_probe && state.open_until(access).is_some() {
            return;
        }
        state.faults.add(access, scope, Instant::now());
        if state.open.is_none() && state.faults.open_until(None, access.namespace).is_some() {
            state.open = Some(counted(&self.metrics.hosts.get(&self.name).circuits_open));
            tracing::warn!(
                registry = &*self.name,
                repositories = FAILURES,
                "circuit opened"
            );
        }
        if state.open.is_some() {
            let unused = tokio::spawn(Self::close_unused(Arc::downgrade(self)));
            state.unused = Some(AbortOnDropHandle::new(unused));
        }
    }

    /// Records that the circuit of the registry is closed for every namespace.
    fn close(&self, state: &mut State) {
        state.unused = None;
        if state.open.take().is_some() {
            tracing::info!(registry = &*self.name, "circuit closed");
        }
    }

    /// Closes the circuit after a minute without a failing lookup: no Pod needs the registry, so no lookup probes it.
    async fn close_unused(host: Weak<Self>) {
        sleep(FORGOTTEN).await;
        if let Some(host) = host.upgrade() {
            let mut state = host.state.lock();
            state.faults = Faults::default();
            state.probes = HashMap::new();
            state.open = None;
        }
    }

    /// Records a 429 to a lookup.
    pub(super) fn throttled(&self, access: Access, throttler: Throttler, pauses: Pauses) {
        self.state
            .lock()
            .throttling
            .add(access, throttler, pauses, Instant::now());
    }

    pub(super) fn answers_head(&self) -> bool {
        self.state
            .lock()
            .lacks_head
            .is_none_or(|until| Instant::now() >= until)
    }

    /// Records that a HEAD request failed where a GET request did not.
    pub(super) fn disable_head(&self) {
        self.state.lock().lacks_head = Some(Instant::now() + LACKS_HEAD);
    }
}

impl State {
    /// Checks whether a lookup may begin right now; with a scope, as a probe of that circuit, which is half-open.
    fn permission(&self, access: Access) -> Result<Option<Scope>, LookupError> {
        let now = Instant::now();
        if self.throttling.applies_to(access, now) {
            return Err(LookupError::Throttled);
        }
        let Some((scope, until)) = self.open_until(access) else {
            return Ok(None);
        };
        let probe = self.probes.get(&(access.namespace, scope));
        if now < until || probe.is_some_and(|probe| probe.strong_count() > 0) {
            return Err(LookupError::CircuitOpen);
        }
        Ok(Some(scope))
    }

    /// Returns the open circuit, that of the registry first, and the time at which it becomes half-open.
    fn open_until(&self, access: Access) -> Option<(Scope, Instant)> {
        for scope in [None, Some(access.repository)] {
            if let Some(until) = self.faults.open_until(scope, access.namespace) {
                return Some((scope, until));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
