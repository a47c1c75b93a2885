//! Index of pending Pods, within a bound on bytes that namespaces share.

use std::collections::{BTreeMap, HashMap};

use tokio::time::{Duration, Instant};

use crate::loops::Written;
use tolerarch_core::pod::Kept;
use tolerarch_kubernetes::cluster::{Change, ClusterError, StoredPod};

/// Maximal kept Pods, and bytes: 20,000 usual Pods have some 60 MiB. Beyond, the namespace with most loses Pods.
pub(super) const PODS: usize = 20_000;
const BYTES: usize = 64 << 20;
/// Maximal bytes of a Pod beside its facts and labels, and of a label beside its texts.
const POD: usize = 1024;
const LABEL: usize = 64;
/// Maximal number of concurrent decisions on Pods of one namespace.
pub(super) const OF_NAMESPACE: usize = 64;
/// Pauses before the next decision on a Pod with unknown images, and on one with known images.
const UNKNOWN: Duration = Duration::from_secs(1);
const SETTLED: Duration = Duration::from_secs(60);
/// Number of refusals after which a Pod is given up, and the pause after the first one, doubled with each.
pub(super) const TRIES: u32 = 3;
const RETRY: Duration = Duration::from_secs(2);
/// Longest pause, which only follows failures whose cause is not the Pod: no answer, or a missing right.
const LONGEST: Duration = Duration::from_secs(600);

/// Result of a decision on a Pod.
pub(super) enum Look {
    /// The Pod's images are known, or do not matter.
    Settled,
    Unknown,
    Tried(Written),
}

struct Waiting {
    pod: StoredPod,
    /// Time at which the Pod was first seen here.
    since: Instant,
    due: Instant,
    refusals: u32,
    /// Number of failed tries whose cause was not the Pod.
    failures: u32,
    /// Set if the last try failed because of a missing right.
    is_forbidden: bool,
    is_busy: bool,
    /// Set if the Pod has been listed or changed since the list began.
    is_listed: bool,
}

impl Waiting {
    fn new(pod: StoredPod) -> Self {
        let now = Instant::now();
        let (is_forbidden, is_busy, is_listed) = (false, false, true);
        Self {
            pod,
            since: now,
            due: now,
            refusals: 0,
            failures: 0,
            is_forbidden,
            is_busy,
            is_listed,
        }
    }
}

#[derive(Default)]
pub(super) struct Pods {
    known: HashMap<String, Waiting>,
    bytes: usize,
    /// Set if a Pod has been dropped for lack of room since the list began.
    has_dropped: bool,
}

impl Pods {
    pub(super) fn take(&mut self, change: Change<StoredPod>) {
        match change {
            Change::Begins => {
                self.known
                    .values_mut()
                    .for_each(|known| known.is_listed = false);
                self.has_dropped = false;
            }
            Change::Listed(pod) | Change::Applied(pod) => self.put(pod),
            Change::Complete => {
                for (_, gone) in self.known.extract_if(|_, known| !known.is_listed) {
                    self.bytes -= size(&gone.pod);
                }
            }
            Change::Unread(pod) | Change::Deleted(pod) => {
                self.detach(&pod.uid);
            }
            Change::Failed(_) => {}
        }
    }

    /// Returns whether there is room again for dropped Pods, so that all should be listed again.
    pub(super) fn has_room_again(&self) -> bool {
        self.has_dropped && !self.exceeds(12)
    }

    /// Returns whether the Pods take more than so many sixteenths of the room.
    fn exceeds(&self, sixteenths: usize) -> bool {
        self.known.len() > PODS / 16 * sixteenths || self.bytes > BYTES / 16 * sixteenths
    }

    fn put(&mut self, mut pod: StoredPod) {
        let skipped = pod
            .facts
            .as_ref()
            .is_none_or(|facts| facts.skipped().is_some());
        let before = self.detach(pod.uid());
        if !pod.is_waiting_for_a_node || skipped {
            return;
        }
        // These fields are no longer needed, and as large as a tenant made them.
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
        self.known.insert(uid, waiting);
        if self.exceeds(16) {
            self.make_room();
        }
    }

