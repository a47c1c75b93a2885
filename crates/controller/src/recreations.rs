//! Owners that delete changed Pods and create them again, as operators do that compare Pods with their own text.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::collections::HashMap;

use tokio::time::{Duration, Instant};

use tolerarch_core::pod::ANNOTATIONS;
use tolerarch_engine::lessons::RecreatingOwner;
use tolerarch_kubernetes::cluster::{Lifetime, OwnerReference, Phase, StoredPod};

/// Number of Pods of one owner that are deleted in a row, each created after the deletion of the one before it, and the
/// time in seconds in which they are: together they show that the owner deletes changed Pods.
const PODS: usize = 5;
const WITHIN: i64 = 600;
/// Maximal age in seconds of such a Pod at its deletion. It has not run by then.
const YOUNG: i64 = 60;
/// Maximal number of owners that are followed at a time, in all and of one namespace: some 3 MiB. If all are too many,
/// those of the namespace with the most give way.
const OWNERS: usize = 4096;
const OF_NAMESPACE: usize = 64;
/// Time for which an owner is followed after the last of its Pods, by the controller's clock: Pods cannot set that one.
const FOLLOWED: Duration = Duration::from_secs(600);

/// Owners whose Pods were deleted in a row.
#[derive(Default)]
pub(super) struct Recreations(HashMap<RecreatingOwner, Row>);

struct Row {
    /// Times in seconds, by the clock of the API server, at which the Pods were deleted.
    deleted: Vec<i64>,
    /// Time at which the last of them was seen.
    seen: Instant,
}

impl Recreations {
    /// Takes a Pod of a watch. Returns its owner if the Pod is the last of those in a row.
    pub(super) fn take(&mut self, pod: &StoredPod) -> Option<RecreatingOwner> {
        let Lifetime { created, deleted } = pod.metadata.lifetime()?;
        let owner = pod.controller().filter(|owner| is_foreign(owner))?;
        let facts = pod.facts.as_ref()?;
        let is_changed = ANNOTATIONS.iter().any(|key| facts.has_annotation(key));
        let is_young = deleted.saturating_sub(created) <= YOUNG;
        if !is_changed || !is_young || pod.phase != Phase::Pending || pod.is_disrupted {
            return None;
        }
        let [kind, name, namespace] =
            [&owner.kind, &owner.name, pod.namespace()].map(str::to_owned);
        let owner = RecreatingOwner {
            kind,
            name,
            namespace,
        };
        let now = Instant::now();
        if !owner.is_plausible() || !self.make_room(&owner, now) {
            return None;
        }
        let row = self.0.entry(owner.clone()).or_insert(Row {
            deleted: Vec::new(),
            seen: now,
        });
        // Pods that exist at the same time show nothing: their owner may have been deleted, or scaled down. A Pod
        // changes several times while it ends.
        if row.deleted.last().is_none_or(|last| *last < created) {
            row.deleted
                .retain(|earlier| deleted.saturating_sub(*earlier) <= WITHIN);
            row.deleted.push(deleted);
            row.seen = now;
        }
        if row.deleted.len() < PODS {
            return None;
        }
        self.0.remove(&owner);
        Some(owner)
    }

    /// Returns whether the owner is followed, or there is room for it.
    fn make_room(&mut self, owner: &RecreatingOwner, now: Instant) -> bool {
        let is_followed = |row: &Row| now.duration_since(row.seen) <= FOLLOWED;
        if self.0.get(owner).is_some_and(is_followed) {
            return true;
        }
        self.0.retain(|_, row| is_followed(row));
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for followed in self.0.keys() {
            let count = counts.entry(&followed.namespace).or_default();
            *count = count.saturating_add(1);
        }
        let own = counts.get(&*owner.namespace).copied().unwrap_or_default();
        if own >= OF_NAMESPACE {
            return false;
        }
        if self.0.len() < OWNERS {
            return true;
        }
        // A namespace keeps what is not more than the share of the one that comes.
        let largest = counts.into_iter().max_by_key(|(_, count)| *count);
        let Some((largest, _)) = largest.filter(|(_, count)| *count > own.saturating_add(1)) else {
            return false;
        };
        let of_largest = self
            .0
            .iter()
            .filter(|(followed, _)| followed.namespace == largest);
        let oldest = of_largest
            .min_by_key(|(_, row)| row.seen)
            .map(|(followed, _)| followed.clone());
        if let Some(oldest) = oldest {
            self.0.remove(&oldest);
        }
        true
    }
}

/// Returns whether the owner is of a custom resource, whose group has a dot: Kubernetes' own kinds compare no Pods.
fn is_foreign(owner: &OwnerReference) -> bool {
    owner
        .api_version
        .split_once('/')
        .is_some_and(|(group, _)| group.contains('.'))
}

#[cfg(test)]
mod tests;
