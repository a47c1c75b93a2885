//! Circuit breaker of one registry, for each namespace apart. Failures of several images of a repository without any
//! answer in between open the repository's circuit, those of several repositories the registry's. An answer to anyone
//! closes it. If half-open, the circuit admits one probe at a time. Pure: the caller says what time it is.
//!
//! Pods name the images, so a tenant may cause any number of failures. A namespace is therefore refused because of its
//! own failures only; whether a registry that fails for others fails for it as well, it finds out by its own lookups.

use std::collections::HashSet;

use tokio::time::{Duration, Instant};

use super::access::Access;
use crate::credentials::CredentialOwner;
use crate::registry::Target;

/// Failures in a row that open a circuit: images of a repository; repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// Time from a failure until an open circuit is half-open: a registry that works again is in use within that time, and
/// the controller has repaired the affected Pods within 5 s. With [`PROBE_TIME`] below 10 s, for a registry that hangs.
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// Timeout of a probe, and the maximum wait of the probe's Pod.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
pub(super) const PROBE_PATIENCE: Duration = Duration::from_millis(400);
/// Maximum number of failures kept of one registry, the latest ones: 20 KiB. They suffice for the circuits of 32 to 85
/// namespaces at a time; those whose failures are dropped go on with their lookups.
const FAULTS: usize = 256;
/// Maximum number of failures kept of one namespace at one registry, enough to open the registry's circuit and those of
/// two repositories: 640 bytes, and 2.6 MiB for a namespace whose images fail at 4,096 registries.
const FAULTS_OF_NAMESPACE: usize = 8;

/// Repository of a circuit; `None` for the circuit of the whole registry.
pub(super) type Scope = Option<u64>;

/// Failed lookups: one for each image and namespace, the latest one last.
#[derive(Default)]
pub(super) struct Faults(Vec<Fault>);

struct Fault {
    access: Access,
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

    /// Records an answer to a lookup.
    pub(super) fn answered(&mut self, access: Access) {
        self.0.retain(|fault| !fault.is_of(access));
        self.registry_answered();
        for fault in &mut self.0 {
            fault.repository_silent &= fault.access.repository != access.repository;
        }
    }

    /// Records that the registry answered, though not with what was looked up: for no namespace it is silent.
    pub(super) fn registry_answered(&mut self) {
        for fault in &mut self.0 {
            fault.registry_silent = false;
        }
    }

    /// Records a failed lookup.
    pub(super) fn add(&mut self, access: Access, target: Target, now: Instant) {
        let namespace = access.namespace;
        self.0
            .retain(|fault| fault.access.namespace != namespace || !fault.is_of(access));
        if self.of(namespace).count() >= FAULTS_OF_NAMESPACE {
            if let Some(oldest) = self
                .0
                .iter()
                .position(|fault| fault.access.namespace == namespace)
            {
                self.0.remove(oldest);
            }
        } else if self.0.len() >= FAULTS {
            self.0.remove(0);
        }
        self.0.push(Fault {
            access,
            at: now,
            repository_silent: true,
            registry_silent: target == Target::Registry,
        });
    }

    /// Returns when a circuit of this namespace becomes half-open; `None` if the circuit is closed.
    pub(super) fn open_until(&self, scope: Scope, namespace: u64) -> Option<Instant> {
        let mut failed = HashSet::new();
        let mut last = None;
        for fault in self.of(namespace) {
            let access = fault.access;
            match scope {
                None if fault.registry_silent => failed.insert(access.repository),
                Some(repository) if fault.repository_silent && access.repository == repository => {
                    failed.insert(access.image)
                }
                _ => continue,
            };
            last = last.max(Some(fault.at));
        }
        if failed.len() < FAILURES {
            return None;
        }
        Some(last? + OPEN)
    }

    fn of(&self, namespace: u64) -> impl Iterator<Item = &Fault> {
        self.0
            .iter()
            .filter(move |fault| fault.access.namespace == namespace)
    }
}

impl Fault {
    /// Returns whether the fault is of the same image. With a Pod's credential, which may be the cause, an image fails
    /// apart from its failures with other credentials.
    fn is_of(&self, access: Access) -> bool {
        let is_of_pod = [self.access.owner, access.owner].contains(&CredentialOwner::Pod);
        let is_alike = self.access.credential == access.credential || !is_of_pod;
        self.access.image == access.image && is_alike
    }
}

#[cfg(test)]
mod tests;
