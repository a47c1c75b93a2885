//! Parts that the loops share: when a loop runs, the state of its watches, and changes of objects.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::Duration;

use super::pace::Pace;
use super::{ControllerSettings, Leadership};
use tolerarch_engine::decide::{BatchLimits, Current};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_kubernetes::cluster::{Change, Cluster, ClusterError, PatchType, Watcher};
use tolerarch_support::health::Reported;

#[derive(Clone)]
pub struct Context {
    pub leadership: Leadership,
    pub cluster: Arc<Cluster>,
    pub watcher: Watcher,
    pub current: Current,
    pub settings: watch::Receiver<ControllerSettings>,
}

impl Context {
    pub(super) fn writer(&self, per_second: u32, burst: u32) -> Writer<'_> {
        Writer::new(&self.cluster, &self.leadership, Pace::new(per_second, burst))
    }
}

/// Runs `work` once the settings switch it on, until `work` ends or the settings switch it off.
pub(super) async fn while_on(
    settings: &watch::Receiver<ControllerSettings>,
    is_on: impl Fn(&ControllerSettings) -> bool,
    work: impl Future<Output = ()>,
) {
    let mut settings = settings.clone();
    // The sender lives as long as the process.
    let _ = settings.wait_for(&is_on).await;
    tokio::select! {
        () = work => {}
        _ = settings.wait_for(|settings| !is_on(settings)) => {}
    }
}

/// Limits on lookups that no review waits for.
pub(super) fn lookup_limits(looks: usize) -> BatchLimits {
    let (timeout, budget) = (Duration::from_secs(10), Duration::ZERO);
    BatchLimits::new(&LookupSettings { budget, timeout, concurrency: 2 * looks, per_registry: 2 })
}

/// Sets or clears the fault `what` if the change is a failure or the end of a list.
pub(super) fn tell<K>(state: &Reported, what: &'static str, change: &Change<K>) {
    match change {
        Change::Failed(error) => {
            tracing::error!(%error, "{what}");
            state.set_fault(what, true);
        }
        Change::Complete => state.set_fault(what, false),
        _ => {}
    }
}

/// Result of a change of an object; `None` if it was not tried because another replica leads.
pub(super) type Written = Option<Result<(), ClusterError>>;

pub(super) const fn word(written: Result<(), ClusterError>) -> &'static str {
    match written {
        Ok(()) => "changed",
        Err(ClusterError::NotFound) => "gone",
        Err(ClusterError::Conflict) => "conflict",
        Err(ClusterError::Invalid) => "refused",
        Err(ClusterError::Forbidden | ClusterError::Unauthorized) => "forbidden",
        Err(_) => "failed",
    }
}

/// Maximal number of concurrent changes: an API server that is slow gets fewer, so that other clients do not wait.
const AT_ONCE: usize = 4;

/// Client that changes objects while this replica leads, at a limited rate.
pub(super) struct Writer<'a> {
    cluster: &'a Cluster,
    leadership: &'a Leadership,
    pace: Pace,
    free: Semaphore,
}

impl<'a> Writer<'a> {
    pub(super) fn new(cluster: &'a Cluster, leadership: &'a Leadership, pace: Pace) -> Self {
        Self { cluster, leadership, pace, free: Semaphore::new(AT_ONCE) }
    }

    pub(super) async fn patch(&self, path: &str, r#type: PatchType, patch: &Value) -> Written {
        // The semaphore is never closed.
        let _permit = self.free.acquire().await;
        self.pace.turn().await;
        match self.leadership.holds() {
            true => Some(self.cluster.patch(path, r#type, patch).await),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use futures_util::stream::{FuturesUnordered, StreamExt};
    use serde_json::json;

    use super::*;
    use tolerarch_kubernetes::cluster::testing::Objects;

    #[tokio::test]
    async fn few_changes_are_under_way_at_a_time() {
        let (objects, leadership) = (Objects::start().await, Leadership::held());
        let cluster = objects.cluster();
        let writer = Writer::new(&cluster, &leadership, Pace::new(1000, 1000));
        let patch = json!({});
        let all = (0..3 * AT_ONCE).map(|_| writer.patch("/api/v1/pods", PatchType::Json, &patch));
        let mut all: FuturesUnordered<_> = all.collect();
        assert!(poll!(all.next()).is_pending());
        assert_eq!(writer.free.available_permits(), 0, "the others wait");
        while all.next().await.is_some() {}
        assert_eq!((objects.requests(), writer.free.available_permits()), (3 * AT_ONCE, AT_ONCE));
    }
}
