//! Creations of Pods, one after the other whatever becomes of them, and how long they took.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use scenarios::{Namespace, PodExt};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What tolerarch waits for a registry as it is shipped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// What became of one creation: whether the Pod tolerates the pool, or why there is none.
pub(crate) struct Creation {
    pub(crate) took: Duration,
    pub(crate) result: Result<bool, String>,
}

impl Creation {
    /// Creates a Pod that no scheduler takes up: it would be part of what is measured.
    pub(crate) fn begin(namespace: &Namespace, mut pod: Value) -> JoinHandle<Self> {
        // Of thousands of generated names two may be equal, which Kubernetes 1.30 does not try again.
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

/// Why creations failed.
pub(crate) fn failures(creations: &[Creation]) -> Vec<&String> {
    creations
        .iter()
        .filter_map(|one| one.result.as_ref().err())
        .collect()
}

/// How many Pods tolerate the pool.
pub(crate) fn tolerated(creations: &[Creation]) -> usize {
    creations
        .iter()
        .filter(|one| one.result == Ok(true))
        .count()
}

/// How many Pods were left unchanged, but for those that the machine had no time for: they took as long as something waits for
/// tolerarch or in it, and so did one of those that it does not see, the longest of which took `without`.
pub(crate) fn unchanged(creations: &[Creation], without: Duration, patience: Duration) -> usize {
    let is_excused = |took| took >= patience && without >= patience;
    creations
        .iter()
        .filter(|one| one.result == Ok(false) && !is_excused(one.took))
        .count()
}

/// How long creations took, ascending.
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
