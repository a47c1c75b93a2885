//! Finds the platforms of images in time: cache first, one lookup per key, and a Pod waits no longer than its budget. A
//! lookup runs in its own task, independent of the Pods that wait for it, and ends by its own timeout; so a Pod that
//! could not wait leaves an answer for the next one. A good answer outlives failures of its registry. Answers, failures
//! and lookups in flight are shared only by holders of one credential, or for anonymous access.

mod cache;
mod circuit;
mod host;
mod lookup;
mod lookups;
mod metrics;
mod request;
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
use cache::{Cache, Cached, Millis};
use circuit::PROBE_PATIENCE;
use host::{Attempt, Hosts};
use lookup::{Fetcher, Job};
use lookups::Pending;
pub use lookups::Requester;
use metrics::LookupResult;
use request::{FlightKey, Request};
use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, QUEUE, Queued};
use tolerarch_support::metrics::counted;
use tolerarch_support::single_flight::{Run, SingleFlight};
use tolerarch_text::escape::shortened;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// Maximum time that a Pod waits; less if the API server's own timeout is near.
    pub budget: Duration,
    /// Timeout of a lookup that has its permit, and of the wait for that permit.
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

/// Finds platforms under one configuration, to the end of the lookups that began under it. Clones share state.
#[derive(Clone)]
pub struct Resolver {
    fetcher: Arc<Fetcher>,
    /// Lookups in flight, each of one tenant. No Pod joins a lookup of another configuration.
    flights: SingleFlight<FlightKey, Outcome>,
    /// Requests of these lookups to registries; see [`Request::shared_key`].
    requests: SingleFlight<FlightKey, Outcome>,
    /// Outlives a change of the configuration, as the cache and the limit do.
    hosts: Arc<Hosts>,
    limit: Arc<ConcurrencyLimit>,
}

