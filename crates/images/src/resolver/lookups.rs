//! Lookups of a Pod's images, as a stream of outcomes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use tokio::time::{Duration, Instant, timeout};

use super::cache::Outcome;
use super::fetcher::Fetcher;
use super::request::LookupRequest;
use tolerarch_core::image::LookupError;
use tolerarch_support::single_flight::Flight;

/// Outcomes of lookups, each with the index of its image: first the outcomes that are ready, then the others as they
/// arrive. An image whose lookup did not end before the deadline gets its expired good answer, or
/// [`LookupError::BudgetExceeded`].
pub struct Lookups<'r> {
    ready: vec::IntoIter<(usize, Outcome)>,
    /// `None` for most Pods, which have nothing to wait for.
    awaited: Option<FuturesUnordered<BoxFuture<'r, (usize, Outcome)>>>,
}

impl<'r> Lookups<'r> {
    pub(super) fn ready(outcomes: Vec<(usize, Outcome)>) -> Self {
        Self {
            ready: outcomes.into_iter(),
            awaited: None,
        }
    }

    /// Adds an outcome that has to be awaited.
    pub fn push(&mut self, outcome: impl Future<Output = (usize, Outcome)> + Send + 'r) {
        let awaited = self.awaited.get_or_insert_default();
        awaited.push(Box::pin(outcome));
    }

    /// Returns whether the next outcome is ready.
    pub fn is_next_ready(&self) -> bool {
        !self.ready.as_slice().is_empty()
    }
}

impl Default for Lookups<'_> {
    fn default() -> Self {
        Self::ready(Vec::new())
    }
}

impl Stream for Lookups<'_> {
    type Item = (usize, Outcome);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(ready) = self.ready.next() {
            return Poll::Ready(Some(ready));
        }
        match &mut self.awaited {
            Some(awaited) => awaited.poll_next_unpin(context),
            None => Poll::Ready(None),
        }
    }
}

/// A lookup in flight that a Pod waits for.
pub(super) struct Pending {
    pub(super) request: Arc<LookupRequest>,
    pub(super) flight: Flight<Outcome>,
    /// True if another Pod began the lookup.
    pub(super) joined: bool,
    /// Maximum wait. It is short for a probe, and for a registry that has long been silent.
    pub(super) patience: Duration,
    /// Error after that wait.
    pub(super) late: LookupError,
}

impl Pending {
    /// Waits for the outcome until the deadline, but no longer than `patience`. After that, returns an expired good
    /// answer if there is one.
    pub(super) async fn outcome(self, fetcher: &Fetcher, deadline: Instant) -> Outcome {
        let until_deadline = deadline.saturating_duration_since(Instant::now());
        let wait = until_deadline.min(self.patience);
        let outcome = match timeout(wait, self.flight).await {
            Ok(result) => result.unwrap_or(Err(LookupError::Internal)),
            Err(_) => Err(self.late),
        };
        match outcome {
            Err(error @ (LookupError::CircuitOpen | LookupError::BudgetExceeded)) => {
                fetcher.stale_or(&self.request, error)
            }
            outcome => outcome,
        }
    }
}
