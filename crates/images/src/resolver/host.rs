//! State of each registry, which isolates registries from each other: a circuit breaker, and pauses while the registry
//! throttles.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

use quick_cache::sync::Cache as Bounded;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::access::Access;
use super::cache::Pauses;
use super::circuit::{FAILURES, Faults, PROBE_PATIENCE, Scope};
use super::metrics::ResolverMetrics;
use super::request::LookupRequest;
use super::throttling::Throttling;
use crate::credentials::{CredentialCandidate, CredentialId, CredentialOwner};
use crate::registry::{FailureClass, Target};
use tolerarch_core::image::LookupError;
use tolerarch_support::metrics::{GaugeGuard, counted};
use tolerarch_support::sync::Mutex;

/// Maximum number of hosts with state; the least recently used are evicted.
const HOSTS: usize = 4096;
/// Time for which a registry that does not support HEAD requests gets none.
const LACKS_HEAD: Duration = Duration::from_secs(600);
/// Time without an answer after which a registry counts as silent. From then on no Pod waits longer than this time
/// until the registry answers. Lookups at a healthy registry take 300 to 700 ms at a round-trip time of 40 ms.
pub(super) const PATIENCE: Duration = Duration::from_millis(750);
/// Time without an answer to anyone after which Pods wait only [`PROBE_PATIENCE`]. It is long because tenants may have
/// images whose lookups hang, while a healthy registry answers others.
pub(super) const LONG_SILENCE: Duration = Duration::from_secs(30);
/// Time without another lookup after which an earlier failure or silence says nothing about the registry any more.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(60);
/// Number of namespaces without an answer from which a registry counts as silent for all. One namespace alone may have
/// caused the silence.
const SILENT: usize = 2;

pub(super) struct Hosts {
    hosts: Bounded<String, Arc<Host>>,
    hasher: RandomState,
    metrics: ResolverMetrics,
}

/// Host of a registry, by the name that images use.
pub(super) struct Host {
    pub(super) name: Box<str>,
    state: Mutex<State>,
    metrics: ResolverMetrics,
}

/// Right of a lookup to probe a registry whose circuit is half-open. One lookup of a namespace holds it at a time.
type Probe = Arc<()>;

/// Lookup that may query the registry. [`Attempt::finish`] records its result for later lookups; an attempt that is
/// dropped says nothing about the registry.
pub(super) struct Attempt {
    host: Arc<Host>,
    access: Access,
    probe: Option<Probe>,
    /// True once the lookup waits for the registry.
    has_queried: bool,
}

/// Result of a lookup at the registry.
pub(super) enum Ending {
    /// The registry answered with an image.
    Found,
    /// A 429.
    Throttled(Target, Pauses),
    Failed(FailureClass),
}

#[derive(Default)]
struct State {
    faults: Faults,
    /// Probes, by namespace and circuit.
    probes: HashMap<(u64, Scope), Weak<()>>,
    /// Set while the registry's circuit is open for any namespace.
    open: Option<GaugeGuard>,
    /// Set from a failure until the registry's next answer.
    failing: Option<GaugeGuard>,
    /// Task that closes the circuit if no Pod needs the registry any more.
    unused: Option<AbortOnDropHandle<()>>,
    throttling: Throttling,
    lacks_head: Option<Instant>,
    /// Namespaces whose lookups have no answer yet. An answer to any namespace clears them all.
    silent: HashMap<u64, Silence>,
}

struct Silence {
    since: Instant,
    /// Time at which a lookup last began or was joined.
    last_lookup: Instant,
}

impl Silence {
    fn is_forgotten(&self) -> bool {
        self.last_lookup.elapsed() >= FORGOTTEN
    }

    /// Returns whether the silence has lasted for this time.
    fn has_lasted(&self, time: Duration) -> bool {
        self.since.elapsed() >= time && !self.is_forgotten()
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
        let new = || {
            Ok::<_, Infallible>(Arc::new(Host {
                name: name.into(),
                state: Mutex::default(),
                metrics: self.metrics.clone(),
            }))
        };
        let Ok(host) = self.hosts.get_or_insert_with(name, new);
        host
    }

    /// Returns the access of a request with its first candidate.
    pub(super) fn access(&self, request: &LookupRequest) -> Access {
        let access = Access {
            image: self.hasher.hash_one(request.image.as_str()),
            repository: self.hasher.hash_one(request.image.repository()),
            namespace: self.hasher.hash_one(&request.tenant),
            credential: CredentialId::ANONYMOUS,
            owner: CredentialOwner::Operator,
        };
        match request.candidates.first() {
            Some(candidate) => access.with(candidate),
            None => access,
        }
    }
}

impl Host {
    /// Returns the maximum time that a Pod of this namespace waits for a lookup.
    pub(super) fn patience(&self, access: Access) -> Duration {
        let state = self.state.lock();
        let is_silent_for_all = |time| {
            let silent = state.silent.values();
            silent.filter(|silence| silence.has_lasted(time)).count() == SILENT
        };
        if is_silent_for_all(LONG_SILENCE) {
            return PROBE_PATIENCE;
        }
        let is_silent_for_namespace = match state.silent.get(&access.namespace) {
            Some(silence) => silence.has_lasted(PATIENCE),
            None => false,
        };
        if is_silent_for_namespace || is_silent_for_all(PATIENCE) || state.faults.has(access) {
            return PATIENCE;
        }
        Duration::MAX
    }

