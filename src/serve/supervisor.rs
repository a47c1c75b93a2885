//! Keeps background tasks running: one that ends, by a panic or otherwise, is started again, and that shows.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prometheus::IntCounterVec;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use tolerarch_support::health::{Reported, State};
use tolerarch_support::metrics::Metrics;

/// Pause before a task is started again, doubled each time until it is the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Function of a task, which does not end except by an internal error. The task's state outlives a run.
pub(super) type Run<T> = fn(&mut T) -> BoxFuture<'_, ()>;

pub(super) fn restarts(metrics: &Metrics) -> Result<IntCounterVec, prometheus::Error> {
    metrics.counters(
        "tolerarch_background_task_restarts_total",
        "Background tasks that ended unexpectedly and were started again.",
        &["task"],
    )
}

pub(super) struct Supervisor {
    restarts: IntCounterVec,
    tasks: JoinSet<()>,
}

impl Supervisor {
    pub(super) fn new(restarts: IntCounterVec) -> Self {
        Self { restarts, tasks: JoinSet::new() }
    }

    /// Keeps this task running, and returns its health: degraded while the task waits to be started again.
    pub(super) fn keep<T: Send + 'static>(
        &mut self,
        name: &'static str,
        mut task: T,
        run: Run<T>,
    ) -> Reported {
        let state = Reported::default();
        let (own, restarts) = (state.clone(), self.restarts.with_label_values(&[name]));
        self.tasks.spawn(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let begun = Instant::now();
                // The panic itself has been logged with its location.
                let _ = AssertUnwindSafe(run(&mut task)).catch_unwind().await;
                if begun.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                tracing::error!(
                    task = name,
                    pause = pause.as_secs(),
                    "internal error: a background task ended; it is started again"
                );
                own.set(State::Degraded("its background task ended and is being started again"));
                sleep(pause).await;
                restarts.inc();
                own.set(State::Healthy);
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        });
        state
    }

    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Waits until the supervision itself ends, by an internal error.
    pub(super) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests;
