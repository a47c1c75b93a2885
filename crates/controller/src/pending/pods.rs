//! The Pods that wait, as far as they are kept: so many bytes, which namespaces share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::time::{Duration, Instant};

use super::Look;
use tolerarch_core::pod::Kept;
use tolerarch_kubernetes::cluster::{Change, ClusterError, StoredPod};

/// Pods that are kept, and bytes of them: 20,000 usual ones have some 60 MiB. Beyond, the largest namespace's wait.
pub(super) const PODS: usize = 20_000;
const BYTES: usize = 64 << 20;
/// Bytes of a Pod beside its facts and labels, and of a label beside its texts, or fewer.
const POD: usize = 1024;
const LABEL: usize = 64;
/// Pods of one namespace that are decided on at a time.
pub(super) const OF_NAMESPACE: usize = 64;
/// When a Pod is looked at again whose images are not known, and one whose images are.
const UNKNOWN: Duration = Duration::from_secs(1);
const SETTLED: Duration = Duration::from_secs(60);
/// Refusals after which a Pod is left as it is, and the pause after the first one; it grows with each.
pub(super) const TRIES: u32 = 3;
const RETRY: Duration = Duration::from_secs(2);
/// The longest pause where the cause is not the Pod: no answer, or a right that is missing.
const LONGEST: Duration = Duration::from_secs(600);

struct Waiting {
    pod: StoredPod,
    /// Since when it is known here.
    since: Instant,
    due: Instant,
    refusals: u32,
    /// Tries that failed for a cause that is not the Pod.
    failures: u32,
    /// Whether the last one did for a right that is missing.
    is_forbidden: bool,
    is_busy: bool,
    /// Whether there is one since the list began.
    is_listed: bool,
}

impl Waiting {
    fn new(pod: StoredPod) -> Self {
        let now = Instant::now();
        let (is_forbidden, is_busy, is_listed) = (false, false, true);
        Self { pod, since: now, due: now, refusals: 0, failures: 0, is_forbidden, is_busy, is_listed }
    }
}

/// What is kept of the Pods of a namespace.
#[derive(Default)]
struct Share {
    bytes: usize,
    uids: BTreeSet<String>,
}

/// The Pods that wait, by their uids.
#[derive(Default)]
pub(super) struct Pods {
    known: HashMap<String, Waiting>,
    bytes: usize,
    /// None is empty.
    shares: BTreeMap<String, Share>,
    /// Whether some had no room since the list began.
    has_dropped: bool,
}

impl Pods {
    pub(super) fn take(&mut self, change: Change<StoredPod>) {
        match change {
            Change::Begins => {
                self.known.values_mut().for_each(|known| known.is_listed = false);
                self.has_dropped = false;
            }
            Change::Listed(pod) | Change::Applied(pod) => self.put(pod),
            Change::Complete => {
                let gone = self.known.iter().filter(|(_, known)| !known.is_listed);
                let gone: Vec<String> = gone.map(|(uid, _)| uid.clone()).collect();
                for uid in gone {
                    self.detach(&uid);
                }
            }
            Change::Unread(pod) | Change::Deleted(pod) => {
                self.detach(&pod.uid.unwrap_or_default());
            }
            Change::Failed(_) => {}
        }
    }

    /// Whether there is room again for those that had none, so that they are to be listed anew.
    pub(super) fn has_room_again(&self) -> bool {
        self.has_dropped && self.known.len() <= PODS / 4 * 3 && self.bytes <= BYTES / 4 * 3
    }

    fn put(&mut self, mut pod: StoredPod) {
        let concerns = pod.is_waiting_for_a_node() && !pod.is_nominated;
        let skipped = pod.facts.as_ref().is_none_or(|facts| facts.skipped().is_some());
        let before = self.detach(pod.uid());
        if !concerns || skipped {
            return;
        }
        // Not needed any more, and as large as a tenant made them.
        pod.owners.clear();
        pod.containers.clear();
        if !self.make_room(&pod) {
            self.has_dropped = true;
            return;
        }
        let (uid, size) = (pod.uid().to_owned(), size(&pod));
        let share = self.shares.entry(pod.namespace().to_owned()).or_default();
        share.bytes += size;
        share.uids.insert(uid.clone());
        self.bytes += size;
        let waiting = match before {
            Some(before) => Waiting { pod, is_listed: true, ..before },
            None => Waiting::new(pod),
        };
        self.known.insert(uid, waiting);
    }

