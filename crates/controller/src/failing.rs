//! Pods that fail because of their node's architecture: an image has a program for another architecture, or no entry
//! for the node's platform. Events report the failure, and a record of it keeps Pods with the image from such nodes.
//! Where a program of the node is for another architecture, events say so, and nothing is recorded of the image.
//!
//! Of all Pods only those with a failure are kept, until they have been examined.

use std::collections::HashMap;
use std::time::SystemTime;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::de::IgnoredAny;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval};

use super::ControllerSettings;
use super::container_failure::{Blame, ContainerFailure, failures};
use super::evictor::{self, Evictor, NO_EVICTIONS};
use super::exec_format::names_own_program;
use super::fair_queue::FairQueue;
use super::loops::Context;
use super::note::{
    NODE_PROGRAM_FAILED, WRONG_ARCHITECTURE, is_claimed, kept, program_failed, wrong,
};
use super::pace::Pace;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{Kept, Purpose, Usage};
use tolerarch_core::policy::Mode;
use tolerarch_engine::census::NamespaceSettings;
use tolerarch_engine::decide::{self, Wait};
use tolerarch_engine::lessons::{Evidence, FailedImage, Lesson, node_id};
use tolerarch_kubernetes::cluster::{
    Change, ClusterError, Namespace, Node, ObjectEvent, StoredPod,
};
use tolerarch_support::recently::Recently;

/// Field selector of Pods on nodes that have not succeeded.
const PODS: &str = "spec.nodeName!=,status.phase!=Succeeded";
/// Number of failing Pods that wait to be examined: 32 MiB at most.
const QUEUE: usize = 512;
/// Maximal bytes of a Pod's facts for a decision; most Pods have some 3 KiB.
const POD: usize = 64 << 10;
/// Time for which an examined Pod is remembered, and the number of remembered Pods.
const LOOKED: (Duration, usize) = (Duration::from_secs(3600), 1 << 14);
/// Examinations per second, and their burst.
const PER_SECOND: u32 = 5;
const BURST: u32 = 20;
/// Concurrent examinations, in all and of one namespace: 4 MiB at most. Those of a namespace whose registries hang take
/// as long as its lookups, so it takes 32 such namespaces for all places.
const LOOKS: usize = 64;
const OF_NAMESPACE: usize = 2;
/// Time for the lookups of a Pod: beyond that of one lookup by default, so that its own outcome is seen.
const LOOKUPS: Duration = Duration::from_secs(12);

const PODS_UNREAD: &str = "the Pods on nodes cannot be read";
const NO_NAMESPACES: &str = "the right to get namespaces is missing";
const NO_NODES: &str = "the right to get nodes is missing";
const NO_LOGS: &str = "the right to get pods/log is missing";
/// Requests that show whether a missing right has been granted; an object of this name need not exist.
const RIGHTS: [(&str, &str); 3] = [
    (NO_NAMESPACES, "/api/v1/namespaces/default"),
    (NO_NODES, "/api/v1/nodes/default"),
    (NO_LOGS, "/api/v1/namespaces/default/pods/default/log"),
];
/// Time between these requests.
const TRY: Duration = Duration::from_secs(60);

