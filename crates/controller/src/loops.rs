//! Parts that all loops share: when a loop runs, how it reports its state, and how it changes objects.

use std::future::pending;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::note::{OWNER_RECREATES, RECREATES};
use super::pace::Pace;
use super::{ControllerMetrics, ControllerSettings, Leadership, Learner, Recorder};
use tolerarch_engine::decide::CurrentSnapshot;
use tolerarch_engine::lessons::Lesson;
use tolerarch_kubernetes::cluster::{
    Change, Cluster, ClusterError, ObjectEvent, PatchType, StoredPod, Watcher,
};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Tenant};
use tolerarch_support::health::{Reported, State};

/// Everything that a loop uses, and its state. Clones share all of it.
#[derive(Clone)]
pub struct Context {
    pub leadership: Leadership,
    pub cluster: Arc<Cluster>,
    pub watcher: Watcher,
    pub current: CurrentSnapshot,
    pub settings: watch::Receiver<ControllerSettings>,
    pub metrics: ControllerMetrics,
    pub recorder: Recorder,
    pub learner: Arc<Learner>,
    /// Returns whether all pools of the cluster have been read. Before that, a pool may have more platforms than is
    /// known.
    pub is_discovered: Arc<dyn Fn() -> bool + Send + Sync>,
    pub state: Reported,
}

impl Context {
    /// Runs `work` while this replica leads and the settings enable it, and restarts it when they change. Afterwards no
    /// fault remains.
    pub(super) async fn lead(
        &self,
        is_on: fn(&ControllerSettings) -> bool,
        work: impl AsyncFn(&Self),
    ) {
        let mut settings = self.settings.clone();
        loop {
            let while_on = async {
                let on = settings.wait_for(is_on).await.map(|on| on.clone());
                // Without a sender, at the end of the process, nothing enables the work.
                let Ok(on) = on else { return pending().await };
                tokio::select! {
                    // Boxed, as each enclosing future would reserve space for it twice.
                    () = Box::pin(work(self)) => {}
                    Ok(_) = settings.wait_for(|new| *new != on) => {}
                }
            };
            self.leadership.lead(while_on).await;
            self.state.set(State::Healthy);
        }
    }

    /// Sets a fault and logs its cause, or clears the fault.
    pub(super) fn report(&self, fault: &'static str, cause: Option<ClusterError>) {
        if let Some(error) = cause {
            tracing::error!(%error, "{fault}");
        }
        self.state.set_fault(fault, cause.is_some());
    }

    /// Sets a fault if the change is a failure of the watch, and clears the fault at the end of a list.
    pub(super) fn report_watch_state<K>(&self, fault: &'static str, change: &Change<K>) {
        match change {
            Change::Failed(error) => self.report(fault, Some(*error)),
            Change::Complete => self.report(fault, None),
            _ => {}
        }
    }

    /// Sets or clears the fault of a missing right, by the answer to a request that needs the right.
    pub(super) fn check_right<T>(
        &self,
        fault: &'static str,
        answer: Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        match &answer {
            Err(ClusterError::Forbidden | ClusterError::Unauthorized) => {
                self.state.set_fault(fault, true);
            }
            // An overloaded API server has not checked the right.
            Err(ClusterError::Timeout | ClusterError::Unreachable | ClusterError::Status) => {}
            _ => self.state.set_fault(fault, false),
        }
        answer
    }

    /// Learns from a change of a Pod whether its owner deletes changed Pods.
    pub(super) fn detect_recreation(&self, change: &Change<StoredPod>) {
        let Change::Applied(pod) = change else { return };
        let ControllerSettings { learn, events, .. } = *self.settings.borrow();
        if !learn {
            return;
        }
        let Some(owner) = self.learner.recreations.lock().take(pod) else {
            return;
        };
        self.learner.learn(Lesson::Owner(owner));
        if events && let Some(owner) = pod.controller() {
            let event = ObjectEvent::on_owner(pod, owner.clone(), OWNER_RECREATES);
            self.recorder.record(event, || RECREATES.to_owned());
        }
    }
}

