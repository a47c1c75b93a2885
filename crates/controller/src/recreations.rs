//! Owners that delete changed Pods and create them again. Operators do so that compare Pods with their own
//! specifications.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::collections::HashMap;

use tokio::time::{Duration, Instant};

use tolerarch_core::pod::ANNOTATIONS;
use tolerarch_engine::lessons::RecreatingOwner;
use tolerarch_kubernetes::cluster::{Lifetime, OwnerReference, Phase, StoredPod};

/// Number of Pods of one owner, deleted in a row, that show that the owner deletes changed Pods. Each was created after
/// the deletion of the one before.
const PODS: usize = 5;
/// Time in seconds within which these Pods are deleted.
const WITHIN: i64 = 600;
/// Maximum age in seconds of such a Pod at its deletion. It must not have run.
const YOUNG: i64 = 60;
/// Maximum number of owners that are followed at a time: about 3 MiB. Above it, owners of the namespace with the most
/// are dropped.
const OWNERS: usize = 4096;
/// Maximum number of owners of one namespace that are followed at a time.
const OF_NAMESPACE: usize = 64;
/// Time for which an owner is followed after the last of its Pods, by the controller's clock, which Pods cannot affect.
const FOLLOWED: Duration = Duration::from_secs(600);

/// Owners whose Pods were deleted in a row.
#[derive(Default)]
pub(super) struct Recreations(HashMap<RecreatingOwner, Row>);

struct Row {
    /// Times at which the Pods were deleted, in seconds by the API server's clock.
    deleted: Vec<i64>,
    /// Time at which the last Pod was seen.
    seen: Instant,
}

impl Recreations {
    /// Records a Pod of a watch. Returns its owner if the Pod completes a row.
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
        // Pods that existed at the same time are no evidence: their owner may have been deleted, or scaled down. One
        // Pod changes several times while it ends.
        if row.deleted.last().is_none_or(|last| *last < created) {
            let is_recent = |earlier: &i64| deleted.saturating_sub(*earlier) <= WITHIN;
            row.deleted.retain(is_recent);
            row.deleted.push(deleted);
            row.seen = now;
        }
        if row.deleted.len() < PODS {
            return None;
        }
        self.0.remove(&owner);
        Some(owner)
    }

    /// Makes room for the owner, unless it is followed already. Returns `false` if there is no room.
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
        let of_namespace = counts.get(&*owner.namespace).copied();
        let of_namespace = of_namespace.unwrap_or_default();
        if of_namespace >= OF_NAMESPACE {
            return false;
        }
        if self.0.len() < OWNERS {
            return true;
        }
        let Some((largest, most)) = counts.into_iter().max_by_key(|(_, count)| *count) else {
            return false;
        };
        // The largest namespace must keep at least as many owners as this one gets.
        if most <= of_namespace.saturating_add(1) {
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

/// Returns whether the owner is a custom resource, whose group has a dot. Kubernetes' own kinds do not compare Pods.
fn is_foreign(owner: &OwnerReference) -> bool {
    match owner.api_version.split_once('/') {
        Some((group, _version)) => group.contains('.'),
        None => false,
    }
}

#[cfg(test)]
mod tests;