    /// Drops Pods of the namespace with the most until there is room for this one; false if that is its own.
    fn make_room(&mut self, pod: &StoredPod) -> bool {
        let size = size(pod);
        while self.known.len() >= PODS || self.bytes + size > BYTES {
            let own = self.shares.get(pod.namespace()).map_or(0, |share| share.bytes);
            let most = self.shares.iter().max_by_key(|(_, share)| share.bytes);
            let most = most.filter(|(_, share)| share.bytes > own + size);
            let Some(last) = most.and_then(|(_, share)| share.uids.last().cloned()) else { return false };
            self.detach(&last);
            self.has_dropped = true;
        }
        true
    }

    fn detach(&mut self, uid: &str) -> Option<Waiting> {
        let known = self.known.remove(uid)?;
        let size = size(&known.pod);
        self.bytes -= size;
        let namespace = known.pod.namespace();
        if let Some(share) = self.shares.get_mut(namespace) {
            share.bytes -= size;
            share.uids.remove(uid);
            if share.uids.is_empty() {
                self.shares.remove(namespace);
            }
        }
        Some(known)
    }

    /// At most so many that are due, and since when known, the longest first and not all of one namespace: busy from now on.
    pub(super) fn due(&mut self, free: usize) -> Vec<(StoredPod, Instant)> {
        let now = Instant::now();
        let mut busy: BTreeMap<String, usize> = BTreeMap::new();
        for known in self.known.values().filter(|known| known.is_busy) {
            *busy.entry(known.pod.namespace().to_owned()).or_default() += 1;
        }
        let waits = |known: &&mut Waiting| !known.is_busy && known.refusals < TRIES && known.due <= now;
        let due = self.known.values_mut().filter(waits);
        let mut due: Vec<&mut Waiting> = due.collect();
        due.sort_unstable_by_key(|known| known.due);
        let mut taken = Vec::new();
        for known in due {
            if taken.len() == free {
                break;
            }
            let of_namespace = busy.entry(known.pod.namespace().to_owned()).or_default();
            if *of_namespace < OF_NAMESPACE {
                *of_namespace += 1;
                known.is_busy = true;
                taken.push((known.pod.clone(), known.since));
            }
        }
        taken
    }

    /// Whether a Pod waits for a right to repair it.
    pub(super) fn any_forbidden(&self) -> bool {
        self.known.values().any(|known| known.is_forbidden)
    }

    pub(super) fn looked(&mut self, uid: &str, look: Look) {
        use ClusterError::{Conflict, Forbidden, Invalid, NotFound, Unauthorized};
        let Some(known) = self.known.get_mut(uid) else { return };
        known.is_busy = false;
        known.is_forbidden = matches!(look, Look::Tried(Some(Err(Forbidden | Unauthorized))));
        let (namespace, pod) = (known.pod.namespace(), known.pod.name());
        let pause = match look {
            Look::Unknown => UNKNOWN,
            Look::Settled | Look::Tried(Some(Ok(()) | Err(NotFound))) => SETTLED,
            Look::Tried(None) => RETRY,
            // It is another one by now, or the API server does not take the change.
            Look::Tried(Some(Err(Invalid | Conflict))) => {
                known.refusals += 1;
                if known.refusals == TRIES {
                    tracing::warn!(namespace, pod, tries = TRIES, "a Pod cannot be repaired");
                }
                RETRY * known.refusals
            }
            Look::Tried(Some(Err(_))) => {
                let pause = RETRY.saturating_mul(1 << known.failures.min(16)).min(LONGEST);
                known.failures += 1;
                if known.failures == TRIES {
                    tracing::warn!(
                        namespace,
                        pod,
                        tries = TRIES,
                        "a Pod cannot be repaired yet; it is tried again"
                    );
                }
                pause
            }
        };
        known.due = Instant::now() + pause;
    }
}

/// Bytes of what is kept of a Pod.
fn size(pod: &StoredPod) -> usize {
    let labels = pod.metadata.labels.iter().flatten();
    let labels: usize = labels.map(|(key, value)| LABEL + key.len() + value.len()).sum();
    POD + labels + pod.facts.as_ref().map_or(0, |facts| facts.held())
}

#[cfg(test)]
mod tests;
