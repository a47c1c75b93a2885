//! Finds the platforms of images in time: cache first, one lookup per key, and a Pod waits no longer than its budget. A
//! lookup runs in its own task, independent of the Pods that wait for it, and ends by its own timeout. So a Pod that
//! could not wait leaves an answer for the next one. A good answer outlives failures of its registry. Answers, failures
//! and lookups in flight are shared only by holders of one credential, or for anonymous access.
//!
//! An image passes these steps in `find`, `start` and `look_up`, until one gives the outcome:
//! 1. The configuration: an overridden image needs no lookup (the engine's `decide/lookup.rs`); the registry may be
//!    denied.
//! 2. The cache of this replica. A stale answer is served at once; steps 3 to 8 refresh it without the Pod.
//! 3. The lookups in flight: this Pod joins a lookup that another Pod of the namespace began.
//! 4. The gate of the registry. It refuses lookups during a pause after a 429 and while the circuit is open, and admits
//!    a probe while the circuit is half-open. If it refuses, an older good answer is served.
//! 5. The queue: a namespace may have a quarter of its places. From here on the lookup has its own task.
//! 6. The cache that replicas share.
//! 7. The namespace's permit.
//! 8. A query of the registry (`lookup.rs`). Namespaces share the query if no program gives the credential. If it
//!    fails, an older good answer is served.
//!
//! A warm start takes the same steps for [`Requester::OPERATOR`], who waits as long as a lookup takes.

mod access;
mod cache;
mod candidates;
mod circuit;
mod fetcher;
mod host;
mod lookup;
mod lookups;
mod metrics;
mod request;
mod tags;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod throttling;

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::{Duration, Instant, timeout};

pub use cache::{CacheSettings, Outcome};
pub use lookups::Lookups;
pub use metrics::ResolverMetrics;
pub use tolerarch_support::concurrency::Tenant;

use crate::credentials::CredentialCandidate;
use crate::registry::{Allowances, Digest, NamedServers, Registry};
use crate::shared_cache::SharedCache;
use cache::{Cache, Millis};
use candidates::{CachedForAny, cached};
use circuit::PROBE_PATIENCE;
use fetcher::Fetcher;
use host::{Attempt, Hosts};
use lookup::Lookup;
use lookups::Pending;
use metrics::LookupResult;
use request::LookupRequest;
pub use request::Requester;
use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, QUEUE, Queued};
use tolerarch_support::metrics::counted;
use tolerarch_support::single_flight::{Run, SingleFlight};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// Maximum time that a Pod waits; less if the API server's own timeout is near.
    pub budget: Duration,
    /// Timeout of the wait for a permit, and of the lookup that has it.
    pub timeout: Duration,
    /// Maximum number of concurrent lookups.
    pub concurrency: usize,
    /// Maximum number of concurrent lookups at one registry.
    pub per_registry: usize,
}

impl Default for LookupSettings {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            concurrency: 64,
            per_registry: 16,
        }
    }
}

/// Finds platforms under one configuration, until the lookups that began under it have ended. Clones share state.
#[derive(Clone)]
pub struct Resolver {
    fetcher: Arc<Fetcher>,
    /// State of registries. Outlives a change of the configuration, as do the cache and the limit.
    hosts: Arc<Hosts>,
    limit: Arc<ConcurrencyLimit>,
}

enum Answer {
    Ready(Outcome),
    Pending(Pending),
}

impl Resolver {
    /// Makes a resolver with an empty cache; `shared` is the cache of all replicas.
    pub fn new(
        mut registry: Registry,
        lookup: LookupSettings,
        cache: CacheSettings,
        metrics: ResolverMetrics,
        shared: Option<SharedCache>,
    ) -> Self {
        let all = lookup.concurrency;
        let per_host = lookup.per_registry;
        let limit = ConcurrencyLimit::new(Capacity {
            all,
            per_host,
            waiting: QUEUE * all,
        });
        registry.limit_named_servers(NamedServers::new(all, per_host));
        let hosts = Hosts::new(metrics.clone());
        let cache = Cache::new(cache, metrics.clone());
        let fetcher = Fetcher {
            registry,
            cache,
            shared,
            timeout: lookup.timeout,
            flights: SingleFlight::default(),
            queries: SingleFlight::default(),
            metrics,
        };
        Self::with(fetcher, hosts.into(), limit.into())
    }

