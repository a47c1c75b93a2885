//! Parts that the loops share: when a loop runs, the state of its watches, and changes of objects.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Duration;

use super::pace::Pace;
use super::{ControllerMetrics, ControllerSettings, Leadership, Learner, Recorder};
use tolerarch_engine::decide::{BatchLimits, Current};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_kubernetes::cluster::{Change, Cluster, ClusterError, PatchType, Watcher};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Tenant};
use tolerarch_support::health::Reported;

#[derive(Clone)]
pub struct Context {
    pub leadership: Leadership,
    pub cluster: Arc<Cluster>,
    pub watcher: Watcher,
    pub current: Current,
    pub settings: watch::Receiver<ControllerSettings>,
    pub metrics: ControllerMetrics,
    pub recorder: Recorder,
    pub learner: Arc<Learner>,
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

/// Result of a change of an object; `None` if it was not tried, as another replica leads or too many wait.
pub(super) type Written = Option<Result<(), ClusterError>>;

/// Concurrent changes: four in one namespace. An API server that is slow gets fewer in a second, so that other clients do
/// not wait; and one namespace whose changes are slow leaves more than half to the others.
const AT_ONCE: Capacity = Capacity { all: 10, per_host: 10, waiting: 1024 };

/// Client that changes objects while this replica leads, at a limited rate.
pub(super) struct Writer<'a> {
    cluster: &'a Cluster,
    leadership: &'a Leadership,
    pace: Pace,
    limit: ConcurrencyLimit,
}

impl<'a> Writer<'a> {
    pub(super) fn new(cluster: &'a Cluster, leadership: &'a Leadership, pace: Pace) -> Self {
        Self { cluster, leadership, pace, limit: ConcurrencyLimit::new(AT_ONCE) }
    }

    /// Changes an object on behalf of a tenant.
    pub(super) async fn patch(
        &self,
        tenant: &Tenant,
        path: &str,
        r#type: PatchType,
        patch: &Value,
    ) -> Written {
        let _permit = self.limit.queue(tenant, "")?.await;
        self.pace.turn().await;
        match self.leadership.holds() {
            true => Some(self.cluster.patch(path, r#type, patch).await),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{FuturesUnordered, StreamExt};
    use futures_util::{FutureExt, poll};
    use serde_json::json;

    use super::*;
    use tolerarch_kubernetes::cluster::testing::Objects;

    #[tokio::test]
    async fn few_changes_are_under_way_and_one_namespace_holds_up_no_other() {
        let (objects, leadership) = (Objects::start().await, Leadership::held());
        let cluster = objects.cluster();
        let writer = Writer::new(&cluster, &leadership, Pace::new(1000, 1000));
        let (path, kind, patch) = ("/api/v1/pods", PatchType::JSON, &json!({}));
        let [busy, other] = ["busy", "other"].map(Tenant::of);
        let mut all: FuturesUnordered<_> = (0..64).map(|_| writer.patch(&busy, path, kind, patch)).collect();
        assert!(poll!(all.next()).is_pending());
        assert!(writer.limit.queue(&busy, "").unwrap().now_or_never().is_none(), "the others wait");
        // Those of the first namespace hold what they have.
        assert!(writer.patch(&other, path, kind, patch).await.is_some());
        assert!(objects.requests() <= 1 + 4, "{}", objects.requests());
        while all.next().await.is_some() {}
        assert_eq!(objects.requests(), 1 + 64);
    }
}