/// Result of the examination of a Pod.
#[derive(Default)]
struct Look {
    /// True if everything needed is known.
    is_settled: bool,
    /// Failure that has been recorded, unless nothing is to be done about the Pod: it is only observed.
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
    let mut waiting = FairQueue::new(QUEUE);
    let mut looked = Recently::new(LOOKED.0, LOOKED.1);
    let mut evictor = Evictor::new(context);
    let pace = Pace::new(PER_SECOND, BURST);
    let mut tries = interval(TRY);
    tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = FuturesUnordered::new();
    let mut busy = HashMap::<String, usize>::new();
    loop {
        let has_place = |namespace: &str| busy.get(namespace).is_none_or(|own| *own < OF_NAMESPACE);
        let is_next = looks.len() < LOOKS && waiting.has_any(has_place);
        tokio::select! {
            Some(change) = changes.next() => {
                context.tell(PODS_UNREAD, &change);
                context.see(&change);
                if let Change::Listed(pod) | Change::Applied(pod) = change
                    && let Some((pod, failures)) = failing(context, pod)
                    && looked.insert(pod.uid())
                {
                    let namespace = pod.namespace().to_owned();
                    if let Some((dropped, _)) = waiting.push(&namespace, (pod, failures)) {
                        looked.remove(dropped.uid());
                    }
                }
            }
            Some(done) = looks.next() => {
                let (pod, look): (StoredPod, Result<Look, ClusterError>) = done;
                end(&mut busy, pod.namespace());
                let look = look.unwrap_or_else(|error| {
                    tracing::debug!(%error, "a Pod that does not run cannot be looked at");
                    Look::default()
                });
                if !look.is_settled {
                    // The Pod is examined again when it changes, as it does when its container is restarted.
                    looked.remove(pod.uid());
                }
                if let Some(failed) = look.failed
                    && context.settings.borrow().evict_failed
                {
                    evictor.begin(pod, failed.digest);
                }
            }
            Some(()) = evictor.running.next() => {}
            // Who is next is found out only then, so that namespaces take turns, however many have come before.
            () = pace.due(), if is_next => {
                if let Some((pod, failures)) = waiting.pop_of(has_place) {
                    pace.take();
                    *busy.entry(pod.namespace().to_owned()).or_default() += 1;
                    looks.push(async move {
                        let look = look(context, &pod, &failures).await;
                        (pod, look)
                    });
                }
            }
            _ = tries.tick() => try_again(context).await,
        }
    }
}

/// Counts one examination of the namespace less.
fn end(busy: &mut HashMap<String, usize>, namespace: &str) {
    if let Some(own) = busy.get_mut(namespace) {
        *own = own.saturating_sub(1);
    }
    busy.retain(|_, own| *own > 0);
}

/// Returns the Pod and its failures, if it has any that can be examined.
fn failing(context: &Context, mut pod: StoredPod) -> Option<(StoredPod, Vec<ContainerFailure>)> {
    let mut failures = failures(&pod, SystemTime::now());
    if !context.settings.borrow().pod_logs {
        failures.retain(|failure| failure.in_log.is_none());
    }
    // Only fields that are still needed are kept.
    pod.containers = Vec::new();
    pod.metadata.labels.clear();
    let is_small = pod.facts.as_ref().is_some_and(|facts| facts.held() <= POD);
    (is_small && !failures.is_empty()).then_some((pod, failures))
}