    /// Makes the resolver of another configuration. The two share the cache, unless they verify different platforms: a
    /// cached answer may be false for platforms whose manifests were not read. Lookups in flight end under the former
    /// configuration, and store nothing. The limits on concurrency and on cached answers stay as at the start.
    #[must_use]
    pub fn reconfigured(
        &self,
        mut registry: Registry,
        lookup: LookupSettings,
        cache: CacheSettings,
    ) -> Self {
        let Self {
            fetcher: before,
            hosts,
            limit,
            ..
        } = self;
        registry.limit_named_servers(before.registry.named_servers().clone());
        let verifies_same = registry.verified == before.registry.verified;
        let fetcher = Fetcher {
            cache: before.cache.reconfigured(cache, verifies_same),
            registry,
            timeout: lookup.timeout,
            shared: before.shared.clone(),
            flights: SingleFlight::default(),
            queries: SingleFlight::default(),
            metrics: before.metrics.clone(),
        };
        Self::with(fetcher, Arc::clone(hosts), Arc::clone(limit))
    }

    fn with(mut fetcher: Fetcher, hosts: Arc<Hosts>, limit: Arc<ConcurrencyLimit>) -> Self {
        if let Some(shared) = fetcher.shared {
            let tag_life = fetcher.cache.tag_life();
            fetcher.shared = Some(shared.configured(fetcher.registry.verified, tag_life));
        }
        Self {
            fetcher: fetcher.into(),
            hosts,
            limit,
        }
    }

