//! Pods that fail because of their node's architecture.
//!
//! An image may have a program for another architecture, or no entry for the node's platform. Events report the
//! failure, and a record of it keeps Pods with the image from such nodes. If a program of the node is for another
//! architecture, events report that, and nothing is recorded about the image.
//!
//! Only Pods with a failure stay in memory, until they have been examined.

use std::collections::HashMap;
use std::time::SystemTime;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use super::ControllerSettings;
use super::container_failure::{Blame, ContainerFailure, failures};
use super::evictor::{self, Evictor, NO_EVICTIONS};
use super::exec_format::names_own_program;
use super::fair_queue::FairQueue;
use super::loops::Context;
use super::note::{
    NODE_PROGRAM_FAILED, WRONG_ARCHITECTURE, consequence, is_claimed, program_failed,
    wrong_architecture,
};
use super::pace::Pace;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{Pod, Purpose, Retain, Usage};
use tolerarch_core::policy::{ImageSupport, Mode, Policy};
use tolerarch_engine::census::NamespaceSettings;
use tolerarch_engine::decide::{self, Snapshot, Wait};
use tolerarch_engine::lessons::{Evidence, FailedImage, Lesson, node_id};
use tolerarch_kubernetes::cluster::{
    Change, ClusterError, Namespace, Node, ObjectEvent, StoredPod,
};
use tolerarch_support::recent_work::RecentWork;

/// Field selector of Pods on nodes that have not succeeded.
const PODS: &str = "spec.nodeName!=,status.phase!=Succeeded";
/// Maximum number of failing Pods that wait to be examined: at most 32 MiB.
const QUEUE: usize = 512;
/// Maximum bytes of a Pod's facts for a decision; most Pods have about 3 KiB.
const POD: usize = 64 << 10;
/// Time for which an examined Pod is remembered.
const EXAMINED_TIME: Duration = Duration::from_secs(3600);
/// Maximum number of examined Pods that are remembered.
const EXAMINED_PODS: usize = 1 << 14;
/// Examinations per second.
const PER_SECOND: u32 = 5;
/// Burst of examinations.
const BURST: u32 = 20;
/// Maximum number of concurrent examinations: at most 4 MiB.
const EXAMINATIONS: usize = 64;
/// Maximum number of concurrent examinations in one namespace. Lookups at registries that hang take long, but only 32
/// namespaces with such registries can take all examinations.
const OF_NAMESPACE: usize = 2;
/// Time for the lookups of a Pod: longer than the default timeout of one lookup, so that the lookup ends by itself.
const LOOKUPS: Duration = Duration::from_secs(12);

const PODS_UNREAD: &str = "the Pods on nodes cannot be read";
const NO_NAMESPACES: &str = "the right to get namespaces is missing";
const NO_NODES: &str = "the right to get nodes is missing";
const NO_LOGS: &str = "the right to get pods/log is missing";
/// Requests that show whether a missing right has been granted. The objects need not exist.
const RIGHTS: [(&str, &str); 3] = [
    (NO_NAMESPACES, "/api/v1/namespaces/default"),
    (NO_NODES, "/api/v1/nodes/default"),
    (NO_LOGS, "/api/v1/namespaces/default/pods/default/log"),
];
/// Time between these requests.
const TRY: Duration = Duration::from_secs(60);

type Failures = Vec<ContainerFailure>;

/// Result of the examination of a Pod.
#[derive(Default)]
struct Examination {
    /// Set if the examination need not be repeated.
    is_settled: bool,
    /// Failure that has been recorded; `None` also if the mode of the Pod is only to observe.
    failed: Option<FailedImage>,
}

pub(super) async fn work(context: &Context) {
    tokio::join!(
        follow(context),
        context.learner.keep(&context.leadership, &context.state)
    );
}