    /// Drops Pods of the namespaces with the most bytes: a sixteenth of all, so that few changes compare all Pods. Those
    /// that are decided on go last, as they count for their namespace until then.
    fn make_room(&mut self) {
        let mut shares = HashMap::<&str, usize>::new();
        let (busy, idle): (Vec<_>, Vec<_>) =
            self.known.iter().partition(|(_, known)| known.is_busy);
        let ranked = busy.into_iter().chain(idle).map(|(uid, known)| {
            let share = shares.entry(known.pod.namespace()).or_default();
            *share += size(&known.pod);
            (*share, uid.clone())
        });
        let mut ranked: Vec<(usize, String)> = ranked.collect();
        ranked.sort_unstable();
        while let Some((_, uid)) = ranked.pop_if(|_| self.exceeds(15)) {
            self.detach(&uid);
        }
        self.has_dropped = true;
    }

    fn detach(&mut self, uid: &str) -> Option<Waiting> {
        let known = self.known.remove(uid)?;
        self.bytes -= size(&known.pod);
        Some(known)
    }

    /// Returns at most `free` due Pods, each with the time at which it was first seen, and marks them as busy. Those of
    /// namespaces with the fewest busy Pods come first, within [`OF_NAMESPACE`], and of these those due longest.
    pub(super) fn due(&mut self, free: usize) -> Vec<(StoredPod, Instant)> {
        let now = Instant::now();
        let mut busy = HashMap::<String, usize>::new();
        for known in self.known.values().filter(|known| known.is_busy) {
            *busy.entry(known.pod.namespace().to_owned()).or_default() += 1;
        }
        let waits =
            |known: &&mut Waiting| !known.is_busy && known.refusals < TRIES && known.due <= now;
        let mut due: Vec<&mut Waiting> = self.known.values_mut().filter(waits).collect();
        due.sort_unstable_by_key(|known| known.due);
        let mut ranks = BTreeMap::<usize, Vec<&mut Waiting>>::new();
        for known in due {
            let rank = busy.entry(known.pod.namespace().to_owned()).or_default();
            *rank += 1;
            if *rank <= OF_NAMESPACE {
                ranks.entry(*rank).or_default().push(known);
            }
        }
        let begin = |known: &mut Waiting| {
            known.is_busy = true;
            (known.pod.clone(), known.since)
        };
        ranks
            .into_values()
            .flatten()
            .take(free)
            .map(begin)
            .collect()
    }

    /// Returns whether a Pod waits for the right to repair it.
    pub(super) fn any_forbidden(&self) -> bool {
        self.known.values().any(|known| known.is_forbidden)
    }

    pub(super) fn looked(&mut self, uid: &str, look: Look) {
        use ClusterError::{Conflict, Forbidden, Invalid, NotFound, Unauthorized};
        let Some(known) = self.known.get_mut(uid) else {
            return;
        };
        known.is_busy = false;
        known.is_forbidden = matches!(look, Look::Tried(Some(Err(Forbidden | Unauthorized))));
        let (namespace, pod) = (known.pod.namespace(), known.pod.name());
        let pause = match look {
            Look::Unknown => UNKNOWN,
            Look::Settled | Look::Tried(Some(Ok(()) | Err(NotFound))) => SETTLED,
            Look::Tried(None) => RETRY,
            Look::Tried(Some(Err(error))) => {
                let (tries, what) = match error {
                    // The Pod has been replaced, or the API server refuses the change.
                    Invalid | Conflict => (&mut known.refusals, "a Pod cannot be repaired"),
                    _ => (
                        &mut known.failures,
                        "a Pod cannot be repaired yet; it is tried again",
                    ),
                };
                *tries += 1;
                if *tries == TRIES {
                    tracing::warn!(namespace, pod, tries = TRIES, "{what}");
                }
                RETRY.saturating_mul(1 << (*tries - 1).min(16)).min(LONGEST)
            }
        };
        known.due = Instant::now() + pause;
    }
}

fn size(pod: &StoredPod) -> usize {
    let labels = pod.metadata.labels.iter();
    let labels: usize = labels
        .map(|(key, value)| LABEL + key.len() + value.len())
        .sum();
    POD + labels + pod.facts.as_ref().map_or(0, |facts| facts.held())
}

#[cfg(test)]
mod tests;
