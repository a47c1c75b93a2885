//! Creations of Pods in the background, their results and durations.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use scenarios::{Namespace, PodExt};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long the shipped tolerarch waits for a registry.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The result of a creation: whether the Pod tolerates the pool, or why it was not created.
pub(crate) struct Creation {
    pub(crate) took: Duration,
    pub(crate) result: Result<bool, String>,
}

impl Creation {
    /// Creates a Pod in the background. It names no scheduler that exists, as its scheduling would be measured, too.
    pub(crate) fn begin(namespace: &Namespace, mut pod: Value) -> JoinHandle<Self> {
        // Two of thousands of generated names may be equal, and Kubernetes 1.30 does not retry then.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        pod["metadata"]["generateName"] = format!("web-{number}-").into();
        pod["spec"]["schedulerName"] = "none".into();
        let namespace = namespace.clone();
        tokio::spawn(async move {
            let start = Instant::now();
            let created = namespace.try_pod(&pod).await;
            let result = created
                .map(|pod| pod.tolerates_pool())
                .map_err(|error| error.to_string());
            Self {
                took: start.elapsed(),
                result,
            }
        })
    }
}

/// Returns why creations failed.
pub(crate) fn failures(creations: &[Creation]) -> Vec<&String> {
    creations
        .iter()
        .filter_map(|one| one.result.as_ref().err())
        .collect()
}

/// Returns how many Pods tolerate the pool.
pub(crate) fn tolerated(creations: &[Creation]) -> usize {
    creations
        .iter()
        .filter(|one| one.result == Ok(true))
        .count()
}

/// Returns how many Pods stayed unchanged. Pods that took at least `patience` do not count if the machine was too busy:
/// if a Pod that tolerarch is not called for took that long, too. `without` is the longest duration of such a Pod.
pub(crate) fn unchanged(creations: &[Creation], without: Duration, patience: Duration) -> usize {
    let is_excused = |took| took >= patience && without >= patience;
    creations
        .iter()
        .filter(|one| one.result == Ok(false) && !is_excused(one.took))
        .count()
}

/// The durations of creations, ascending.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn of(creations: &[Creation]) -> Self {
        let mut times: Vec<Duration> = creations.iter().map(|one| one.took).collect();
        times.sort_unstable();
        Self(times)
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

impl Display for Times {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [half, most, longest] = [50, 99, 100].map(|percent| self.percentile(percent));
        write!(f, "p50 {half:.1?}, p99 {most:.1?}, longest {longest:.1?}")
    }
}
