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
/// Maximum age in seconds of such a Pod at its deletion. It has not run by then.
const YOUNG: i64 = 60;
/// Maximum number of owners that are followed at a time, in all and of one namespace: some 3 MiB. If all are too many,
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
        let owner = pod.controller()?;
        let facts = pod.facts.as_ref()?;
        let is_changed = ANNOTATIONS.iter().any(|key| facts.has_annotation(key));
        let is_young = deleted.saturating_sub(created) <= YOUNG;
        let is_disturbed = pod.phase != Phase::Pending || pod.is_disrupted;
        if !is_foreign(owner) || !is_changed || !is_young || is_disturbed {
            return None;
        }
        let owner = RecreatingOwner {
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            namespace: pod.namespace().to_owned(),
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
        let Some((largest, most)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
            return false;
        };
        // A namespace keeps what is not more than the share of the one that comes.
        if most <= own.saturating_add(1) {
            return false;
        }
        let rows = self.0.iter();
        let of_largest = rows.filter(|(followed, _)| followed.namespace == largest);
        if let Some((oldest, _)) = of_largest.min_by_key(|(_, row)| row.seen) {
            let oldest = oldest.clone();
            self.0.remove(&oldest);
        }
        true
    }
}

/// Returns whether the owner is of a custom resource, whose group has a dot: Kubernetes' own kinds compare no Pods.
fn is_foreign(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/');
    group.is_some_and(|(group, _)| group.contains('.'))
}

#[cfg(test)]
mod tests;
