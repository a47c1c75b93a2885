//! Census: sums of the Pods that could run on every platform. Pods are listed page by page, and only sums are kept.

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

/// Maximum number of lookups at a time, in all and at one registry, so that lookups of the webhook and pulls of nodes come
/// first.
const LOOKUPS: usize = 16;
const OF_REGISTRY: usize = 2;
/// Time for one lookup.
const TIME: Duration = Duration::from_secs(10);
/// Maximum number of shapes that wait for lookups; each takes a few kilobytes.
const SHAPES: usize = 256;
/// Time from which a census begins no more lookups: what is not cached by then counts as unknown.
const LOOKING: Duration = Duration::from_secs(30 * 60);
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
    // If any replica exports the census later, it may be another one.
    let _cleared = guard(&context.metrics, ControllerMetrics::clear_census);
    loop {
        settings.mark_unchanged();
        let counted = count(context, &webhook_configurations).await;
        context.report(UNCOUNTED, counted.err());
        tokio::select! {
            () = sleep(if counted.is_ok() { period } else { RETRY.min(period) }) => {}
            // They come with each reload, which may change what is decided.
            Ok(()) = settings.changed() => {}
        }
    }
}

/// Sums up all Pods, counts namespaces with ignored labels, and exports both.
async fn count(context: &Context, configurations: &[ObjectName]) -> Result<(), ClusterError> {
    let watcher = &context.watcher;
    // Pods are counted by the profile with which the webhook is called for them.
    let scope = Scope::read(&context.cluster, configurations).await?;
    let add = |namespaces: &mut BTreeMap<_, _>, Namespace { metadata }| {
        namespaces.insert(metadata.name, metadata.labels);
    };
    let namespaces = sum(watcher.follow(None), add).await?;
    let no_labels = BTreeMap::new();
    let add = |counted: &mut Count, pod: StoredPod| {
        let of_namespace = namespaces.get(pod.namespace()).unwrap_or(&no_labels);
        let called = scope.called(of_namespace, &pod.metadata.labels);
        counted.add(pod, called);
    };
    let counted = sum(watcher.follow(Some(StoredPod::LIVE)), add).await?;
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
            "there are too many different Pods to look at all of them: these count as other"
        );
    }
    context.metrics.show_census(&totals, ignored);
    Ok(())
}

/// Returns what the images of each shape support.
async fn judge(counted: &Count, snapshot: &Snapshot) -> Vec<Coverage> {
    let settings = LookupSettings {
        // No review waits for these lookups.
        budget: Duration::ZERO,
        timeout: TIME,
        concurrency: LOOKUPS,
        per_registry: OF_REGISTRY,
    };
    let limits = &BatchLimits::new(&settings).until(Instant::now() + LOOKING);
    // Indexes, as a closure over references to the shapes would not be general enough for a task.
    let order = in_turns(counted.shapes.iter().map(|shape| &*shape.namespace));
    let judged = stream::iter(order).map(|place| async move {
        let shape = &counted.shapes[place];
        let settings = NamespaceSettings {
            profile: shape.profile.as_deref(),
            ..NamespaceSettings::default()
        };
        let examined = shape.examine(snapshot, limits, settings).await;
        Judged {
            place,
            coverage: Coverage::of(&examined).0,
        }
    });
    let mut judged = judged.buffer_unordered(SHAPES);
    let mut coverages = vec![Coverage::Unknown; counted.shapes.len()];
    while let Some(Judged { place, coverage }) = judged.next().await {
        coverages[place] = coverage;
    }
    coverages
}

/// What the images of a shape support.
struct Judged {
    place: usize,
    coverage: Coverage,
}

/// Returns the places of the namespaces, the first one of each, then the second ones and so on: lookups of one that has
/// many, at registries that hang, take no time of the others.
fn in_turns<'n>(namespaces: impl Iterator<Item = &'n str>) -> Vec<usize> {
    let mut counts = HashMap::<&str, usize>::new();
    let mut turns = BTreeMap::<usize, Vec<usize>>::new();
    for (place, namespace) in namespaces.enumerate() {
        let turn = counts.entry(namespace).or_default();
        turns.entry(*turn).or_default().push(place);
        *turn += 1;
    }
    turns.into_values().flatten().collect()
}

/// Adds up all objects of a list.
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
            // Nothing is watched before the list is complete, and an unreadable object is only missing in the sums.
            Change::Unread(_) | Change::Applied(_) | Change::Deleted(_) => {}
        }
    }
    Err(ClusterError::Unreachable)
}

#[cfg(test)]
mod tests;
