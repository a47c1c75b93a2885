//! The lookups of a Pod's images, as a stream of their outcomes.

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

/// Outcomes of lookups, each with the place of its image among those that are looked up: first what is known now, then
/// the others as they come. An image that the deadline cut short has its expired good answer, or
/// [`LookupError::BudgetExceeded`].
pub struct Lookups<'r> {
    pub(super) known: vec::IntoIter<(usize, Outcome)>,
    /// Absent for most Pods, which have nothing to wait for.
    awaited: Option<FuturesUnordered<BoxFuture<'r, (usize, Outcome)>>>,
}

impl<'r> Lookups<'r> {
    pub(super) fn known(outcomes: Vec<(usize, Outcome)>) -> Self {
        Self {
            known: outcomes.into_iter(),
            awaited: None,
        }
    }

    /// Adds an outcome that has to be awaited.
    pub fn push(&mut self, outcome: impl Future<Output = (usize, Outcome)> + Send + 'r) {
        let awaited = self.awaited.get_or_insert_default();
        awaited.push(Box::pin(outcome));
    }

    /// Returns whether the next outcome is known now.
    pub fn is_next_known(&self) -> bool {
        !self.known.as_slice().is_empty()
    }
}

impl Default for Lookups<'_> {
    fn default() -> Self {
        Self::known(Vec::new())
    }
}

impl Stream for Lookups<'_> {
    type Item = (usize, Outcome);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(known) = self.known.next() {
            return Poll::Ready(Some(known));
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
    /// Maximum wait, which is short for a probe and for a registry that is silent for long.
    pub(super) patience: Duration,
    /// The error after that wait.
    pub(super) late: LookupError,
}

impl Pending {
    /// Waits for the outcome; at the deadline, or when patience ends, an expired good answer has to do.
    pub(super) async fn outcome(self, fetcher: &Fetcher, deadline: Instant) -> Outcome {
        let left = deadline.saturating_duration_since(Instant::now());
        let outcome = match timeout(left.min(self.patience), self.flight).await {
            Ok(landed) => landed.unwrap_or(Err(LookupError::Internal)),
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
