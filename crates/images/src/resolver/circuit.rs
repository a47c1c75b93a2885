//! The circuit breaker of one registry: a repository rests after failures of several images, the registry after failures of
//! several repositories, without any answer in between. Then one lookup of each namespace at a time finds out whether it
//! answers again.
//!
//! Pods name the images, so what fails may be of one tenant's making. Failures of one namespace open a circuit for that
//! namespace only. Failures of two open it for others once: as long as these have not failed themselves, they find out.

use std::collections::HashSet;

use tokio::time::{Duration, Instant};

use super::request::Access;

/// Failures in a row that open a circuit: images of a repository; repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// Time from a failure until an open circuit is half-open: a registry that works again is in use within that time, and the
/// controller has repaired what waited for the registry within 5 s. With [`PROBE_TIME`] below ten seconds, for one that hangs.
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// Time of a probe, and time that the probe's Pod waits.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
pub(super) const PROBE_PATIENCE: Duration = Duration::from_millis(400);
/// Failures of one registry that are kept, the latest ones: at most 4 KiB each, 16 MiB for all registries.
const FAULTS: usize = 32;
/// Failures of one namespace that are kept: enough to open the registry and two repositories, and few enough to leave room for
/// others.
const FAULTS_OF_NAMESPACE: usize = 8;

/// The repository that a circuit is of; `None` is all of the registry.
pub(super) type Scope = Option<u64>;

/// Failed lookups: one for each image and namespace, the latest one last.
#[derive(Default)]
pub(super) struct Faults(Vec<Fault>);

/// A failed lookup.
struct Fault {
    access: Access,
    /// Times of the first failure without an answer of the registry since, and of the last one.
    since: Instant,
    at: Instant,
    /// Nothing was answered since, in its repository and in all of the registry.
    repository_silent: bool,
    registry_silent: bool,
}

impl Faults {
    /// Returns whether the image failed when it was last looked up.
    pub(super) fn has(&self, access: Access) -> bool {
        self.0.iter().any(|fault| fault.is_of(access))
    }

    /// Records an answer of the registry, be it a refusal.
    pub(super) fn answered(&mut self, access: Access) {
        self.0.retain(|fault| !fault.is_of(access));
        for fault in &mut self.0 {
            fault.repository_silent &= fault.access.repository != access.repository;
            fault.registry_silent = false;
        }
    }

    /// Records a fault of the registry.
    pub(super) fn add(&mut self, access: Access) {
        let (own, now) = (access.namespace, Instant::now());
        let known = self.0.iter().position(|fault| fault.access.namespace == own && fault.is_of(access));
        let known = known.map(|place| self.0.remove(place)).filter(|known| known.registry_silent);
        let of_own = self.0.iter().filter(|fault| fault.access.namespace == own).count();
        let oldest = match of_own {
            FAULTS_OF_NAMESPACE.. => self.0.iter().position(|fault| fault.access.namespace == own),
            _ => (self.0.len() == FAULTS).then_some(0),
        };
        if let Some(oldest) = oldest {
            self.0.remove(oldest);
        }
        let since = known.map_or(now, |known| known.since);
        self.0.push(Fault { access, since, at: now, repository_silent: true, registry_silent: true });
    }

    /// Returns when a circuit of this namespace becomes half-open; `None` if the circuit is closed.
    pub(super) fn open_until(&self, scope: Scope, namespace: u64) -> Option<Instant> {
        let counts = |fault: &&Fault| match scope {
            None => fault.registry_silent,
            Some(repository) => fault.repository_silent && fault.access.repository == repository,
        };
        // Several of these have to fail.
        let part = |fault: &&Fault| scope.map_or(fault.access.repository, |_| fault.access.image);
        let mut faults: Vec<&Fault> = self.0.iter().filter(counts).collect();
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
    /// Returns whether the same failed. With a Pod's credential, which may be the cause, an image fails apart from others.
    fn is_of(&self, access: Access) -> bool {
        let alike = self.access.credential == access.credential || !(self.access.of_pod || access.of_pod);
        self.access.image == access.image && alike
    }
}