/// Result of a change of an object; `None` if it was not tried, as another replica leads or too many changes wait.
pub(super) type Written = Option<Result<(), ClusterError>>;

/// Limits on concurrent changes, of which four may be in one namespace. A slow API server gets fewer changes a second,
/// so that other clients do not wait. A namespace whose changes are slow leaves more than half of the limit to the
/// others.
const AT_ONCE: Capacity = Capacity {
    all: 10,
    per_host: 10,
    waiting: 1024,
};

/// Client that changes objects at a limited rate, while this replica leads.
pub(super) struct Writer<'a> {
    pub(super) context: &'a Context,
    pace: Pace,
    limit: ConcurrencyLimit,
}

impl<'a> Writer<'a> {
    pub(super) fn new(context: &'a Context, pace: Pace) -> Self {
        Self {
            context,
            pace,
            limit: ConcurrencyLimit::new(AT_ONCE),
        }
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
        let Context {
            leadership,
            cluster,
            ..
        } = self.context;
        if leadership.holds() {
            Some(cluster.patch(path, r#type, patch).await)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use futures_util::stream::{FuturesUnordered, StreamExt};
    use futures_util::{FutureExt, poll};
    use serde_json::json;

    use super::*;
    use crate::testing::context;
    use tolerarch_engine::decide::testing::TestEngine;
    use tolerarch_kubernetes::cluster::testing::{Lists, Objects};

    #[tokio::test]
    async fn changed_settings_restart_the_work_and_clear_faults() {
        let bench = TestEngine::new().await;
        let lists = Lists::start().await;
        let objects = Objects::start().await;
        let settings = watch::Sender::new(ControllerSettings {
            learn: false,
            ..ControllerSettings::default()
        });
        let context = context(&bench, &lists, &objects, &settings);
        let begun = &Cell::new(0);
        let work = async |context: &Context| {
            begun.set(begun.get() + 1);
            context.state.set_fault("a fault", true);
            pending::<()>().await;
        };
        let mut lead = pin!(context.lead(|on| on.learn, work));
        let mut after = async |change: fn(&mut ControllerSettings)| {
            settings.send_modify(change);
            assert!(poll!(lead.as_mut()).is_pending());
            (begun.get(), context.state.has("a fault"))
        };
        assert_eq!(after(|_| {}).await, (0, false), "it is off");
        assert_eq!(after(|settings| settings.learn = true).await, (1, true));
        assert_eq!(after(|_| {}).await, (1, true), "nothing has changed");
        assert_eq!(after(|settings| settings.events = false).await, (2, true));
        assert_eq!(after(|settings| settings.learn = false).await, (2, false));
    }

    #[tokio::test]
    async fn changes_are_limited_and_namespaces_do_not_block_each_other() {
        let bench = TestEngine::new().await;
        let lists = Lists::start().await;
        let objects = Objects::start().await;
        let context = context(
            &bench,
            &lists,
            &objects,
            &watch::Sender::new(ControllerSettings::default()),
        );
        let writer = Writer::new(&context, Pace::new(1000, 1000));
        let path = "/api/v1/pods";
        let kind = PatchType::JSON;
        let patch = &json!({});
        let [busy, other] = ["busy", "other"].map(Tenant::of);
        let mut all: FuturesUnordered<_> = (0..64)
            .map(|_| writer.patch(&busy, path, kind, patch))
            .collect();
        assert!(poll!(all.next()).is_pending());
        let permit = writer.limit.queue(&busy, "").unwrap();
        assert!(permit.now_or_never().is_none(), "the others wait");
        // The changes of the first namespace keep their permits.
        assert!(writer.patch(&other, path, kind, patch).await.is_some());
        assert!(objects.requests() <= 1 + 4, "{}", objects.requests());
        while all.next().await.is_some() {}
        assert_eq!(objects.requests(), 1 + 64);
    }
}
