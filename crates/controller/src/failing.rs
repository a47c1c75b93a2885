//! Pods that do not run on their nodes: those whose image has a program for another architecture than it says, and those
//! whose node finds nothing for its platform in an image.
//!
//! Of the Pods of the cluster nothing is kept but those that show a failure, until they were looked at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::{Duration, MissedTickBehavior, interval};

use super::container_failure::{ContainerFailure, Sign, failures, is_exec_format};
use super::fair_queue::FairQueue;
use super::note::{EventReason, Evidence, Place};
use super::pace::Pace;
use super::{ControllerSettings, Leadership, Recorder};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{Pod, Purpose};
use tolerarch_engine::census::NamespaceSettings;
use tolerarch_engine::decide::{self, BatchLimits, Current};
use tolerarch_images::resolver::LookupSettings;
use tolerarch_kubernetes::cluster::{
    Change, Cluster, ClusterError, Namespace, Node, Selection, StoredPod, Watcher, log_path,
};
use tolerarch_support::health::Conditions;
use tolerarch_support::recently::Recently;

/// Pods on nodes that have not ended well.
const PODS: &str = "spec.nodeName!=,status.phase!=Succeeded";
/// Pods with a failure that wait for a look: 32 MiB at most.
const QUEUE: usize = 512;
/// Bytes that a decision takes of one of them; usual ones have some 3 KiB.
const POD: usize = 64 << 10;
/// For how long, and of how many Pods, it is known that they were looked at.
const LOOKED: (Duration, usize) = (Duration::from_secs(3600), 1 << 14);
/// Looks a second, how many at once, and how many at a time.
const PER_SECOND: u32 = 5;
const BURST: u32 = 20;
const LOOKS: usize = 4;
/// Lookups of one registry at a time, and how long one may take in all.
const OF_REGISTRY: usize = 2;
const LOOKUP_TIME: Duration = Duration::from_secs(10);

/// The loop.
pub struct FailingPods {
    /// Whether it may run.
    pub leadership: Leadership,
    /// What reads nodes, namespaces and logs.
    pub cluster: Arc<Cluster>,
    /// What follows Pods.
    pub watcher: Watcher,
    /// What knows images.
    pub current: Current,
    /// What it is to do.
    pub settings: watch::Receiver<ControllerSettings>,
    /// What it tells people by.
    pub recorder: Recorder,
    /// What is wrong.
    pub conditions: Conditions,
}

/// What may be wrong.
const PODS_UNREAD: &str = "the Pods on nodes cannot be read";
const NO_NAMESPACES: &str = "the right to get namespaces is missing";
const NO_NODES: &str = "the right to get nodes is missing";
const NO_LOGS: &str = "the right to get pods/log is missing";
/// How often it is tried whether a right that was missing is there again.
const TRY: Duration = Duration::from_secs(60);

/// Requests for which a right is missing, by what is wrong.
type Denied = Mutex<BTreeMap<&'static str, String>>;

/// A Pod with failures.
struct Failing {
    pod: StoredPod,
    failures: Vec<ContainerFailure>,
}

impl FailingPods {
    /// Goes on for ever.
    pub async fn run(&mut self) {
        loop {
            self.leadership.lead(self.work()).await;
            self.conditions.clear();
        }
    }

    /// Follows Pods while there is something to tell.
    async fn work(&self) {
        let mut settings = self.settings.clone();
        loop {
            // The sender lives as long as the process.
            let _ = settings.wait_for(|settings| settings.events).await;
            tokio::select! {
                () = self.follow() => {}
                _ = settings.wait_for(|settings| !settings.events) => self.conditions.clear(),
            }
        }
    }

