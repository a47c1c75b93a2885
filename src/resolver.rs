//! From image to platforms, in time: cache first, one lookup a key, and a Pod waits no longer than its budget.
//!
//! A lookup runs in a task of its own, whatever becomes of the Pods that wait for it, and ends by its own timeout; so a
//! Pod that could not wait leaves an answer behind for the next one.

mod cache;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{FutureExt, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Duration, Instant, timeout, timeout_at};

pub use cache::CacheSettings;

use crate::image::{ImageRef, Support, Unknown};
use crate::metrics::{LookupResult, Metrics};
use crate::registry::{Error, Registry};
use cache::Cache;

/// What is known of an image.
pub type Outcome = Result<Support, Unknown>;

/// Lookups that may wait for their turn, for each one that may run.
const QUEUE: usize = 8;

/// How lookups are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// How long one Pod may wait; less when the API server's own timeout is near.
    pub budget: Duration,
    /// How long one lookup may take in all.
    pub timeout: Duration,
    /// Lookups that run at a time.
    pub concurrency: usize,
}

/// Finds platforms. Clones are the same resolver.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

struct Inner {
    registry: Registry,
    cache: Cache,
    flights: Mutex<HashMap<Box<str>, Flight>>,
    running: Semaphore,
    settings: LookupSettings,
    metrics: Metrics,
}

/// A lookup that is under way; the channel breaks if its task dies.
type Flight = Shared<oneshot::Receiver<Outcome>>;

/// Where the answer to one image comes from.
enum Found {
    Known(Outcome),
    Pending(Flight),
}

impl Resolver {
    /// A resolver with an empty cache.
    pub fn new(registry: Registry, settings: LookupSettings, cache: CacheSettings, metrics: Metrics) -> Self {
        let cache = Cache::new(cache, metrics.clone());
        let running = Semaphore::new(settings.concurrency);
        Self(Arc::new(Inner { registry, cache, flights: Mutex::default(), running, settings, metrics }))
    }

    /// Looks up all images at once, until all are known, one of them is `enough` by itself, or the deadline comes.
    ///
    /// The answer has the order of `images`. `None` stands where another image was enough; what the deadline cut short
    /// is [`Unknown::BudgetExceeded`].
    pub async fn resolve(
        &self,
        images: &[&ImageRef],
        deadline: Instant,
        enough: impl Fn(&ImageRef, Outcome) -> bool,
    ) -> Vec<Option<Outcome>> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; images.len()];
        let mut settled = false;
        let mut pending = FuturesUnordered::new();
        for (place, image) in images.iter().enumerate() {
            match self.find(image) {
                Found::Known(outcome) => {
                    outcomes[place] = Some(outcome);
                    settled |= enough(image, outcome);
                }
                Found::Pending(flight) => pending.push(flight.map(move |outcome| (place, outcome))),
            }
        }
        while !settled && !pending.is_empty() {
            match timeout_at(deadline, pending.next()).await {
                Ok(Some((place, outcome))) => {
                    let outcome = outcome.unwrap_or(Err(Unknown::Internal));
                    outcomes[place] = Some(outcome);
                    settled = enough(images[place], outcome);
                }
                Ok(None) => break,
                Err(_) => {
                    outcomes.iter_mut().filter(|outcome| outcome.is_none()).for_each(|outcome| {
                        *outcome = Some(Err(Unknown::BudgetExceeded));
                    });
                    break;
                }
            }
        }
        outcomes
    }

    /// The cached answer, or the lookup that will give one: a running one if there is.
    fn find(&self, image: &ImageRef) -> Found {
        let inner = &self.0;
        if let Some(outcome) = inner.cache.get(image) {
            let result = if outcome.is_ok() { LookupResult::Hit } else { LookupResult::Negative };
            inner.metrics.looked_up(image.host(), result);
            return Found::Known(outcome);
        }
        let mut flights = inner.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(image.as_str()) {
            inner.metrics.looked_up(image.host(), LookupResult::Joined);
            return Found::Pending(flight.clone());
        }
        if flights.len() >= inner.settings.concurrency * (1 + QUEUE) {
            inner.metrics.looked_up(image.host(), LookupResult::Failed);
            return Found::Known(Err(Unknown::Overloaded));
        }
        let (sender, receiver) = oneshot::channel();
        let flight = receiver.shared();
        flights.insert(image.as_str().into(), flight.clone());
        let landing = Landing { resolver: self.clone(), image: image.clone() };
        tokio::spawn(async move {
            let outcome = landing.resolver.look_up(&landing.image).await;
            // First the cache, then the end of the flight: nobody finds neither.
            drop(landing);
            let _ = sender.send(outcome);
        });
        Found::Pending(flight)
    }

    /// Asks the registry, within the lookup's own timeout, and remembers the answer.
    async fn look_up(&self, image: &ImageRef) -> Outcome {
        let inner = &self.0;
        let _in_flight = inner.metrics.lookup_in_flight();
        let asked = timeout(inner.settings.timeout, async {
            // The semaphore is never closed; if it were, the lookup would run without its permit.
            let _permit = inner.running.acquire().await;
            inner.registry.support(image).await
        });
        let asked = asked.await;
        let (outcome, retry_after) = match &asked {
            Ok(Ok(support)) => (Ok(*support), None),
            Ok(Err(error)) => (Err(unknown(error)), retry_after(error)),
            Err(_) => (Err(Unknown::Timeout), None),
        };
        match &asked {
            Ok(Ok(_)) => inner.metrics.looked_up(image.host(), LookupResult::Fetched),
            Ok(Err(error)) => {
                inner.metrics.looked_up(image.host(), LookupResult::Failed);
                tracing::warn!(%image, %error, "lookup failed");
            }
            Err(_) => {
                inner.metrics.looked_up(image.host(), LookupResult::Failed);
                tracing::warn!(%image, error = "no answer within lookup.timeout", "lookup failed");
            }
        }
        inner.cache.put(image, outcome, retry_after);
        outcome
    }
}

/// Takes a lookup off the list of those under way, also when its task panics.
struct Landing {
    resolver: Resolver,
    image: ImageRef,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.resolver.0.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.remove(self.image.as_str());
    }
}

fn unknown(error: &Error) -> Unknown {
    match error {
        Error::NotFound => Unknown::NotFound,
        Error::Denied(_) => Unknown::Denied,
        Error::Throttled(_) => Unknown::Throttled,
        Error::Unreachable(_) => Unknown::Unreachable,
        Error::AddressNotAllowed => Unknown::AddressNotAllowed,
        Error::BadManifest(_) => Unknown::BadManifest,
    }
}

fn retry_after(error: &Error) -> Option<Duration> {
    match error {
        Error::Throttled(retry_after) => *retry_after,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