async fn follow(context: &Context) {
    let mut changes = context.watcher.follow::<StoredPod>(Some(PODS));
    let mut queue = Queue::new();
    let mut evictor = Evictor::new(context);
    let pace = Pace::new(PER_SECOND, BURST);
    let mut tries = interval(TRY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut examinations = FuturesUnordered::new();
    loop {
        let is_next = examinations.len() < EXAMINATIONS && queue.has_next();
        tokio::select! {
            Some(change) = changes.next() => {
                context.report_watch_state(PODS_UNREAD, &change);
                context.detect_recreation(&change);
                if let Change::Listed(pod) | Change::Applied(pod) = change
                    && let Some((pod, failures)) = failing(context, pod)
                {
                    queue.push(pod, failures);
                }
            }
            Some(done) = examinations.next() => {
                let (pod, result): (StoredPod, Result<Examination, ClusterError>) = done;
                let examination = result.unwrap_or_else(|error| {
                    tracing::debug!(%error, "a failing Pod cannot be examined");
                    Examination::default()
                });
                queue.end(&pod, examination.is_settled);
                if let Some(failed) = examination.failed
                    && context.settings.borrow().evict_failed
                {
                    evictor.begin(pod, failed.digest);
                }
            }
            Some(()) = evictor.running.next() => {}
            // The next Pod is chosen only when it is due, so that namespaces take turns.
            () = pace.due(), if is_next => {
                if let Some((pod, failures)) = queue.pop() {
                    pace.take();
                    examinations.push(async move {
                        let result = examine(context, &pod, &failures).await;
                        (pod, result)
                    });
                }
            }
            _ = tries.tick() => recheck_rights(context).await,
        }
    }
}

/// Failing Pods that wait to be examined.
struct Queue {
    waiting: FairQueue<(StoredPod, Failures)>,
    /// UIDs of Pods that are waiting, being examined, or examined.
    examined: RecentWork,
    /// Number of Pods that are being examined, by namespace.
    busy: HashMap<String, usize>,
}

impl Queue {
    fn new() -> Self {
        Self {
            waiting: FairQueue::new(QUEUE),
            examined: RecentWork::new(EXAMINED_TIME, EXAMINED_PODS),
            busy: HashMap::new(),
        }
    }

    /// Adds a Pod, unless it has been examined.
    fn push(&mut self, pod: StoredPod, failures: Failures) {
        if !self.examined.insert(pod.uid()) {
            return;
        }
        let namespace = pod.namespace().to_owned();
        if let Some((dropped, _)) = self.waiting.push(&namespace, (pod, failures)) {
            self.examined.remove(dropped.uid());
        }
    }

    /// Returns whether a Pod waits in a namespace with fewer than [`OF_NAMESPACE`] examinations.
    fn has_next(&self) -> bool {
        self.waiting.has_any(has_capacity(&self.busy))
    }

    /// Returns the next Pod, and counts its examination.
    fn pop(&mut self) -> Option<(StoredPod, Failures)> {
        let (pod, failures) = self.waiting.pop_of(has_capacity(&self.busy))?;
        *self.busy.entry(pod.namespace().to_owned()).or_default() += 1;
        Some((pod, failures))
    }

    /// Ends the examination of a Pod.
    fn end(&mut self, pod: &StoredPod, is_settled: bool) {
        if let Some(count) = self.busy.get_mut(pod.namespace()) {
            *count = count.saturating_sub(1);
        }
        self.busy.retain(|_, count| *count > 0);
        if !is_settled {
            // The Pod is examined again when it changes, for example by a restart of its container.
            self.examined.remove(pod.uid());
        }
    }
}

/// Returns a condition on namespaces: that they have fewer than [`OF_NAMESPACE`] busy Pods.
fn has_capacity(busy: &HashMap<String, usize>) -> impl Fn(&str) -> bool {
    |namespace| match busy.get(namespace) {
        Some(count) => *count < OF_NAMESPACE,
        None => true,
    }
}

/// Returns the Pod and its failures, if it has failures that can be examined.
fn failing(context: &Context, mut pod: StoredPod) -> Option<(StoredPod, Failures)> {
    let mut failures = failures(&pod, SystemTime::now());
    if !context.settings.borrow().pod_logs {
        failures.retain(|failure| failure.in_log.is_none());
    }
    // Only fields that are still needed stay in memory.
    pod.containers = Vec::new();
    pod.metadata.labels.clear();
    let facts = pod.facts.as_ref()?;
    if failures.is_empty() || facts.held_bytes() > POD {
        return None;
    }
    Some((pod, failures))
}

/// Checks whether an image does not run on the node, and reports it.
async fn examine(
    context: &Context,
    pod: &StoredPod,
    failures: &[ContainerFailure],
) -> Result<Examination, ClusterError> {
    let mut examination = Examination {
        is_settled: true,
        failed: None,
    };
    let (Some(facts), Some(node)) = (&pod.facts, &pod.node) else {
        return Ok(examination);
    };
    let path = format!("/api/v1/namespaces/{}", pod.namespace());
    let namespace: Namespace = get(context, NO_NAMESPACES, &path).await?;
    let settings = NamespaceSettings::of(Some(&namespace.metadata.labels), false);
    if settings.is_opted_out {
        return Ok(examination);
    }
    let node: Node = get(context, NO_NODES, &format!("{}/{node}", Node::PATH)).await?;
    if node.os == "windows" {
        return Ok(examination);
    }
    let snapshot = context.current.load_full();
    let policy = snapshot.policy_for(settings.profile);
    let is_enforced = policy.is_some_and(|policy| policy.mode_for(facts) == Mode::Enforce);
    // Only failed images are looked up: a Pod may name 64 images.
    let mut usages = facts.images();
    usages.retain(|Usage { given, purpose, .. }| {
        *purpose == Purpose::Run && failures.iter().any(|failure| failure.is_of_image(given))
    });
    let policy = policy.unwrap_or(&snapshot.policy);
    let images = look_up(&snapshot, policy, pod.namespace(), facts, &usages).await;
    for failure in failures {
        if let Blame::Node(message) = &failure.blame {
            report_node(context, pod, &node, message);
            continue;
        }
        let platforms = platforms_of(&images, &failure.image);
        // Without the image's platforms the message could not name the cause.
        let has_cause = is_claimed(platforms, &node.architecture).is_some();
        if failure.evidence != Evidence::NoMatchForPlatform && !has_cause {
            examination.is_settled = false;
            continue;
        }
        if !has_evidence(context, pod, failure).await? {
            continue;
        }
        let failed = report_image(context, pod, &node, failure, platforms);
        if is_enforced && failed.is_some() {
            examination.failed = failed;
        }
    }
    Ok(examination)
}

/// Returns the platforms in an image's manifest, whether or not the image has failed there.
fn platforms_of(images: &[ImageSupport<'_>], image: &str) -> Option<PlatformSet> {
    let mut supports = images.iter().filter(|support| support.given == image);
    supports.find_map(|image| image.support.ok()?.runs_on())
}

async fn get<T: DeserializeOwned>(
    context: &Context,
    right: &'static str,
    path: &str,
) -> Result<T, ClusterError> {
    let answer = context.cluster.get(path).await;
    Ok(context.check_right(right, answer)?.object)
}

/// Looks up images one after the other, so that a Pod takes only one lookup of those that namespaces share.
async fn look_up<'a>(
    snapshot: &Snapshot,
    policy: &Policy,
    namespace: &str,
    facts: &Pod<'_>,
    usages: &[Usage<'a>],
) -> Vec<ImageSupport<'a>> {
    let end = Instant::now() + LOOKUPS;
    let mut images = Vec::new();
    for usage in usages {
        if Instant::now() >= end {
            break;
        }
        let wait = Wait::Until {
            deadline: end,
            review: None,
        };
        let one = std::slice::from_ref(usage);
        let lookup = snapshot.look_up(policy, namespace, facts, one, wait, |_| false);
        if let Some(looked_up) = decide::caught(lookup).await {
            images.extend(looked_up.images);
        }
    }
    images
}

/// Returns whether there is evidence for the failure. Reads the container's log if only the log can show evidence.
async fn has_evidence(
    context: &Context,
    pod: &StoredPod,
    failure: &ContainerFailure,
) -> Result<bool, ClusterError> {
    let Some(previous) = failure.in_log else {
        return Ok(true);
    };
    let container = &failure.container;
    let line = context.cluster.last_line(pod, container, previous).await;
    Ok(names_own_program(&context.check_right(NO_LOGS, line)?))
}

/// Reports an image that does not run on the node, and records it. Returns the record.
fn report_image(
    context: &Context,
    pod: &StoredPod,
    node: &Node,
    failure: &ContainerFailure,
    platforms: Option<PlatformSet>,
) -> Option<FailedImage> {
    let ControllerSettings { events, learn, .. } = *context.settings.borrow();
    // An image whose manifest lacks the platform is not eligible anyway.
    let failed = if learn && is_claimed(platforms, &node.architecture) != Some(false) {
        failed_image(failure, pod, node)
    } else {
        None
    };
    if events {
        let consequence = failed.as_ref().map(consequence).unwrap_or_default();
        let event = ObjectEvent::on(pod, WRONG_ARCHITECTURE);
        let note = || wrong_architecture(failure, node, platforms) + &consequence;
        context.recorder.record(event, note);
    }
    if let Some(failed) = &failed {
        context.learner.learn(Lesson::Image(failed.clone()));
    }
    failed
}

/// Returns the record of a failure; `None` if the image or the node's architecture is unknown.
fn failed_image(failure: &ContainerFailure, pod: &StoredPod, node: &Node) -> Option<FailedImage> {
    if PlatformSet::of_architecture(&node.architecture).is_empty() {
        return None;
    }
    let nodes = match failure.blame {
        Blame::Image => vec![node_id(node.name())],
        Blame::ImageOrPod | Blame::Node(_) => Vec::new(),
    };
    Some(FailedImage {
        digest: failure.digest?,
        architecture: node.architecture.clone(),
        evidence: failure.evidence,
        namespace: pod.namespace().to_owned(),
        nodes,
    })
}

/// Reports a program of the node that could not be run, on the Pod and on the node.
fn report_node(context: &Context, pod: &StoredPod, node: &Node, message: &str) {
    context.metrics.node_program_failures.inc();
    if !context.settings.borrow().events {
        return;
    }
    for event in [
        ObjectEvent::on(pod, NODE_PROGRAM_FAILED),
        ObjectEvent::on_node(node, NODE_PROGRAM_FAILED),
    ] {
        context
            .recorder
            .record(event, || program_failed(node, message));
    }
}

/// Clears the faults of missing rights that have been granted, even if no Pod needs these rights any more.
async fn recheck_rights(context: &Context) {
    for (right, path) in RIGHTS {
        if context.state.has(right) {
            let answer = context.cluster.get::<IgnoredAny>(path).await;
            let _ = context.check_right(right, answer);
        }
    }
    if context.state.has(NO_EVICTIONS) {
        let answer = evictor::try_one(&context.cluster).await;
        let _ = context.check_right(NO_EVICTIONS, answer);
    }
}

#[cfg(test)]
mod tests;