    async fn follow(&self) {
        let selection = Selection { fields: Some(PODS.to_owned()), ..Selection::default() };
        let mut changes = self.watcher.follow::<StoredPod>(selection);
        let mut waiting = FairQueue::new(QUEUE);
        let mut looked = Recently::new(LOOKED.0, LOOKED.1);
        let pace = Pace::new(PER_SECOND, BURST);
        let limits = BatchLimits::new(&LookupSettings {
            budget: Duration::ZERO,
            timeout: LOOKUP_TIME,
            concurrency: 2 * LOOKS,
            per_registry: OF_REGISTRY,
        });
        let denied = Denied::default();
        let (pace, limits, denied) = (&pace, &limits, &denied);
        let mut tries = interval(TRY);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(change) = changes.next() => match change {
                    Change::Listed(pod) | Change::Applied(pod) => {
                        if let Some(failing) = self.failing(pod) && looked.insert(failing.pod.uid()) {
                            let namespace = failing.pod.namespace().to_owned();
                            if let Some(Failing { pod, .. }) = waiting.push(&namespace, failing) {
                                looked.remove(pod.uid());
                            }
                        }
                    }
                    Change::Complete => self.conditions.set(PODS_UNREAD, false),
                    Change::Failed(error) => {
                        tracing::error!(%error, "{PODS_UNREAD}");
                        self.conditions.set(PODS_UNREAD, true);
                    }
                    Change::Begins | Change::Unread(_) | Change::Deleted(_) => {}
                },
                Some(done) = looks.next() => {
                    let (uid, is_settled): (String, Result<bool, ClusterError>) = done;
                    if let Err(error) = &is_settled {
                        tracing::debug!(%error, "a Pod that does not run cannot be looked at");
                    }
                    if is_settled != Ok(true) {
                        // When it changes, which it does when it is tried again to run it.
                        looked.remove(&uid);
                    }
                }
                _ = tries.tick() => self.try_again(denied).await,
            }
            while looks.len() < LOOKS
                && let Some(failing) = waiting.pop()
            {
                looks.push(async move {
                    pace.turn().await;
                    (failing.pod.uid().to_owned(), self.look(&failing, limits, denied).await)
                });
            }
        }
    }

    /// The Pod, if it shows something that can be looked at.
    fn failing(&self, mut pod: StoredPod) -> Option<Failing> {
        let mut failures = failures(&pod, SystemTime::now());
        if !self.settings.borrow().pod_logs {
            failures.retain(|failure| matches!(failure.sign, Sign::Evident(_)));
        }
        // Only what is needed is kept.
        pod.containers.clear();
        pod.owners.clear();
        pod.metadata.labels = None;
        let is_small = pod.facts.as_ref().is_some_and(|facts| facts.held() <= POD);
        (is_small && !failures.is_empty()).then_some(Failing { pod, failures })
    }

    /// Finds out whether an image is not for the node, and tells that. Returns whether all is known that this takes.
    async fn look(
        &self,
        Failing { pod, failures }: &Failing,
        limits: &BatchLimits,
        denied: &Denied,
    ) -> Result<bool, ClusterError> {
        let (Some(facts), Some(node)) = (&pod.facts, &pod.node) else { return Ok(true) };
        let path = format!("/api/v1/namespaces/{}", pod.namespace());
        let namespace = self.cluster.get::<Namespace>(&path).await;
        self.learn(NO_NAMESPACES, path, &namespace, denied);
        let namespace = namespace?.object;
        let terms = NamespaceSettings::of(namespace.metadata.labels.as_ref(), false);
        if terms.is_opted_out {
            return Ok(true);
        }
        let path = format!("{}/{node}", Node::PATH);
        let found = self.cluster.get::<Node>(&path).await;
        self.learn(NO_NODES, path, &found, denied);
        let found = found?.object;
        if found.os == "windows" {
            return Ok(true);
        }
        let images = self.platforms(pod, failures, facts, terms, limits).await;
        let mut is_settled = true;
        for ContainerFailure { container, image, sign } in failures {
            let known = images.iter().find(|(given, _)| given == image);
            let platforms = known.map(|(_, platforms)| *platforms);
            let architecture = &*found.architecture;
            let place = Place { container, image, node, architecture, platforms };
            let proof = match *sign {
                Sign::Evident(Evidence::NoMatch) => Evidence::NoMatch,
                // Only an image that says that it runs there is wrong.
                _ if place.is_claimed() != Some(true) => {
                    is_settled &= place.is_claimed().is_some();
                    continue;
                }
                Sign::Evident(Evidence::ExecFormat) => Evidence::ExecFormat,
                Sign::InItsLog { previous } => {
                    let line = self.cluster.last_line(pod, container, previous).await;
                    self.learn(NO_LOGS, log_path(pod, container, previous), &line, denied);
                    if !is_exec_format(&line?) {
                        continue;
                    }
                    Evidence::ExecFormat
                }
            };
            self.recorder.record(EventReason::WrongArchitecture, pod, || place.wrong(proof));
        }
        Ok(is_settled)
    }

    /// Whether a right is missing, by what came of a request that needs it.
    fn learn<T>(&self, what: &'static str, path: String, answer: &Result<T, ClusterError>, denied: &Denied) {
        let mut denied = denied.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Err(ClusterError::Forbidden | ClusterError::Unauthorized) => {
                denied.insert(what, path);
            }
            Ok(_) | Err(ClusterError::NotFound) => {
                denied.remove(what);
            }
            Err(_) => {}
        }
        self.conditions.set(what, denied.contains_key(what));
    }

    /// Finds out which rights are there again: perhaps no Pod needs them any more.
    async fn try_again(&self, denied: &Denied) {
        let missing = denied.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (what, path) in missing {
            if self.cluster.may_get(&path).await == Some(true) {
                self.learn(what, path, &Ok(()), denied);
            }
        }
    }

    /// Where the images that show failures are known to run.
    async fn platforms(
        &self,
        pod: &StoredPod,
        failures: &[ContainerFailure],
        facts: &Pod<'_>,
        terms: NamespaceSettings<'_>,
        limits: &BatchLimits,
    ) -> Vec<(String, PlatformSet)> {
        let snapshot = self.current.get();
        let policy = snapshot.policy_for(terms.profile).unwrap_or(&snapshot.policy);
        // No others: a Pod may name 64 images.
        let is_wanted = |given: &str| failures.iter().any(|failure| failure.image == given);
        let supports = snapshot.supports(policy, pod.namespace(), facts, is_wanted, limits);
        let Some(images) = decide::caught(supports).await else { return Vec::new() };
        let run = images.iter().filter(|image| image.purpose == Purpose::Run);
        run.filter_map(|image| Some((image.given.to_owned(), image.nodes().ok()?))).collect()
    }
}

#[cfg(test)]
mod tests;
