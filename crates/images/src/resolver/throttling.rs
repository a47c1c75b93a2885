//! Pauses after a 429: of repositories, and of the whole registry once several repositories are throttled. A pause
//! holds for one credential, as limits are per account, or per address for anonymous access. Pure: the caller passes
//! the time.
//!
//! A limit may be that of a repository, or that of the whole registry (Docker Hub's for anonymous pulls). A 429 does
//! not tell the two apart, and tenants choose the repositories. So a 429 pauses its repository. The second throttled
//! repository pauses the registry for all namespaces, once and for a bounded time; from then on only its own 429s pause
//! a namespace. While the registry answers for other repositories, throttled ones pause the registry for nobody.

use std::collections::HashMap;

use tokio::time::{Duration, Instant};

use super::access::Access;
use super::cache::Pauses;
use crate::credentials::CredentialId;
use crate::registry::Target;

/// Maximum number of recorded throttled repositories of one registry. A repository that is dropped is queried again.
const REPOSITORIES: usize = 128;
/// Maximum number of those of one namespace. With 80 bytes each, one namespace takes 1.3 KiB for a registry, and 5 MiB
/// if 4,096 registries throttle it.
const REPOSITORIES_OF_NAMESPACE: usize = 16;
/// Maximum number of recorded credentials of one registry, beside anonymous access.
const ACCOUNTS: usize = 64;
/// Number of throttled repositories that pause the registry.
const SEVERAL: usize = 2;
/// Time after an answer for which throttled repositories do not pause the registry. Also the time after the last 429
/// for which a pause of the registry is remembered, so that it is not repeated.
pub(super) const REMEMBERED: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Throttling {
    /// Throttled repositories; the one that was throttled first is the first.
    repositories: Vec<Throttled>,
    accounts: HashMap<CredentialId, Account>,
}

struct Throttled {
    repository: u64,
    credential: CredentialId,
    /// Namespace of the lookup that was throttled last.
    namespace: u64,
    /// Time of the last 429.
    at: Instant,
    until: Instant,
    /// Server that answered 429 last.
    throttler: Target,
}

/// Limits that the registry has shown to one credential.
#[derive(Default)]
struct Account {
    /// Start of the registry's pause for all namespaces. Later 429s do not change it.
    paused_since: Option<Instant>,
    /// Maximum duration of a pause of the registry.
    longest: Duration,
    /// Time of the last answer while another repository was throttled.
    others_answered: Option<Instant>,
    /// Time of the last 429.
    last: Option<Instant>,
}

impl Throttling {
    /// Records a 429 to a lookup.
    pub(super) fn add(&mut self, access: Access, throttler: Target, pauses: Pauses, now: Instant) {
        self.drop_expired(now);
        self.add_repository(access, throttler, now, now + pauses.repository);
        if throttler == Target::RedirectTarget {
            return;
        }
        if !self.accounts.contains_key(&access.credential) {
            self.make_room_for_account();
        }
        let account = self.accounts.entry(access.credential).or_default();
        account.last = Some(now);
        account.longest = pauses.registry;
        if account.paused_since.is_some() || account.others_answered.is_some() {
            return;
        }
        let throttled = self
            .repositories
            .iter()
            .filter(|repository| repository.is_by_registry(access.credential));
        if throttled.count() >= SEVERAL {
            account.paused_since = Some(now);
        }
    }

    /// Records that the registry answered a lookup with an image.
    pub(super) fn answered(&mut self, access: Access, now: Instant) {
        self.drop_expired(now);
        let Some(account) = self.accounts.get_mut(&access.credential) else {
            return;
        };
        let mut throttled = self
            .repositories
            .iter()
            .filter(|repository| repository.is_by_registry(access.credential));
        if throttled.any(|throttled| throttled.repository != access.repository) {
            account.others_answered = Some(now);
            account.paused_since = None;
        }
    }

    /// Returns whether a lookup may not be sent now.
    pub(super) fn applies_to(&self, access: Access, now: Instant) -> bool {
        for throttled in &self.repositories {
            if throttled.is_of(access) && now < throttled.until {
                return true;
            }
        }
        let paused_until = self.registry_paused_until(access);
        paused_until.is_some_and(|until| now < until)
    }

    /// Returns the end of the registry's pause for a namespace, which begins anew with each 429 of that namespace.
    fn registry_paused_until(&self, access: Access) -> Option<Instant> {
        let account = self.accounts.get(&access.credential)?;
        let mut since = account.paused_since?;
        for throttled in &self.repositories {
            if throttled.namespace == access.namespace
                && throttled.is_by_registry(access.credential)
            {
                since = since.max(throttled.at);
            }
        }
        Some(since + account.longest)
    }

    fn add_repository(&mut self, access: Access, throttler: Target, now: Instant, until: Instant) {
        for throttled in &mut self.repositories {
            if throttled.is_of(access) {
                throttled.namespace = access.namespace;
                throttled.at = now;
                throttled.until = throttled.until.max(until);
                throttled.throttler = throttler;
                return;
            }
        }
        self.make_room_for_repository(access.namespace);
        self.repositories.push(Throttled {
            repository: access.repository,
            credential: access.credential,
            namespace: access.namespace,
            at: now,
            until,
            throttler,
        });
    }

    /// Drops repositories whose pause is over, and accounts for which nothing has been recorded within `REMEMBERED`.
    fn drop_expired(&mut self, now: Instant) {
        self.repositories.retain(|throttled| now < throttled.until);
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now < at + REMEMBERED);
        self.accounts.retain(|_, account| {
            if !is_recent(account.others_answered) {
                account.others_answered = None;
            }
            is_recent(account.last) || account.others_answered.is_some()
        });
    }

    /// Drops the oldest repository of the namespace if the namespace has its maximum. Otherwise, if there are too many
    /// in all, drops the oldest one of the namespace with the most.
    fn make_room_for_repository(&mut self, namespace: u64) {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for throttled in &self.repositories {
            *counts.entry(throttled.namespace).or_default() += 1;
        }
        let count = counts.get(&namespace).copied().unwrap_or(0);
        let shrinking = if count >= REPOSITORIES_OF_NAMESPACE {
            namespace
        } else if self.repositories.len() >= REPOSITORIES
            && let Some((largest, _)) = counts.into_iter().max_by_key(|(_, count)| *count)
        {
            largest
        } else {
            return;
        };
        let mut repositories = self.repositories.iter();
        if let Some(oldest) = repositories.position(|throttled| throttled.namespace == shrinking) {
            self.repositories.remove(oldest);
        }
    }

    /// Drops the account that was throttled the longest time ago, if there are too many. The account of anonymous
    /// access stays, however many credentials Pods bring.
    fn make_room_for_account(&mut self) {
        if self.accounts.len() <= ACCOUNTS {
            return;
        }
        let of_pods = self
            .accounts
            .iter()
            .filter(|(credential, _)| **credential != CredentialId::ANONYMOUS);
        if let Some((oldest, _)) = of_pods.min_by_key(|(_, account)| account.last) {
            let oldest = *oldest;
            self.accounts.remove(&oldest);
        }
    }
}

impl Throttled {
    fn is_of(&self, access: Access) -> bool {
        self.credential == access.credential && self.repository == access.repository
    }

    fn is_by_registry(&self, credential: CredentialId) -> bool {
        self.credential == credential && self.throttler == Target::Registry
    }
}

#[cfg(test)]
mod tests;