    /// Begins the lookups of all images at once. `candidates` returns the candidates of an image in the order in which
    /// to try them ([`Keyring::candidates`](crate::credentials::Keyring::candidates)). An image without candidates is
    /// denied. A lookup continues when its outcome is no longer awaited.
    pub fn lookups<'r>(
        &'r self,
        requester: Requester<'_>,
        images: &[&ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
        deadline: Instant,
    ) -> Lookups<'r> {
        let now = self.fetcher.cache.now();
        let mut ready = Vec::with_capacity(images.len());
        let mut pending = Vec::new();
        for (index, &image) in images.iter().enumerate() {
            match self.find(image, candidates(image), requester, now) {
                Answer::Ready(outcome) => ready.push((index, outcome)),
                Answer::Pending(lookup) => pending.push((index, lookup)),
            }
        }
        let mut lookups = Lookups::ready(ready);
        for (index, lookup) in pending {
            lookups.push(async move {
                let outcome = lookup.outcome(&self.fetcher, deadline).await;
                (index, outcome)
            });
        }
        lookups
    }

    /// Returns whether a good answer is cached, or the registry is not allowed. In both cases other credentials would
    /// not be used.
    pub fn is_settled(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> bool {
        let Fetcher {
            registry, cache, ..
        } = &*self.fetcher;
        if !registry.admits(image) {
            return true;
        }
        let cached = cached(cache, image, candidates, cache.now());
        matches!(
            cached,
            CachedForAny::Fresh(Ok(_)) | CachedForAny::Stale { .. }
        )
    }

    /// Returns the digest that the image names, otherwise the digest to which its tag points in the cache.
    pub fn digest(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> Option<Digest> {
        if let Some(named) = Digest::named_by(image) {
            return Some(named);
        }
        // Candidates are tried in this order, so the first one with a digest gave the answer.
        let cache = &self.fetcher.cache;
        candidates
            .iter()
            .find_map(|candidate| cache.last_digest(image, candidate.id))
    }

    /// Returns whether a lookup of this image would take no capacity that a Pod needs now.
    pub fn has_spare(&self, image: &ImageRef) -> bool {
        self.limit.has_spare(image.host())
    }

    /// Returns the rate limits that registries reported last.
    pub fn allowances(&self) -> &Allowances {
        self.fetcher.registry.allowances()
    }

    /// Returns the hosts with which TLS cannot be set up, and why.
    pub fn tls_faults(&self) -> &[String] {
        &self.fetcher.registry.tls_faults
    }

    /// Returns the outcome that is available now, or else begins or joins the lookup that will give it.
    fn find(
        &self,
        image: &ImageRef,
        candidates: Cow<'static, [CredentialCandidate]>,
        requester: Requester<'_>,
        now: Millis,
    ) -> Answer {
        let Fetcher {
            registry,
            cache,
            metrics,
            ..
        } = &*self.fetcher;
        let count = |result| metrics.count_lookup(image.host(), result);
        // Before the cache is read, as cached answers of a registry that is no longer allowed are not trusted either.
        if !registry.admits(image) {
            count(LookupResult::Failed);
            return Answer::Ready(Err(LookupError::NotAllowed));
        }
        match cached(cache, image, &candidates, now) {
            CachedForAny::Fresh(outcome) => {
                match outcome {
                    Ok(_) => count(LookupResult::Hit),
                    Err(_) => count(LookupResult::Negative),
                }
                return Answer::Ready(outcome);
            }
            CachedForAny::Stale { support, refresh } => {
                count(LookupResult::Stale);
                if let Some(candidate) = refresh {
                    let candidates = vec![candidate.clone()].into();
                    let request = LookupRequest::new(image, candidates, requester);
                    // This Pod has its answer, whatever becomes of the refresh.
                    let _ = self.start(&request.into());
                }
                return Answer::Ready(Ok(support));
            }
            CachedForAny::Nothing => {}
        }
        let request = Arc::new(LookupRequest::new(image, candidates, requester));
        match self.start(&request) {
            Ok(pending) => {
                if pending.joined {
                    count(LookupResult::Joined);
                }
                Answer::Pending(pending)
            }
            Err(error) => Answer::Ready(self.fetcher.stale_or(&request, error)),
        }
    }

    /// Joins or begins the tenant's lookup of this image; fails with `Throttled`, `CircuitOpen` or `Overloaded`.
    fn start(&self, request: &Arc<LookupRequest>) -> Result<Pending, LookupError> {
        let Fetcher { flights, .. } = &*self.fetcher;
        let host = self.hosts.get(request.image.host());
        let access = self.hosts.access(request);
        let patience = match request.tenant {
            Tenant::Namespace(_) => host.patience(access),
            // No API server waits for a lookup of the operator: a late answer is better than none.
            Tenant::Operator => Duration::MAX,
        };
        let pending = |flight| Pending {
            request: Arc::clone(request),
            flight,
            joined: false,
            patience,
            late: LookupError::BudgetExceeded,
        };
        let key = request.key();
        if flights.has(&key) {
            host.permission(access)?;
            if let Some(flight) = flights.join(&key) {
                host.joined(access);
                return Ok(Pending {
                    joined: true,
                    ..pending(flight)
                });
            }
        }
        let attempt = host.enter(access);
        // Another replica may have shared an answer before the registry failed or throttled, so a lookup that the gate
        // refuses may still read the shared cache.
        if let Err(error) = attempt
            && !self.fetcher.reads_shared_answers()
        {
            return Err(error);
        }
        let is_probe = attempt.as_ref().is_ok_and(Attempt::is_probe);
        let queued = self
            .limit
            .queue(&request.tenant, &host.name)
            .ok_or(LookupError::Overloaded)?;
        let fetcher = Arc::clone(&self.fetcher);
        let flight = flights.run(key, || {
            look_up(fetcher, Arc::clone(request), attempt, queued)
        });
        if !is_probe {
            return Ok(pending(flight));
        }
        Ok(Pending {
            patience: PROBE_PATIENCE,
            late: LookupError::CircuitOpen,
            ..pending(flight)
        })
    }
}

/// Reads the shared cache. Then waits for the tenant's permit, and queries the registry, or joins another tenant's
/// query. A query outlives this lookup. If `attempt` is an error, reads only the shared cache.
async fn look_up(
    fetcher: Arc<Fetcher>,
    request: Arc<LookupRequest>,
    attempt: Result<Attempt, LookupError>,
    queued: Queued,
) -> Outcome {
    if let Some(support) = fetcher.shared_answer(&request).await {
        return Ok(support);
    }
    let attempt = match attempt {
        Ok(attempt) => attempt,
        Err(error) => return fetcher.stale_or(&request, error),
    };
    let _in_flight = counted(&fetcher.metrics.families.in_flight);
    let Ok(permit) = timeout(fetcher.timeout_of(&attempt), queued).await else {
        return fetcher.stale_or(&request, LookupError::Overloaded);
    };
    let key = request.query_key();
    let mut lookup = Lookup::new(Arc::clone(&fetcher), Arc::clone(&request), attempt, permit);
    loop {
        let query = fetcher
            .queries
            .join_or_start(key.clone(), lookup, Lookup::run);
        let flight = match query {
            Run::Started(flight) => return flight.await.unwrap_or(Err(LookupError::Internal)),
            Run::Joined(flight, unused) => {
                lookup = unused;
                flight
            }
        };
        lookup.joined();
        match flight.await {
            // The query was refused for the tenant that began it. It may be admitted for this one.
            Ok(Err(
                LookupError::CircuitOpen | LookupError::Throttled | LookupError::Overloaded,
            )) => {}
            outcome => {
                let host = request.image.host();
                fetcher.metrics.count_lookup(host, LookupResult::Joined);
                return outcome.unwrap_or(Err(LookupError::Internal));
            }
        }
    }
}

#[cfg(test)]
mod tests;
