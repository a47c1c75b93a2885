//! Census: requested resources of all Pods, by the platforms that their images support. Pods are listed page by page,
//! and only sums stay in memory.

use std::collections::{BTreeMap, HashMap};

use futures_util::stream::{self, Stream, StreamExt};
use scopeguard::guard;
use tokio::time::{Duration, Instant, sleep};

use super::loops::Context;
use super::{ControllerMetrics, ControllerSettings};
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY};
use tolerarch_engine::census::{Count, Coverage, NamespaceSettings};
use tolerarch_engine::decide::{BatchLimits, Snapshot};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_kubernetes::cluster::{
    Change, ClusterError, Namespace, ObjectName, Scope, StoredPod,
};

/// Maximum number of concurrent lookups: few, so that lookups of the webhook and pulls of nodes take precedence.
const LOOKUPS: usize = 16;
/// Maximum number of concurrent lookups at one registry.
const OF_REGISTRY: usize = 2;
/// Timeout of one lookup.
const TIME: Duration = Duration::from_secs(10);
/// Maximum number of shapes that wait for lookups; each takes a few kilobytes.
const SHAPES: usize = 256;
/// Time in which a census begins lookups. Images that are not cached after this time count as unknown.
const LOOKUP_TIME: Duration = Duration::from_secs(30 * 60);
/// Pause before a failed census is tried again.
const RETRY: Duration = Duration::from_secs(30);

const UNCOUNTED: &str = "the cluster's Pods cannot be counted";

/// Labels of namespaces, and their names in metrics.
const LABELS: [(&str, &str); 2] = [(MODE_KEY, "mode"), (PROFILE_KEY, "profile")];

pub(super) async fn work(context: &Context) {
    let mut settings = context.settings.clone();
    let ControllerSettings {
        census: period,
        webhook_configurations,
        ..
    } = settings.borrow().clone();
    // Another replica may export the census next.
    let _cleared = guard(&context.metrics, ControllerMetrics::clear_census);
    loop {
        settings.mark_unchanged();
        let counted = count(context, &webhook_configurations).await;
        context.report(UNCOUNTED, counted.err());
        let pause = match counted {
            Ok(()) => period,
            Err(_) => RETRY.min(period),
        };
        tokio::select! {
            () = sleep(pause) => {}
            // The settings are sent with each reload, which may also change decisions.
            Ok(()) = settings.changed() => {}
        }
    }
}

/// Sums up all Pods, counts namespaces with ignored labels, and exports both.
async fn count(context: &Context, configurations: &[ObjectName]) -> Result<(), ClusterError> {
    let watcher = &context.watcher;
    // Pods are counted by the profile with which the API server calls the webhook.
    let scope = Scope::read(&context.cluster, configurations).await?;
    let add_namespace = |namespaces: &mut BTreeMap<_, _>, Namespace { metadata }| {
        namespaces.insert(metadata.name, metadata.labels);
    };
    let namespaces = sum(watcher.follow(None), add_namespace).await?;
    let no_labels = BTreeMap::new();
    let add_pod = |counted: &mut Count, pod: StoredPod| {
        let of_namespace = namespaces.get(pod.namespace()).unwrap_or(&no_labels);
        let called = scope.called(of_namespace, &pod.metadata.labels);
        counted.add(pod, called);
    };
    let counted = sum(watcher.follow(Some(StoredPod::LIVE)), add_pod).await?;
    let coverages = judge(&counted, &context.current.load_full()).await;
    let ignored = LABELS.map(|(key, name)| {
        let mut count = 0;
        for labels in namespaces.values() {
            count += i64::from(scope.ignores(labels, key));
        }
        (name, count)
    });
    let totals = counted.totals(&coverages);
    let pods = totals.other.pods;
    if pods > 0 {
        tracing::warn!(
            pods,
            "there are too many different Pods to look up the images of all: these count as other"
        );
    }
    context.metrics.show_census(&totals, ignored);
    Ok(())
}

/// Looks up the platforms that the images of each shape support.
async fn judge(counted: &Count, snapshot: &Snapshot) -> Vec<Coverage> {
    let settings = LookupSettings {
        // No review waits for these lookups.
        budget: Duration::ZERO,
        timeout: TIME,
        concurrency: LOOKUPS,
        per_registry: OF_REGISTRY,
    };
    let limits = &BatchLimits::new(&settings).until(Instant::now() + LOOKUP_TIME);
    // The stream is over indexes: a closure over references to shapes would not be general enough for a task.
    let order = in_turns(counted.shapes.iter().map(|shape| &*shape.namespace));
    let judged = stream::iter(order).map(|index| async move {
        let shape = &counted.shapes[index];
        let settings = NamespaceSettings {
            profile: shape.profile.as_deref(),
            ..NamespaceSettings::default()
        };
        let examined = shape.examine(snapshot, limits, settings).await;
        ShapeCoverage {
            index,
            coverage: Coverage::of(&examined).0,
        }
    });
    let mut judged = judged.buffer_unordered(SHAPES);
    let mut coverages = vec![Coverage::Unknown; counted.shapes.len()];
    while let Some(ShapeCoverage { index, coverage }) = judged.next().await {
        coverages[index] = coverage;
    }
    coverages
}

/// The platforms that the images of a shape support.
struct ShapeCoverage {
    /// Index of the shape.
    index: usize,
    coverage: Coverage,
}

/// Returns the indexes of the items so that namespaces take turns: the first item of each namespace, then the second
/// ones, and so on. A namespace with many lookups at registries that hang does not delay the others.
fn in_turns<'n>(namespaces: impl Iterator<Item = &'n str>) -> Vec<usize> {
    let mut counts = HashMap::<&str, usize>::new();
    let mut turns = BTreeMap::<usize, Vec<usize>>::new();
    for (index, namespace) in namespaces.enumerate() {
        let turn = counts.entry(namespace).or_default();
        turns.entry(*turn).or_default().push(index);
        *turn += 1;
    }
    turns.into_values().flatten().collect()
}

/// Sums up all objects of a list.
async fn sum<K, T: Default>(
    mut changes: impl Stream<Item = Change<K>> + Unpin,
    mut add: impl FnMut(&mut T, K),
) -> Result<T, ClusterError> {
    let mut all = T::default();
    while let Some(change) = changes.next().await {
        match change {
            Change::Begins => all = T::default(),
            Change::Listed(object) => add(&mut all, object),
            Change::Complete => return Ok(all),
            Change::Failed(error) => return Err(error),
            // The watch begins only after the list. An unreadable object is missing in the sums.
            Change::Unread(_) | Change::Applied(_) | Change::Deleted(_) => {}
        }
    }
    Err(ClusterError::Unreachable)
}

#[cfg(test)]
mod tests;