/// Finds out whether an image does not run on the node, and reports it.
async fn look(
    context: &Context,
    pod: &StoredPod,
    failures: &[ContainerFailure],
) -> Result<Look, ClusterError> {
    let mut look = Look {
        is_settled: true,
        failed: None,
    };
    let (Some(facts), Some(node)) = (&pod.facts, &pod.node) else {
        return Ok(look);
    };
    let path = format!("/api/v1/namespaces/{}", pod.namespace());
    let namespace = context
        .check_right(NO_NAMESPACES, context.cluster.get::<Namespace>(&path).await)?
        .object;
    let terms = NamespaceSettings::of(Some(&namespace.metadata.labels), false);
    if terms.is_opted_out {
        return Ok(look);
    }
    let path = format!("{}/{node}", Node::PATH);
    let node = context
        .check_right(NO_NODES, context.cluster.get::<Node>(&path).await)?
        .object;
    if node.os == "windows" {
        return Ok(look);
    }
    let snapshot = context.current.load_full();
    let policy = snapshot.policy_for(terms.profile);
    let is_enforced = policy.is_some_and(|policy| policy.mode_for(facts) == Mode::Enforce);
    // Other images are not looked up: a Pod may name 64.
    let mut usages = facts.images();
    usages.retain(|Usage { given, purpose, .. }| {
        *purpose == Purpose::Run && failures.iter().any(|failure| failure.is_of_image(given))
    });
    let policy = policy.unwrap_or(&snapshot.policy);
    let end = Instant::now() + LOOKUPS;
    let mut images = Vec::new();
    // One after the other, so that a Pod takes no more of what namespaces share.
    for usage in &usages {
        if Instant::now() >= end {
            break;
        }
        let wait = Wait::Until(end);
        let one = std::slice::from_ref(usage);
        let lookup = snapshot.look_up(policy, pod.namespace(), facts, one, wait, |_| false);
        if let Some(looked_up) = decide::caught(lookup).await {
            images.extend(looked_up.images);
        }
    }
    let ControllerSettings { events, learn, .. } = *context.settings.borrow();
    for failure in failures {
        let ContainerFailure {
            container,
            image,
            evidence,
            in_log,
            ..
        } = failure;
        if let Blame::Node(message) = &failure.blame {
            context.metrics.node_program_failures.inc();
            if events {
                report_node(context, pod, &node, message);
            }
            continue;
        }
        // Platforms by the manifest, whether or not the image has failed there.
        let mut known = images.iter().filter(|known| known.given == image);
        let platforms = known.find_map(|known| known.support.ok()?.runs_on());
        let is_claimed = is_claimed(platforms, &node.architecture);
        // Without the image's platforms the message could not name the cause.
        if *evidence != Evidence::NoMatchForPlatform && is_claimed.is_none() {
            look.is_settled = false;
            continue;
        }
        if let Some(previous) = *in_log {
            let line = context.cluster.last_line(pod, container, previous).await;
            if !names_own_program(&context.check_right(NO_LOGS, line)?) {
                continue;
            }
        }
        let is_known = !PlatformSet::of_architecture(&node.architecture).is_empty();
        // An image that lacks the platform by its manifest is not eligible there anyway.
        let digest = failure
            .digest
            .filter(|_| learn && is_known && is_claimed != Some(false));
        let nodes = match failure.blame {
            Blame::Image => vec![node_id(node.name())],
            Blame::ImageOrPod | Blame::Node(_) => Vec::new(),
        };
        let failed = digest.map(|digest| FailedImage {
            digest,
            architecture: node.architecture.clone(),
            evidence: *evidence,
            namespace: pod.namespace().to_owned(),
            nodes,
        });
        let kept = failed.as_ref().map(kept).unwrap_or_default();
        if events {
            let note = || wrong(failure, &node, platforms) + &kept;
            context
                .recorder
                .record(ObjectEvent::on(pod, WRONG_ARCHITECTURE), note);
        }
        if let Some(failed) = failed {
            context.learner.learn(Lesson::Image(failed.clone()));
            look.failed = Some(failed).filter(|_| is_enforced);
        }
    }
    Ok(look)
}

/// Reports a program of the node that could not be run, on the Pod and on the node.
fn report_node(context: &Context, pod: &StoredPod, node: &Node, message: &str) {
    for event in [
        ObjectEvent::on(pod, NODE_PROGRAM_FAILED),
        ObjectEvent::on_node(node, NODE_PROGRAM_FAILED),
    ] {
        context
            .recorder
            .record(event, || program_failed(node, message));
    }
}

/// Finds out which missing rights have been granted, even if no Pod needs them any more.
async fn try_again(context: &Context) {
    // Of the answers only the errors matter.
    for (what, path) in RIGHTS {
        if context.state.has(what) {
            let _ = context.check_right(what, context.cluster.get::<IgnoredAny>(path).await);
        }
    }
    if context.state.has(NO_EVICTIONS) {
        let _ = context.check_right(NO_EVICTIONS, evictor::try_one(&context.cluster).await);
    }
}

#[cfg(test)]
mod tests;
