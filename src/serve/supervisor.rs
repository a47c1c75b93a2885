//! Keeps background tasks running: starts a task again that has ended, by a panic or otherwise, and reports it.

use futures_util::future::BoxFuture;
use prometheus::IntCounterVec;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use tolerarch_engine::decide::caught;
use tolerarch_support::health::Reported;
use tolerarch_support::metrics::Metrics;

/// Pause before a task is started again for the first time. It is doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
const ENDED: &str = "its background task ended and is being started again";

/// Function of a task, which ends only by an internal error. The task's state outlives a run.
pub(super) type Run<T> = fn(&mut T) -> BoxFuture<'_, ()>;

pub(super) struct Supervisor {
    pub(super) restarts: IntCounterVec,
    pub(super) tasks: JoinSet<()>,
}

impl Supervisor {
    pub(super) fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let restarts = metrics.add(
            "tolerarch_background_task_restarts_total",
            "Background tasks that ended unexpectedly and were started again.",
            &["task"],
        )?;
        Ok(Self {
            restarts,
            tasks: JoinSet::new(),
        })
    }

    /// Keeps a task running. `state` has a fault while the task waits to be started again.
    pub(super) fn keep<T: Send + 'static>(
        &mut self,
        name: &'static str,
        state: Reported,
        mut task: T,
        run: Run<T>,
    ) {
        let restarts = self.restarts.with_label_values(&[name]);
        self.tasks.spawn(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let start = Instant::now();
                // A panic has already been logged with its location.
                let _ = caught(run(&mut task)).await;
                if start.elapsed() > MAX_PAUSE {
                    pause = FIRST_PAUSE;
                }
                tracing::error!(
                    task = name,
                    pause = pause.as_secs(),
                    "internal error: a background task ended; it is started again"
                );
                state.set_fault(ENDED, true);
                sleep(pause).await;
                restarts.inc();
                state.set_fault(ENDED, false);
                pause = (2 * pause).min(MAX_PAUSE);
            }
        });
    }

    /// Waits until the supervision itself ends by an internal error.
    pub(super) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests;