    /// Admits a lookup if the registry may be queried, and as a probe if a circuit is half-open.
    pub(super) fn enter(self: &Arc<Self>, access: Access) -> Result<Attempt, LookupError> {
        let mut state = self.state.lock();
        let mut probe = None;
        if let Some(scope) = state.permission(access)? {
            let new_probe = Probe::default();
            let probe_key = (access.namespace, scope);
            state.probes.retain(|_, probe| probe.strong_count() > 0);
            state.probes.insert(probe_key, Arc::downgrade(&new_probe));
            probe = Some(new_probe);
        }
        Ok(Attempt {
            host: Arc::clone(self),
            access,
            probe,
            has_queried: false,
        })
    }

    /// Fails if the registry must not be queried right now, not even by a probe.
    pub(super) fn permission(&self, access: Access) -> Result<(), LookupError> {
        self.state.lock().permission(access).map(drop)
    }

    /// Records that a Pod of this namespace waits for a lookup that another Pod began.
    pub(super) fn joined(&self, access: Access) {
        let mut state = self.state.lock();
        // While that lookup waits for its permit, there is nothing to record.
        if !state.silent.is_empty() {
            state.add_waiting(access);
        }
    }

    pub(super) fn answers_head(&self) -> bool {
        let state = self.state.lock();
        state.lacks_head.is_none_or(|until| Instant::now() >= until)
    }

    /// Records that a HEAD request failed where a GET request did not.
    pub(super) fn disable_head(&self) {
        self.state.lock().lacks_head = Some(Instant::now() + LACKS_HEAD);
    }

    /// Records an answer of the registry; a refusal is an answer, too.
    fn answered(&self, state: &mut State, access: Access) {
        state.silent.clear();
        state.faults.answered(access);
        // The probes of the registry and of this repository have ended.
        state.probes.retain(|(_, scope), _| match scope {
            Some(repository) => *repository != access.repository,
            None => false,
        });
        state.failing = None;
        self.close(state);
    }

    /// Records a failed lookup: no answer in time, no connection, or a status of 500 or above.
    fn failed(self: &Arc<Self>, state: &mut State, access: Access, target: Target, is_probe: bool) {
        state
            .failing
            .get_or_insert_with(|| counted(&self.metrics.hosts.get(&self.name).failing));
        // The registry has answered with a redirect. A repository's owner may choose the target, so its failure does
        // not count for the whole registry.
        if target == Target::RedirectTarget {
            state.faults.registry_answered();
            state.probes.retain(|(_, scope), _| scope.is_some());
            self.close(state);
        }
        // Lookups that began before the circuit opened do not keep it open.
        if !is_probe && state.open_until(access).is_some() {
            return;
        }
        state.faults.add(access, target, Instant::now());
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

    /// Closes the circuit after a minute without a failing lookup: no Pod needs the registry, so no lookup will probe
    /// it.
    async fn close_unused(host: Weak<Self>) {
        sleep(FORGOTTEN).await;
        if let Some(host) = host.upgrade() {
            let mut state = host.state.lock();
            state.faults = Faults::default();
            state.probes = HashMap::new();
            state.open = None;
        }
    }
}

impl Attempt {
    pub(super) fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns the access with the candidate in use.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Continues with this candidate; fails if the registry must not be queried with it right now.
    pub(super) fn use_candidate(
        &mut self,
        candidate: &CredentialCandidate,
    ) -> Result<(), LookupError> {
        self.access = self.access.with(candidate);
        // The circuit has already admitted the probe.
        if self.is_probe() {
            return Ok(());
        }
        self.host.permission(self.access)
    }

    /// Records that the lookup waits for the registry from now on.
    pub(super) fn begin_query(&mut self) {
        self.has_queried = true;
        self.host.state.lock().add_waiting(self.access);
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Records that the lookup waits for another tenant's query.
    pub(super) fn joined(&self) {
        self.host.joined(self.access);
    }

    /// Records the result of the lookup, if it has queried the registry.
    pub(super) fn finish(mut self, ending: Ending) {
        if !self.has_queried {
            return;
        }
        let is_probe = self.is_probe();
        let host = &self.host;
        let access = self.access;
        let mut state = host.state.lock();
        match ending {
            Ending::Found => {
                host.answered(&mut state, access);
                state.throttling.answered(access, Instant::now());
            }
            Ending::Throttled(throttler, pauses) => {
                state
                    .throttling
                    .add(access, throttler, pauses, Instant::now());
                host.answered(&mut state, access);
            }
            Ending::Failed(class) => match class {
                FailureClass::Fault(target) => host.failed(&mut state, access, target, is_probe),
                FailureClass::Refused
                | FailureClass::Missing
                | FailureClass::Unusable
                | FailureClass::Unclear => host.answered(&mut state, access),
                // The drop of this attempt records that the registry has no part in the failure.
                FailureClass::NotSent | FailureClass::NoCredential => return,
            },
        }
        drop(state);
        self.has_queried = false;
    }
}

impl Drop for Attempt {
    /// Records that the lookup has ended for another reason than the registry, if it has queried the registry.
    fn drop(&mut self) {
        if self.has_queried {
            let mut state = self.host.state.lock();
            state.silent.remove(&self.access.namespace);
        }
    }
}

impl State {
    /// Records that a lookup waits for the registry from now on.
    fn add_waiting(&mut self, access: Access) {
        let now = Instant::now();
        self.silent.retain(|_, silence| !silence.is_forgotten());
        if let Some(silence) = self.silent.get_mut(&access.namespace) {
            silence.last_lookup = now;
        } else if self.silent.len() < SILENT {
            let silence = Silence {
                since: now,
                last_lookup: now,
            };
            self.silent.insert(access.namespace, silence);
        }
    }

    /// Fails if no lookup may begin right now. A scope means that the lookup may begin as a probe of that half-open
    /// circuit.
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

    /// Returns the open circuit and the time at which it becomes half-open; the registry's circuit precedes the
    /// repository's.
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
