//! State that all lookups under one configuration share: the registry's client, the caches, and the lookups in flight.

use tokio::time::Duration;

use super::cache::{Cache, Outcome};
use super::candidates::{CachedForAny, cached};
use super::circuit::PROBE_TIME;
use super::host::Attempt;
use super::metrics::{LookupResult, ResolverMetrics};
use super::request::{FlightKey, LookupRequest};
use crate::credentials::CredentialCandidate;
use crate::registry::{Digest, Registry};
use crate::shared_cache::SharedCache;
use tolerarch_core::image::{LookupError, Support};
use tolerarch_support::single_flight::SingleFlight;

pub(super) struct Fetcher {
    pub(super) registry: Registry,
    pub(super) cache: Cache,
    pub(super) shared: Option<SharedCache>,
    /// Timeout of a lookup; see [`LookupSettings::timeout`](super::LookupSettings::timeout).
    pub(super) timeout: Duration,
    /// Lookups in flight, each of one tenant. No Pod joins a lookup of another configuration.
    pub(super) flights: SingleFlight<FlightKey, Outcome>,
    /// Queries of registries by these lookups; see [`LookupRequest::query_key`].
    pub(super) queries: SingleFlight<FlightKey, Outcome>,
    pub(super) metrics: ResolverMetrics,
}

impl Fetcher {
    /// Returns the timeout of the wait for a lookup's permit, and of the registry's answer.
    pub(super) fn timeout_of(&self, attempt: &Attempt) -> Duration {
        if attempt.is_probe() {
            self.timeout.min(PROBE_TIME)
        } else {
            self.timeout
        }
    }

    /// Returns what this replica has cached for the request.
    pub(super) fn cached<'r>(&self, request: &'r LookupRequest) -> CachedForAny<'r> {
        let now = self.cache.now();
        cached(&self.cache, &request.image, &request.candidates, now)
    }

    /// Returns the fresh answer of another replica. Caches older answers, too, in case the registry fails.
    pub(super) async fn shared_answer(&self, request: &LookupRequest) -> Option<Support> {
        let LookupRequest {
            image, candidates, ..
        } = request;
        let shared = self.shared.as_ref()?;
        let answers = shared
            .find(image, Digest::named_by(image), candidates)
            .await;
        if answers.is_empty() {
            return None;
        }
        for (id, resolved, age) in &answers {
            self.cache.adopt(image, *id, resolved, *age);
        }
        let CachedForAny::Fresh(Ok(support)) = self.cached(request) else {
            return None;
        };
        self.metrics
            .count_lookup(image.host(), LookupResult::Shared);
        Some(support)
    }

    /// Returns the last good answer that may still be served, otherwise the error.
    pub(super) fn stale_or(&self, request: &LookupRequest, error: LookupError) -> Outcome {
        let last_good =
            |candidate: &CredentialCandidate| self.cache.last_good(&request.image, candidate.id);
        let outcome = request.candidates.iter().find_map(last_good).ok_or(error);
        let result = if is_stale(&outcome) {
            LookupResult::Stale
        } else {
            LookupResult::Failed
        };
        self.metrics.count_lookup(request.image.host(), result);
        outcome
    }

    /// Returns how many other callers wait for the outcome of the request. Compares the keys of all lookups in flight,
    /// which the queue bounds (`QUEUE`).
    pub(super) fn other_callers(&self, request: &LookupRequest) -> usize {
        let (query_tenant, query_name) = request.query_key();
        let is_same = |(tenant, name): &FlightKey| {
            let is_shared = query_tenant.is_none() || *tenant == query_tenant;
            *name == query_name && is_shared
        };
        self.flights.callers(is_same).saturating_sub(1)
    }

    /// Returns the shared cache if this configuration may still store answers.
    pub(super) fn sharing(&self) -> Option<&SharedCache> {
        if self.cache.is_current() {
            self.shared.as_ref()
        } else {
            None
        }
    }

    /// Returns whether answers of other replicas can be read now.
    pub(super) fn reads_shared_answers(&self) -> bool {
        match &self.shared {
            Some(shared) => shared.is_connected(),
            None => false,
        }
    }
}

/// Returns whether the outcome of a failed lookup is an older good answer.
pub(super) fn is_stale(outcome: &Outcome) -> bool {
    match outcome {
        Ok(Support::Partial { .. }) | Err(_) => false,
        Ok(_) => true,
    }
}
