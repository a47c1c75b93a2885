//! The census: how much of the cluster could run on every platform, as gauges. All Pods are listed now and then, page by
//! page, and only what is added up stays, within bounds.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};
use prometheus::{GaugeVec, IntGaugeVec};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::scope::{Called, Scope};
use super::{ControllerSettings, Leadership};
use tolerarch_engine::census::{Amount, Count, NamespaceSettings, Support, Totals};
use tolerarch_engine::decide::{BatchLimits, Current};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_kubernetes::cluster::{
    Change, Cluster, ClusterError, Namespace, ObjectName, Selection, StoredPod, Watcher,
};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::metrics::{Metrics, OTHER};

/// Lookups at a time, in all and of one registry: behind what the webhook asks for, and what nodes pull.
const LOOKUPS: usize = 8;
const OF_REGISTRY: usize = 2;
/// Shapes of Pods that wait for them at a time; each takes a few kilobytes.
const SHAPES: usize = 256;
/// How long a lookup may take in all; no review waits for it.
const LOOKUP_TIME: Duration = Duration::from_secs(10);
/// The pause after a census that failed.
const RETRY: Duration = Duration::from_secs(30);

pub struct CensusLoop {
    /// Whether it may run.
    pub leadership: Leadership,
    /// What reads the webhook configurations.
    pub cluster: Arc<Cluster>,
    /// What lists Pods and namespaces.
    pub watcher: Watcher,
    /// What decides.
    pub current: Current,
    /// How often it is to run.
    pub settings: watch::Receiver<ControllerSettings>,
    /// What it shows.
    pub metrics: CensusMetrics,
    /// How it fares.
    pub state: Reported,
}

impl CensusLoop {
    /// Goes on for ever.
    pub async fn run(&mut self) {
        loop {
            // Ends when another replica may lead.
            self.leadership.lead(self.work(self.settings.clone())).await;
            // Another replica shows them now.
            self.metrics.clear();
            self.state.set(State::Healthy);
        }
    }

    async fn work(&self, mut settings: watch::Receiver<ControllerSettings>) {
        let Self { cluster, watcher, current, metrics, state, .. } = self;
        loop {
            let period = settings.borrow_and_update().census;
            if period.is_zero() {
                metrics.clear();
                // The sender lives as long as the process.
                let _ = settings.changed().await;
                continue;
            }
            let configurations = settings.borrow().webhook_configurations.clone();
            let pause = match count(cluster, watcher, current, &configurations).await {
                Ok(totals) => {
                    if totals.other.pods > 0 {
                        let pods = totals.other.pods;
                        tracing::warn!(
                            pods,
                            "there are too many different Pods to look at all of them: these count as other"
                        );
                    }
                    metrics.show(&totals);
                    state.set(State::Healthy);
                    period
                }
                Err(error) => {
                    tracing::error!(%error, "the cluster's Pods cannot be counted");
                    state.set(State::Degraded("the cluster's Pods cannot be counted"));
                    RETRY.min(period)
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                _ = settings.changed() => {}
            }
        }
    }
}

/// Adds up all Pods that there are.
async fn count(
    cluster: &Cluster,
    watcher: &Watcher,
    current: &Current,
    configurations: &[ObjectName],
) -> Result<Totals, ClusterError> {
    // As the webhook is called, so it is counted.
    let scope = Scope::read(cluster, configurations).await?;
    let mut namespaces = BTreeMap::new();
    let of_namespaces =
        listed(watcher.follow::<Namespace>(Selection::default()), |namespace| match namespace {
            Some(Namespace { metadata }) => {
                namespaces.insert(metadata.name.unwrap_or_default(), metadata.labels.unwrap_or_default());
            }
            None => namespaces.clear(),
        });
    of_namespaces.await?;
    let live = Selection { fields: Some(StoredPod::LIVE.to_owned()), ..Selection::default() };
    let (mut added, no_labels) = (Count::default(), BTreeMap::new());
    let pods = listed(watcher.follow::<StoredPod>(live), |pod: Option<StoredPod>| match pod {
        Some(pod) => {
            let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
            match scope.called(namespaces.get(pod.namespace()).unwrap_or(&no_labels), labels) {
                Called::For(profile) => added.add(pod, true, profile),
                Called::Unknown => added.add(pod, true, None),
                Called::No => added.add(pod, false, None),
            }
        }
        None => added = Count::default(),
    });
    pods.await?;

    let snapshot = current.get();
    let limits = &BatchLimits::new(&LookupSettings {
        budget: Duration::ZERO,
        timeout: LOOKUP_TIME,
        concurrency: 2 * LOOKUPS,
        per_registry: OF_REGISTRY,
    });
    // By their places: a closure over references to them would not be general enough for a task.
    let (added, snapshot) = (&added, &snapshot);
    let judged = stream::iter(0..added.shapes.len()).map(|place| async move {
        let shape = &added.shapes[place];
        let terms = NamespaceSettings { profile: shape.profile.as_deref(), ..NamespaceSettings::default() };
        shape.judge(snapshot, limits, terms).await.support
    });
    let supports: Vec<Support> = judged.buffered(SHAPES).collect().await;
    Ok(added.totals(&supports))
}

/// Takes all objects of a list; `None` where it begins, whatever came before.
async fn listed<K>(
    mut changes: impl Stream<Item = Change<K>> + Unpin,
    mut take: impl FnMut(Option<K>),
) -> Result<(), ClusterError> {
    while let Some(change) = changes.next().await {
        match change {
            Change::Begins => take(None),
            Change::Listed(object) => take(Some(object)),
            Change::Complete => return Ok(()),
            Change::Failed(error) => return Err(error),
            // Nothing is followed before the list is complete; and what cannot be read costs the sums nothing else.
            Change::Unread(_) | Change::Applied(_) | Change::Deleted(_) => {}
        }
    }
    Err(ClusterError::Unreachable)
}

/// What a census shows.
#[derive(Clone)]
pub struct CensusMetrics {
    cpu: GaugeVec,
    memory: IntGaugeVec,
    workloads: IntGaugeVec,
}

impl CensusMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            cpu: metrics.float_gauges(
                "tolerarch_cluster_requested_cpu_cores",
                "CPU that the cluster's Pods request, by what their images support.",
                &["support"],
            )?,
            memory: metrics.gauges(
                "tolerarch_cluster_requested_memory_bytes",
                "Memory that the cluster's Pods request, by what their images support.",
                &["support"],
            )?,
            workloads: metrics.gauges(
                "tolerarch_cluster_workloads",
                "Workloads of the cluster, by what the images of their Pods support.",
                &["support"],
            )?,
        })
    }

    pub fn show(&self, totals: &Totals) {
        let shown = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let show = |support: &str, amount: &Amount| {
            self.cpu.with_label_values(&[support]).set(amount.cpu_cores());
            self.memory.with_label_values(&[support]).set(shown(amount.memory_bytes));
        };
        for (support, (amount, workloads)) in &totals.of {
            show(support.as_str(), amount);
            self.workloads.with_label_values(&[support.as_str()]).set(shown(*workloads));
        }
        show(OTHER, &totals.other);
    }

    /// Shows nothing, as nothing is known.
    fn clear(&self) {
        self.cpu.reset();
        self.memory.reset();
        self.workloads.reset();
    }
}

#[cfg(test)]
mod tests;
