//! Census: sums of the Pods that could run on every platform. Pods are listed page by page, and only sums are kept.

use std::collections::BTreeMap;

use futures_util::stream::{self, Stream, StreamExt};
use prometheus::{GaugeVec, IntGaugeVec};
use tokio::time::{Duration, sleep};

use super::ControllerSettings;
use super::loops::{Context, lookup_limits, while_on};
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY};
use tolerarch_engine::census::{Amount, Count, Coverage, NamespaceSettings, Totals};
use tolerarch_engine::decide::Current;
use tolerarch_kubernetes::cluster::{
    Called, Change, Cluster, ClusterError, Namespace, ObjectName, Scope, StoredPod, Watcher,
};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::metrics::{Metrics, OTHER};

/// Maximal number of shapes looked up at a time, so that lookups of the webhook and pulls of nodes come first.
const LOOKUPS: usize = 8;
/// Maximal number of shapes that wait for lookups; each takes a few kilobytes.
const SHAPES: usize = 256;
const RETRY: Duration = Duration::from_secs(30);

/// Labels of namespaces, and their names in metrics.
const LABELS: [(&str, &str); 2] = [(MODE_KEY, "mode"), (PROFILE_KEY, "profile")];

pub struct CensusLoop {
    pub context: Context,
    pub metrics: CensusMetrics,
    pub state: Reported,
}

impl CensusLoop {
    pub async fn run(&mut self) {
        loop {
            let is_on = |settings: &ControllerSettings| !settings.census.is_zero();
            self.context.leadership.lead(while_on(&self.context.settings, is_on, self.work())).await;
            // If any replica exports the census now, it is another one.
            self.metrics.clear();
            self.state.set(State::Healthy);
        }
    }

    async fn work(&self) {
        let Self { context: Context { cluster, watcher, current, .. }, metrics, state } = self;
        let mut settings = self.context.settings.clone();
        loop {
            let ControllerSettings { census: period, webhook_configurations, .. } =
                settings.borrow_and_update().clone();
            let pause = match count(cluster, watcher, current, &webhook_configurations).await {
                Ok((totals, ignored)) => {
                    if totals.other.pods > 0 {
                        let pods = totals.other.pods;
                        tracing::warn!(
                            pods,
                            "there are too many different Pods to look at all of them: these count as other"
                        );
                    }
                    metrics.show(&totals, ignored);
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
                // The sender lives as long as the process.
                _ = settings.changed() => {}
            }
        }
    }
}

/// Sums up all Pods, and counts namespaces with ignored labels.
async fn count(
    cluster: &Cluster,
    watcher: &Watcher,
    current: &Current,
    configurations: &[ObjectName],
) -> Result<(Totals, [i64; 2]), ClusterError> {
    // Pods are counted by the profile with which the webhook is called for them.
    let scope = Scope::read(cluster, configurations).await?;
    let mut namespaces = BTreeMap::new();
    let of_namespaces = listed(watcher.follow::<Namespace>(None), |namespace| match namespace {
        Some(Namespace { metadata }) => {
            namespaces.insert(metadata.name, metadata.labels);
        }
        None => namespaces.clear(),
    });
    of_namespaces.await?;
    let (mut added, no_labels) = (Count::default(), BTreeMap::new());
    let pods =
        listed(watcher.follow::<StoredPod>(Some(StoredPod::LIVE)), |pod: Option<StoredPod>| match pod {
            Some(pod) => {
                let of_namespace = namespaces.get(pod.namespace()).unwrap_or(&no_labels);
                match scope.called(of_namespace, &pod.metadata.labels) {
                    Called::For(profile) => added.add(pod, true, profile),
                    Called::Unknown => added.add(pod, true, None),
                    Called::No => added.add(pod, false, None),
                }
            }
            None => added = Count::default(),
        });
    pods.await?;

    let snapshot = current.load_full();
    let limits = &lookup_limits(LOOKUPS);
    // Indexes, as a closure over references to the shapes would not be general enough for a task.
    let (added, snapshot) = (&added, &snapshot);
    let judged = stream::iter(0..added.shapes.all.len()).map(|place| async move {
        let shape = &added.shapes.all[place];
        let terms = NamespaceSettings { profile: shape.profile.as_deref(), ..NamespaceSettings::default() };
        shape.judge(snapshot, limits, terms).await.coverage
    });
    let coverages: Vec<Coverage> = judged.buffered(SHAPES).collect().await;
    let all = || namespaces.values();
    let ignored = LABELS.map(|(key, _)| all().map(|labels| i64::from(scope.ignores(labels, key))).sum());
    Ok((added.totals(&coverages), ignored))
}

/// Passes all objects of a list to `take`, and `None` when the list begins: objects before that no longer count.
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
            // Nothing is watched before the list is complete, and an unreadable object is only missing in the sums.
            Change::Unread(_) | Change::Applied(_) | Change::Deleted(_) => {}
        }
    }
    Err(ClusterError::Unreachable)
}

#[derive(Clone)]
pub struct CensusMetrics {
    cpu: GaugeVec,
    memory: IntGaugeVec,
    workloads: IntGaugeVec,
    ignored: IntGaugeVec,
}

impl CensusMetrics {
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
            ignored: metrics.gauges(
                "tolerarch_cluster_ignored_labels",
                "Namespaces with a label tolerarch.io/mode or tolerarch.io/profile whose value makes no difference.",
                &["label"],
            )?,
        })
    }

    pub fn show(&self, totals: &Totals, ignored: [i64; 2]) {
        for ((_, label), namespaces) in LABELS.into_iter().zip(ignored) {
            self.ignored.with_label_values(&[label]).set(namespaces);
        }
        let shown = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let show = |support: &str, amount: &Amount| {
            self.cpu.with_label_values(&[support]).set(amount.cpu_cores());
            self.memory.with_label_values(&[support]).set(shown(amount.memory_bytes));
        };
        for (coverage, (amount, workloads)) in &totals.of {
            show(coverage.as_str(), amount);
            self.workloads.with_label_values(&[coverage.as_str()]).set(shown(*workloads));
        }
        show(OTHER, &totals.other);
    }

    fn clear(&self) {
        self.ignored.reset();
        self.cpu.reset();
        self.memory.reset();
        self.workloads.reset();
    }
}

#[cfg(test)]
mod tests;
