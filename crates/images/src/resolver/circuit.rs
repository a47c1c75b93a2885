//! Circuit breaker of one registry. Failures of several images without any answer in between open their repository's
//! circuit, those of several repositories the registry's. If half-open, it admits one probe per namespace at a time.
//! Pods name the images, so one tenant may cause the failures: those of one namespace open a circuit for that namespace
//! only. Those of two open the circuit once for all others; then a namespace may probe until a lookup of it fails.

use std::collections::HashSet;

use tokio::time::{Duration, Instant};

use super::request::Access;

/// Failures in a row that open a circuit: images of a repository; repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// Time from a failure until an open circuit is half-open: a registry that works again is in use within that time, and
/// the controller has repaired the affected Pods within 5 s. With [`PROBE_TIME`] below 10 s, for a registry that hangs.
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// Timeout of a probe, and the maximal wait of the probe's Pod.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
pub(super) const PROBE_PATIENCE: Duration = Duration::from_millis(400);
/// Maximal number of failures kept of one registry, the latest ones: at most 4 KiB per registry, 16 MiB in all.
const FAULTS: usize = 32;
/// Maximal number of failures kept of one namespace: enough to open the registry's circuit and those of two
/// repositories, and few enough to leave room for other namespaces.
const FAULTS_OF_NAMESPACE: usize = 8;

/// Repository of a circuit; `None` for the circuit of the whole registry.
pub(super) type Scope = Option<u64>;

/// Failed lookups: one for each image and namespace, the latest one last.
#[derive(Default)]
pub(super) struct Faults(Vec<Fault>);

struct Fault {
    access: Access,
    /// Times of the first failure since the registry's last answer, and of the last failure.
    since: Instant,
    at: Instant,
    /// True while there was no answer since: in the fault's repository, and in the whole registry.
    repository_silent: bool,
    registry_silent: bool,
}

impl Faults {
    /// Returns whether the image failed when it was last looked up.
    pub(super) fn has(&self, access: Access) -> bool {
        self.0.iter().any(|fault| fault.is_of(access))
    }

    pub(super) fn answered(&mut self, access: Access) {
        self.0.retain(|fault| !fault.is_of(access));
        for fault in &mut self.0 {
            fault.repository_silent &= fault.access.repository != access.repository;
            fault.registry_silent = false;
        }
    }

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
        // Parts of which several have to fail: repositories of a registry, images of a repository.
        let part = |fault: &&Fault| scope.map_or(fault.access.repository, |_| fault.access.image);
        let mut faults: Vec<&Fault> = self.0.iter().filter(counts).collect();
        faults.sort_by_key(|fault| fault.since);
        let own = || faults.iter().filter(|fault| fault.access.namespace == namespace);
        let failed = own().map(|fault| fault.at).max();
        let by_own = failed.filter(|_| own().map(part).collect::<HashSet<_>>().len() >= FAILURES);
        let (mut parts, mut namespaces) = (HashSet::new(), HashSet::new());
        // The fault that completed the number, with several namespaces among them.
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
    /// Returns whether the fault is of the same image. With a Pod's credential, which may be the cause, an image fails
    /// apart from its failures with other credentials.
    fn is_of(&self, access: Access) -> bool {
        let alike = self.access.credential == access.credential || !(self.access.of_pod || access.of_pod);
        self.access.image == access.image && alike
    }
}
