//! Index of pending Pods, within a bound on memory that namespaces share.

use std::collections::{BTreeMap, HashMap};

use tokio::time::{Duration, Instant};

use crate::loops::Written;
use tolerarch_core::pod::Retain;
use tolerarch_kubernetes::cluster::{Change, ClusterError, StoredPod};

/// Maximum number of Pods. Above it, the namespace with the most bytes loses Pods.
pub(super) const PODS: usize = 20_000;
/// Maximum bytes of all Pods: 20,000 usual Pods have about 60 MiB. Above it as well, that namespace loses Pods.
const BYTES: usize = 64 << 20;
/// Maximum bytes of a Pod beside its facts and labels.
const POD: usize = 1024;
/// Maximum bytes of a label beside its texts.
const LABEL: usize = 64;
/// Maximum number of concurrent decisions on Pods of one namespace.
pub(super) const OF_NAMESPACE: usize = 64;
/// Pause before the next decision on a Pod with unknown images.
const UNKNOWN: Duration = Duration::from_secs(1);
/// Pause before the next decision on a Pod with known images.
const SETTLED: Duration = Duration::from_secs(60);
/// Number of refusals after which a Pod is given up.
pub(super) const MAX_ATTEMPTS: u32 = 3;
/// Pause after the first refusal or failure; each further one doubles the pause.
const RETRY: Duration = Duration::from_secs(2);
/// Longest pause. It follows only failures whose cause is not the Pod: no answer, or a missing right.
const LONGEST: Duration = Duration::from_secs(600);

/// Outcome of a decision on a Pod.
pub(super) enum Outcome {
    /// The Pod's images are known, or do not matter.
    Settled,
    /// Some images are unknown.
    Unknown,
    /// The Pod was changed, or a change was tried.
    Tried(Written),
}

struct Waiting {
    pod: StoredPod,
    /// Time at which the Pod was first seen.
    since: Instant,
    due: Instant,
    refusals: u32,
    /// Number of failures whose cause was not the Pod.
    failures: u32,
    /// Set if the last attempt failed because of a missing right.
    is_forbidden: bool,
    is_busy: bool,
    /// Set if the Pod has been listed or changed since the list began.
    is_listed: bool,
}

impl Waiting {
    fn new(pod: StoredPod) -> Self {
        let now = Instant::now();
        Self {
            pod,
            since: now,
            due: now,
            refusals: 0,
            failures: 0,
            is_forbidden: false,
            is_busy: false,
            is_listed: true,
        }
    }
}

#[derive(Default)]
pub(super) struct Pods {
    /// Pods by their UIDs.
    waiting: HashMap<String, Waiting>,
    bytes: usize,
    /// Set if a Pod has been dropped for lack of memory since the list began.
    has_dropped: bool,
}

impl Pods {
    pub(super) fn take(&mut self, change: Change<StoredPod>) {
        match change {
            Change::Begins => {
                for waiting in self.waiting.values_mut() {
                    waiting.is_listed = false;
                }
                self.has_dropped = false;
            }
            Change::Listed(pod) | Change::Applied(pod) => self.put(pod),
            Change::Complete => {
                for (_, gone) in self.waiting.extract_if(|_, waiting| !waiting.is_listed) {
                    self.bytes -= size(&gone.pod);
                }
            }
            Change::Unread(pod) | Change::Deleted(pod) => {
                self.detach(&pod.uid);
            }
            Change::Failed(_) => {}
        }
    }

    /// Returns whether Pods have been dropped and there is room again, so that all Pods should be listed again.
    pub(super) fn has_room_again(&self) -> bool {
        self.has_dropped && !self.exceeds(12)
    }

    /// Returns whether the Pods exceed this number of sixteenths of a limit.
    fn exceeds(&self, sixteenths: usize) -> bool {
        self.waiting.len() > PODS / 16 * sixteenths || self.bytes > BYTES / 16 * sixteenths
    }

    fn put(&mut self, mut pod: StoredPod) {
        let before = self.detach(pod.uid());
        let Some(facts) = &pod.facts else { return };
        if !pod.is_waiting_for_a_node || facts.skipped().is_some() {
            return;
        }
        // These fields are not needed, and a tenant may have made them large.
        pod.metadata.controller = None;
        pod.containers = Vec::new();
        self.bytes += size(&pod);
        let uid = pod.uid().to_owned();
        let waiting = match before {
            Some(before) => Waiting {
                pod,
                is_listed: true,
                ..before
            },
            None => Waiting::new(pod),
        };
        self.waiting.insert(uid, waiting);
        if self.exceeds(16) {
            self.make_room();
        }
    }

