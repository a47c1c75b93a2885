//! Keeps background tasks running: one that ends, by a panic or otherwise, is started again, and that shows.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use prometheus::{IntCounter, IntCounterVec};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use super::discovery::Discoverer;
use super::reload::Follower;
use tolerarch_images::shared_cache::SharedCacheKeeper;
use tolerarch_support::health::{Reported, State};
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::tls::{CertificateIssuer, CertificateWatch, SecretWatch};

/// The pause before a task is started again, doubled each time until it is the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A task that runs for as long as the process. What it holds outlives its run.
pub(super) trait Task: Send + 'static {
    /// Its label.
    const NAME: &'static str;
    /// Does not end, except by an internal error.
    fn run(&mut self) -> impl Future<Output = ()> + Send;
}

/// Makes tasks of types that have such a `run` of their own.
macro_rules! tasks {
    ($($type:ty: $name:literal),* $(,)?) => {$(
        impl $crate::serve::supervisor::Task for $type {
            const NAME: &'static str = $name;

            fn run(&mut self) -> impl Future<Output = ()> + Send {
                Self::run(self)
            }
        }
    )*};
}

pub(super) use tasks;

tasks! {
    Follower: "reload",
    Discoverer: "discovery",
    CertificateWatch: "certificate-watch",
    SecretWatch: "certificate-watch",
    CertificateIssuer: "certificate-manager",
    SharedCacheKeeper: "shared-cache",
}

/// Counts restarts; clones count the same.
#[derive(Clone)]
pub(super) struct SupervisorMetrics(IntCounterVec);

impl SupervisorMetrics {
    pub(super) fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let restarts = metrics.counters(
            "tolerarch_background_task_restarts_total",
            "Background tasks that ended unexpectedly and were started again.",
            &["task"],
        )?;
        // So that each is there before it is needed.
        let own = [
            Follower::NAME,
            Discoverer::NAME,
            CertificateWatch::NAME,
            CertificateIssuer::NAME,
            SharedCacheKeeper::NAME,
        ];
        for task in own {
            restarts.with_label_values(&[task]);
        }
        Ok(Self(restarts))
    }
}

/// The tasks, which end with it.
pub(super) struct Supervisor {
    metrics: SupervisorMetrics,
    tasks: JoinSet<()>,
}

impl Supervisor {
    pub(super) fn new(metrics: SupervisorMetrics) -> Self {
        Self { metrics, tasks: JoinSet::new() }
    }

    /// Keeps this task running, and reports whether it does.
    pub(super) fn keep<T: Task>(&mut self, task: T) -> Reported {
        let state = Reported::default();
        self.tasks.spawn(keep(task, state.clone(), self.metrics.0.with_label_values(&[T::NAME])));
        state
    }

    /// Ends all tasks, and waits for that.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Ends only if the supervision itself does, by an internal error.
    pub(super) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

async fn keep<T: Task>(mut task: T, state: Reported, restarts: IntCounter) {
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        // The panic itself has been logged with its location.
        let _ = AssertUnwindSafe(task.run()).catch_unwind().await;
        if begun.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tracing::error!(
            task = T::NAME,
            pause = pause.as_secs(),
            "internal error: a background task ended; it is started again"
        );
        state.set(State::Degraded("its background task ended and is being started again"));
        sleep(pause).await;
        restarts.inc();
        state.set(State::Healthy);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests;