enum Lookup {
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
            metrics,
        };
        Self::with(fetcher, hosts.into(), limit.into())
    }

    /// Makes the resolver of another configuration. The two share the cache, unless the platforms to verify differ: a
    /// trusted answer may be false for platforms whose manifests were not read. Lookups in flight end under the former
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
        let fetcher = Fetcher {
            cache: before
                .cache
                .reconfigured(cache, registry.verified == before.registry.verified),
            registry,
            timeout: lookup.timeout,
            shared: before.shared.clone(),
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
            flights: SingleFlight::default(),
            requests: SingleFlight::default(),
            hosts,
            limit,
        }
    }

    /// Begins the lookups of all images at once. `candidates` are an image's in the order of trying
    /// ([`Keyring::candidates`](crate::credentials::Keyring::candidates)); without any the image is denied. A
    /// lookup continues when its outcome is no longer awaited.
    pub fn lookups<'r>(
        &'r self,
        requester: Requester<'_>,
        images: &[&'r ImageRef],
        candidates: impl Fn(&ImageRef) -> Cow<'static, [CredentialCandidate]>,
        deadline: Instant,
    ) -> Lookups<'r> {
        let now = self.fetcher.cache.now();
        let mut known = Vec::with_capacity(images.len());
        let mut pending = Vec::new();
        for (place, &image) in images.iter().enumerate() {
            let candidates = candidates(image);
            let request = Request {
                image,
                candidates: &candidates,
            };
            match self.find(request, now, requester) {
                Lookup::Ready(outcome) => known.push((place, outcome)),
                Lookup::Pending(lookup) => pending.push((place, lookup, candidates)),
            }
        }
        let mut lookups = Lookups::known(known);
        for (place, lookup, candidates) in pending {
            let image = images[place];
            lookups.push(async move {
                let outcome = lookup.outcome(&self.fetcher, image, candidates, deadline);
                (place, outcome.await)
            });
        }
        lookups
    }

    /// Returns whether a good answer is cached, or the registry is not allowed: more credentials would not be used.
    pub fn is_settled(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> bool {
        let Fetcher {
            registry, cache, ..
        } = &*self.fetcher;
        if !registry.admits(image) {
            return true;
        }
        let (cached, _) = Request { image, candidates }.cached(cache, cache.now());
        matches!(cached, Cached::Fresh(Ok(_)) | Cached::Stale { .. })
    }

    /// Returns the digest that the image names, else the one to which its tag points in the cache.
    pub fn digest(&self, image: &ImageRef, candidates: &[CredentialCandidate]) -> Option<Digest> {
        if let Some(named) = Digest::named_by(image) {
            return Some(named);
        }
        // The first candidate with a digest gave the answer, as candidates are tried in this order.
        let cache = &self.fetcher.cache;
        candidates
            .iter()
            .find_map(|candidate| cache.points_to(image, candidate.id))
    }

    /// Returns whether a lookup of this image would take no capacity that a Pod needs now.
    pub fn has_spare(&self, image: &ImageRef) -> bool {
        self.limit.has_spare(image.host())
    }

    /// Returns what registries last said of their rate limits.
    pub fn allowances(&self) -> &Allowances {
        self.fetcher.registry.allowances()
    }

    /// Returns the hosts with which TLS cannot be set up, and why.
    pub fn tls_faults(&self) -> &[String] {
        &self.fetcher.registry.tls_faults
    }

    /// Returns the outcome that is known now, or the lookup that will give one.
    fn find(&self, request: Request<'_>, now: Millis, requester: Requester<'_>) -> Lookup {
        let Fetcher {
            registry,
            cache,
            metrics,
            ..
        } = &*self.fetcher;
        let count = |result| metrics.looked_up(request.image.host(), result);
        // Checked before the cache: cached answers of a registry that is no longer allowed are not trusted either.
        if !registry.admits(request.image) {
            count(LookupResult::Failed);
            return Lookup::Ready(Err(LookupError::NotAllowed));
        }
        let (cached, refresh) = request.cached(cache, now);
        match cached {
            Cached::Fresh(outcome) => {
                count(if outcome.is_ok() {
                    LookupResult::Hit
                } else {
                    LookupResult::Negative
                });
                Lookup::Ready(outcome)
            }
            Cached::Stale { support, due } => {
                count(LookupResult::Stale);
                if due {
                    // This Pod has its answer, whatever the result.
                    let _ = self.start(refresh, requester);
                }
                Lookup::Ready(Ok(support))
            }
            Cached::Expired(_) | Cached::Nothing => match self.start(request, requester) {
                Ok(pending) => {
                    if pending.joined {
                        count(LookupResult::Joined);
                    }
                    Lookup::Pending(pending)
                }
                Err(error) => Lookup::Ready(self.fetcher.stale_or(request, error)),
            },
        }
    }

    /// Joins or begins the tenant's lookup of this image; fails with `Throttled`, `CircuitOpen` or `Overloaded`.
    fn start(
        &self,
        request: Request<'_>,
        requester: Requester<'_>,
    ) -> Result<Pending, LookupError> {
        let tenant = &requester.tenant();
        let host = self.hosts.get(request.image.host());
        let access = self.hosts.access(request, tenant);
        let mut patience = match tenant {
            Tenant::Namespace(_) => host.patience(access),
            // No API server waits for the operator: a late answer is better than none.
            Tenant::Operator => Duration::MAX,
        };
        let mut late = LookupError::BudgetExceeded;
        let key = (Some(tenant.clone()), request.key());
        if self.flights.has(&key) {
            host.permission(access)?;
            if let Some(flight) = self.flights.join(&key) {
                host.joined(access);
                return Ok(Pending {
                    flight,
                    joined: true,
                    patience,
                    late,
                });
            }
        }
        let attempt = host.enter(access);
        match &attempt {
            Ok(attempt) if attempt.is_probe() => {
                patience = PROBE_PATIENCE;
                late = LookupError::CircuitOpen;
            }
            Ok(_) => {}
            // Another replica may have shared an answer before the registry failed or throttled.
            Err(_) if self.fetcher.reads_shared_answers() => {}
            Err(error) => return Err(*error),
        }
        let queued = self
            .limit
            .queue(tenant, &host.name)
            .ok_or(LookupError::Overloaded)?;
        let job = Job {
            image: request.image.clone(),
            candidates: request.candidates.into(),
            host,
            access,
            tenant: tenant.clone(),
            review: requester.review.map(|uid| shortened(uid).into()),
            flights: self.flights.clone(),
        };
        let resolver = self.clone();
        let look_up = || async move { resolver.look_up(job, attempt, queued).await };
        Ok(Pending {
            flight: self.flights.run(key, look_up),
            joined: false,
            patience,
            late,
        })
    }

    /// Reads the shared cache. Then waits for the tenant's permit, and begins a request, or joins another tenant's, which
    /// outlives this lookup. Without an attempt only the shared cache is read.
    async fn look_up(
        &self,
        job: Job,
        attempt: Result<Attempt, LookupError>,
        queued: Queued,
    ) -> Outcome {
        let Self {
            fetcher, requests, ..
        } = self;
        if let Some(support) = fetcher.shared_answer(&job).await {
            return Ok(support);
        }
        let attempt = match attempt {
            Ok(attempt) => attempt,
            Err(error) => return fetcher.stale_or(job.request(), error),
        };
        let _in_flight = counted(&fetcher.metrics.of.in_flight);
        let Ok(permit) = timeout(fetcher.time(&attempt), queued).await else {
            return fetcher.stale_or(job.request(), LookupError::Overloaded);
        };
        let job = Arc::new(job);
        let key = job.request().shared_key(&job.tenant);
        let mut request = {
            let fetcher = Arc::clone(fetcher);
            let job = Arc::clone(&job);
            || fetcher.request(job, attempt, permit)
        };
        loop {
            let flight = match requests.join_or_start(key.clone(), request) {
                Run::Started(flight) => {
                    return flight.await.unwrap_or(Err(LookupError::Internal));
                }
                Run::Joined(flight, unused) => {
                    request = unused;
                    flight
                }
            };
            job.host.joined(job.access);
            match flight.await {
                // The tenant that began the request had no turn; this one may.
                Ok(Err(
                    LookupError::CircuitOpen | LookupError::Throttled | LookupError::Overloaded,
                )) => {}
                outcome => {
                    fetcher
                        .metrics
                        .looked_up(job.image.host(), LookupResult::Joined);
                    return outcome.unwrap_or(Err(LookupError::Internal));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