    /// Drops Pods of the namespaces with the most bytes: a sixteenth of all, so that few changes compare all Pods. Busy
    /// Pods are dropped last, as they count for their namespace until their decision ends.
    fn make_room(&mut self) {
        let mut shares = HashMap::<&str, usize>::new();
        let waiting = self.waiting.iter();
        let (busy, idle): (Vec<_>, Vec<_>) = waiting.partition(|(_, waiting)| waiting.is_busy);
        let mut ranked = Vec::new();
        for (uid, waiting) in busy.into_iter().chain(idle) {
            let share = shares.entry(waiting.pod.namespace()).or_default();
            *share += size(&waiting.pod);
            ranked.push((*share, uid.clone()));
        }
        ranked.sort_unstable();
        while let Some((_, uid)) = ranked.pop_if(|_| self.exceeds(15)) {
            self.detach(&uid);
        }
        self.has_dropped = true;
    }

    fn detach(&mut self, uid: &str) -> Option<Waiting> {
        let waiting = self.waiting.remove(uid)?;
        self.bytes -= size(&waiting.pod);
        Some(waiting)
    }

    /// Returns at most `free` due Pods, each with the time at which it was first seen, and marks them as busy.
    /// Pods of the namespaces with the fewest busy Pods come first, up to [`OF_NAMESPACE`]; of these, the Pods that were
    /// due first, whatever their namespace.
    pub(super) fn due(&mut self, free: usize) -> Vec<(StoredPod, Instant)> {
        let now = Instant::now();
        let mut busy = HashMap::<String, usize>::new();
        let mut due = Vec::new();
        for waiting in self.waiting.values_mut() {
            if waiting.is_busy {
                *busy.entry(waiting.pod.namespace().to_owned()).or_default() += 1;
            } else if waiting.refusals < MAX_ATTEMPTS && waiting.due <= now {
                due.push(waiting);
            }
        }
        due.sort_unstable_by_key(|waiting| waiting.due);
        let mut ranks = BTreeMap::<usize, Vec<&mut Waiting>>::new();
        for waiting in due {
            let rank = busy.entry(waiting.pod.namespace().to_owned()).or_default();
            *rank += 1;
            if *rank <= OF_NAMESPACE {
                ranks.entry(*rank).or_default().push(waiting);
            }
        }
        let mut next = Vec::new();
        for waiting in ranks.into_values().flatten().take(free) {
            waiting.is_busy = true;
            next.push((waiting.pod.clone(), waiting.since));
        }
        next
    }

    /// Returns whether a Pod waits for the right to repair it.
    pub(super) fn any_forbidden(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.is_forbidden)
    }

    /// Records the outcome of a decision, and schedules the next one.
    pub(super) fn finish(&mut self, uid: &str, outcome: Outcome) {
        use ClusterError::{Forbidden, NotFound, Unauthorized};
        let Some(waiting) = self.waiting.get_mut(uid) else {
            return;
        };
        waiting.is_busy = false;
        waiting.is_forbidden =
            matches!(outcome, Outcome::Tried(Some(Err(Forbidden | Unauthorized))));
        let pause = match outcome {
            Outcome::Unknown => UNKNOWN,
            Outcome::Settled | Outcome::Tried(Some(Ok(()) | Err(NotFound))) => SETTLED,
            Outcome::Tried(None) => RETRY,
            Outcome::Tried(Some(Err(error))) => waiting.fail(error),
        };
        waiting.due = Instant::now() + pause;
    }
}

impl Waiting {
    /// Counts a failed change. Returns the pause before the next attempt.
    fn fail(&mut self, error: ClusterError) -> Duration {
        let (attempts, message) = match error {
            // The Pod has been replaced, or the API server refuses the change.
            ClusterError::Invalid | ClusterError::Conflict => {
                (&mut self.refusals, "a Pod cannot be repaired")
            }
            _ => (
                &mut self.failures,
                "a Pod cannot be repaired yet; it is tried again",
            ),
        };
        *attempts += 1;
        if *attempts == MAX_ATTEMPTS {
            let namespace = self.pod.namespace();
            let pod = self.pod.name();
            tracing::warn!(namespace, pod, tries = MAX_ATTEMPTS, "{message}");
        }
        let doublings = (*attempts - 1).min(16);
        RETRY.saturating_mul(1 << doublings).min(LONGEST)
    }
}

fn size(pod: &StoredPod) -> usize {
    let mut size = POD;
    if let Some(facts) = &pod.facts {
        size += facts.held_bytes();
    }
    for (key, value) in &pod.metadata.labels {
        size += LABEL + key.len() + value.len();
    }
    size
}

#[cfg(test)]
mod tests;
