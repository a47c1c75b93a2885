//! Circuit breaker of one registry, with a separate circuit for each namespace. Failures of several images of a
//! repository, without any answer in between, open the repository's circuit; failures of several repositories open the
//! registry's. An answer to anyone closes it. A half-open circuit admits one probe at a time. Pure: the caller passes
//! the time.
//!
//! Pods name the images, so a tenant may cause any number of failures. Therefore a namespace is refused only because of
//! its own failures. Whether a registry that fails for others fails for this namespace as well, only its own lookups
//! show.

use std::collections::HashSet;

use tokio::time::{Duration, Instant};

use super::access::Access;
use crate::credentials::CredentialOwner;
use crate::registry::Target;

/// Failures in a row that open a circuit: of images of a repository, or of repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// Time from a failure until an open circuit is half-open. A registry that works again is in use within that time, and
/// the controller has repaired the affected Pods within 5 s. For a registry that hangs, the time is less than 10 s with
/// [`PROBE_TIME`].
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// Timeout of a probe.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
/// Maximum wait of the probe's Pod.
pub(super) const PROBE_PATIENCE: Duration = Duration::from_millis(400);
/// Maximum number of recorded failures of one registry, the latest ones: 20 KiB. They suffice for the circuits of 32 to
/// 85 namespaces at a time. A namespace whose failures are dropped continues its lookups.
const FAULTS: usize = 256;
/// Maximum number of recorded failures of one namespace at one registry. They suffice to open the registry's circuit
/// and those of two repositories: 640 bytes, and 2.6 MiB for a namespace whose images fail at 4,096 registries.
const FAULTS_OF_NAMESPACE: usize = 8;

/// Repository of a circuit; `None` for the circuit of the whole registry.
pub(super) type Scope = Option<u64>;

/// Failed lookups: at most one for each image and namespace, the latest one last.
#[derive(Default)]
pub(super) struct Faults(Vec<Fault>);

struct Fault {
    access: Access,
    at: Instant,
    /// True if the repository has not answered since.
    repository_silent: bool,
    /// True if the registry has not answered since.
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

    /// Records that the registry answered, though not with what was looked up: it is silent for no namespace.
    pub(super) fn registry_answered(&mut self) {
        for fault in &mut self.0 {
            fault.registry_silent = false;
        }
    }

    /// Records a failed lookup.
    pub(super) fn add(&mut self, access: Access, target: Target, now: Instant) {
        let is_of_namespace = |fault: &Fault| fault.access.namespace == access.namespace;
        self.0
            .retain(|fault| !is_of_namespace(fault) || !fault.is_of(access));
        if self.of(access.namespace).count() >= FAULTS_OF_NAMESPACE {
            if let Some(oldest) = self.0.iter().position(is_of_namespace) {
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
        let mut failing = HashSet::new();
        let mut latest = None;
        for fault in self.of(namespace) {
            let access = fault.access;
            match scope {
                None if fault.registry_silent => failing.insert(access.repository),
                Some(repository) if fault.repository_silent && access.repository == repository => {
                    failing.insert(access.image)
                }
                _ => continue,
            };
            latest = latest.max(Some(fault.at));
        }
        if failing.len() < FAILURES {
            return None;
        }
        Some(latest? + OPEN)
    }

    fn of(&self, namespace: u64) -> impl Iterator<Item = &Fault> {
        self.0
            .iter()
            .filter(move |fault| fault.access.namespace == namespace)
    }
}

impl Fault {
    /// Returns whether the fault is of the same image. A Pod's credential may be the cause of a failure, so failures
    /// with such a credential are separate from those with other credentials.
    fn is_of(&self, access: Access) -> bool {
        if self.access.image != access.image {
            return false;
        }
        let is_of_pod = [self.access.owner, access.owner].contains(&CredentialOwner::Pod);
        !is_of_pod || self.access.credential == access.credential
    }
}

#[cfg(test)]
mod tests;
