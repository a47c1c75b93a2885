//! What the loops share: when they run, what their watches say of themselves, and how they change objects.

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

/// What the loops that look at Pods work with; clones share it.
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

/// Does this while the settings say so, from when they do.
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

/// Whether this is wrong, as far as a change says it.
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

/// What came of a try to change an object; `None` where that was not tried, as another replica leads.
pub(super) type Written = Option<Result<(), ClusterError>>;

/// The same in a word, for metrics.
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

/// Changes objects while this replica leads, so many a second.
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
