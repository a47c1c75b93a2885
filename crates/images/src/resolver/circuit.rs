//! The circuit breaker of one registry: a repository rests after failures of several images, the registry after failures of
//! several repositories, without any answer in between. Then one lookup of each namespace at a time finds out whether it
//! answers again.
//!
//! Pods name the images, so what fails may be of one tenant's making. Failures of one namespace open a circuit for that
//! namespace only. Failures of two open it for others once: as long as these have not failed themselves, they find out.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use tokio::time::{Duration, Instant};

use super::request::Access;
use tolerarch_core::image::LookupError;

/// Failures in a row that open a circuit: images of a repository; repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// How long a circuit is open after a failure before it is half-open: a registry that works again is in use within that time,
/// and the controller has repaired what waited for it within 5 s. With [`PROBE_TIME`] below ten seconds, for one that hangs.
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// How long a probe may take, and how long its Pod waits for it.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
pub(super) const PROBE_PATIENCE: Duration = Duration::from_millis(400);
/// Failures of one registry that are kept, the latest ones: at most 4 KiB each, 16 MiB for all registries.
const FAULTS: usize = 32;
/// The same of one namespace: enough to open the registry and two repositories, and few enough to leave room for others.
const FAULTS_OF_NAMESPACE: usize = 8;

#[derive(Default)]
pub(super) struct Circuit {
    /// One for each image and namespace; the latest one is the last.
    faults: Vec<Fault>,
    /// By the namespace and what is probed.
    probes: HashMap<(u64, Scope), Weak<()>>,
}

/// A lookup that finds out whether a registry works again. No other one of its namespace does until the value is dropped.
pub(super) type Probe = Arc<()>;

/// What a circuit is of: a repository, or all of the registry.
type Scope = Option<u64>;

/// A failed lookup.
struct Fault {
    access: Access,
    /// When the first lookup failed without an answer of the registry since, and the last one.
    since: Instant,
    at: Instant,
    /// Whether there was no answer since, in its repository and in all of the registry.
    repository_silent: bool,
    registry_silent: bool,
}

impl Circuit {
    /// Whether a lookup may begin right now; it is a probe where a circuit is half-open.
    pub(super) fn permission(&self, access: Access) -> Result<Option<Scope>, LookupError> {
        for scope in [None, Some(access.repository)] {
            if let Some(until) = self.open_until(scope, access.namespace) {
                let probe = self.probes.get(&(access.namespace, scope));
                let is_probed = probe.is_some_and(|probe| probe.strong_count() > 0);
                let is_half_open = until <= Instant::now() && !is_probed;
                return if is_half_open { Ok(Some(scope)) } else { Err(LookupError::CircuitOpen) };
            }
        }
        Ok(None)
    }

    /// The same for a lookup that begins.
    pub(super) fn enter(&mut self, access: Access) -> Result<Option<Probe>, LookupError> {
        let Some(scope) = self.permission(access)? else { return Ok(None) };
        let probe = Probe::default();
        self.probes.retain(|_, probe| probe.strong_count() > 0);
        self.probes.insert((access.namespace, scope), Arc::downgrade(&probe));
        Ok(Some(probe))
    }

    /// Whether the image failed when it was last looked up.
    pub(super) fn fails(&self, access: Access) -> bool {
        self.faults.iter().any(|fault| fault.is_of(access))
    }

    /// The registry answered, be it with a refusal.
    pub(super) fn answered(&mut self, access: Access) {
        self.faults.retain(|fault| !fault.is_of(access));
        for fault in &mut self.faults {
            fault.repository_silent &= fault.access.repository != access.repository;
            fault.registry_silent = false;
        }
        self.probes.retain(|(_, scope), _| scope.is_some_and(|scope| scope != access.repository));
    }

    /// Records a fault of the registry. Lookups that began before the circuit opened do not keep it open.
    pub(super) fn failed(&mut self, access: Access, is_probe: bool) {
        if !is_probe && self.permission(access) != Ok(None) {
            return;
        }
        let (own, now) = (access.namespace, Instant::now());
        let known = self.faults.iter().position(|fault| fault.access.namespace == own && fault.is_of(access));
        let known = known.map(|place| self.faults.remove(place)).filter(|known| known.registry_silent);
        let of_own = self.faults.iter().filter(|fault| fault.access.namespace == own).count();
        let oldest = match of_own {
            FAULTS_OF_NAMESPACE.. => self.faults.iter().position(|fault| fault.access.namespace == own),
            _ => (self.faults.len() == FAULTS).then_some(0),
        };
        if let Some(oldest) = oldest {
            self.faults.remove(oldest);
        }
        let since = known.map_or(now, |known| known.since);
        self.faults.push(Fault { access, since, at: now, repository_silent: true, registry_silent: true });
    }

    /// When a circuit of this namespace becomes half-open; `None` if it is closed.
    pub(super) fn open_until(&self, scope: Scope, namespace: u64) -> Option<Instant> {
        let counts = |fault: &&Fault| match scope {
            None => fault.registry_silent,
            Some(repository) => fault.repository_silent && fault.access.repository == repository,
        };
        // Of what several have to fail.
        let part = |fault: &&Fault| scope.map_or(fault.access.repository, |_| fault.access.image);
        let mut faults: Vec<&Fault> = self.faults.iter().filter(counts).collect();
        faults.sort_by_key(|fault| fault.since);
        let own = || faults.iter().filter(|fault| fault.access.namespace == namespace);
        let failed = own().map(|fault| fault.at).max();
        let by_own = failed.filter(|_| own().map(part).collect::<HashSet<_>>().len() >= FAILURES);
        let (mut parts, mut namespaces) = (HashSet::new(), HashSet::new());
        // The fault by which there were enough of several namespaces.
        let by_all = faults.iter().find(|fault| {
            parts.insert(part(fault));
            namespaces.insert(fault.access.namespace);
            parts.len() >= FAILURES && namespaces.len() > 1
        });
        let by_all = by_all.map(|fault| fault.since.max(failed.unwrap_or(fault.since)));
        by_all.or(by_own).map(|opened| opened + OPEN)
    }
}

impl Fault {
    /// With a credential of a Pod, which may be the cause, an image fails apart from others.
    fn is_of(&self, access: Access) -> bool {
        let alike = self.access.credential == access.credential || !(self.access.of_pod || access.of_pod);
        self.access.image == access.image && alike
    }
}
