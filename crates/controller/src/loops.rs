//! Parts that the loops share: when a loop runs, the state of its watches, and changes of objects.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
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
        let Self { cluster, leadership, .. } = self;
        Writer { cluster, leadership, pace: Pace::new(per_second, burst) }
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

/// Client that changes objects while this replica leads, at a limited rate.
pub(super) struct Writer<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) leadership: &'a Leadership,
    pub(super) pace: Pace,
}

impl Writer<'_> {
    pub(super) async fn patch(&self, path: &str, r#type: PatchType, patch: &Value) -> Written {
        self.pace.turn().await;
        match self.leadership.holds() {
            true => Some(self.cluster.patch(path, r#type, patch).await),
            false => None,
        }
    }
}
