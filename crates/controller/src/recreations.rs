//! Owners that delete changed Pods and create them again, as operators do that compare Pods with their own text. Pure.

use std::collections::HashMap;

use tolerarch_core::pod::ANNOTATIONS;
use tolerarch_engine::lessons::RecreatingOwner;
use tolerarch_kubernetes::cluster::{OwnerReference, Phase, StoredPod};

/// Number of Pods of one owner that are deleted in a row, each created after the deletion of the one before it, and the
/// time in seconds in which they are: together they show that the owner deletes changed Pods.
const PODS: usize = 5;
const WITHIN: i64 = 600;
/// Maximal age in seconds of such a Pod at its deletion. It has not run by then.
const YOUNG: i64 = 60;
/// Maximal number of owners that are followed at a time, in all and of one namespace; of others nothing is learned.
const OWNERS: usize = 4096;
const OF_NAMESPACE: usize = 64;

/// Times in seconds, by the clock of the API server, at which Pods of an owner were deleted in a row.
#[derive(Default)]
pub(super) struct Recreations(HashMap<RecreatingOwner, Vec<i64>>);

impl Recreations {
    /// Takes a Pod of a watch. Returns its owner if the Pod is the last of those in a row.
    pub(super) fn take(&mut self, pod: &StoredPod) -> Option<RecreatingOwner> {
        let metadata = &pod.metadata;
        let [created, end] = [&metadata.creation_timestamp, &metadata.deletion_timestamp]
            .map(|time| time.as_ref().map(|time| time.0.as_second()));
        // The deletion was requested that long before.
        let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let (created, deleted) = (created?, end?.saturating_sub(grace));
        let owner = pod.controller().filter(|owner| is_foreign(owner))?;
        let facts = pod.facts.as_ref()?;
        let is_changed = ANNOTATIONS.iter().any(|key| facts.has_annotation(key));
        if !is_changed || pod.phase != Phase::Pending || pod.is_disrupted || deleted - created > YOUNG {
            return None;
        }
        let [kind, name, namespace] = [&owner.kind, &owner.name, pod.namespace()].map(str::to_owned);
        let owner = RecreatingOwner { kind, name, namespace };
        if !owner.is_plausible() || !self.has_room(&owner, deleted) {
            return None;
        }
        let row = self.0.entry(owner.clone()).or_default();
        // Pods that exist at the same time show nothing: their owner may have been deleted, or scaled down. A Pod
        // changes several times while it ends.
        if row.last().is_none_or(|last| *last < created) {
            row.retain(|earlier| deleted - earlier <= WITHIN);
            row.push(deleted);
        }
        (row.len() == PODS).then(|| self.0.remove(&owner)).flatten()?;
        Some(owner)
    }

    fn has_room(&mut self, owner: &RecreatingOwner, now: i64) -> bool {
        if self.0.contains_key(owner) {
            return true;
        }
        self.0.retain(|_, row| row.last().is_some_and(|last| now - last <= WITHIN));
        let of_namespace = self.0.keys().filter(|known| known.namespace == owner.namespace).count();
        self.0.len() < OWNERS && of_namespace < OF_NAMESPACE
    }
}

/// Returns whether the owner is of a custom resource, whose group has a dot: Kubernetes' own kinds compare no Pods.
fn is_foreign(owner: &OwnerReference) -> bool {
    owner.api_version.split_once('/').is_some_and(|(group, _)| group.contains('.'))
}

#[cfg(test)]
mod tests;
