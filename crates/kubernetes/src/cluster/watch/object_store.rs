//! State of the followed objects.

use std::collections::BTreeMap;

use super::{Change, WatchedKind};
use crate::cluster::ClusterError;

#[derive(Debug, Default)]
pub struct ObjectStore<V> {
    objects: BTreeMap<String, V>,
    /// Objects of a list that is not complete yet.
    listed: BTreeMap<String, V>,
    is_complete: bool,
}

impl<V: Clone + PartialEq> ObjectStore<V> {
    /// Applies a change, with `keep` to reduce an object. Returns whether the state has changed.
    pub fn take<K: WatchedKind>(&mut self, change: Change<K>, keep: impl FnOnce(K) -> V) -> bool {
        match change {
            Change::Begins => {
                self.listed.clear();
                false
            }
            Change::Listed(object) => {
                self.listed.insert(object.key(), keep(object));
                false
            }
            Change::Complete => {
                let is_new = !self.is_complete || self.objects != self.listed;
                self.objects = std::mem::take(&mut self.listed);
                self.is_complete = true;
                is_new
            }
            Change::Applied(object) => {
                let key = object.key();
                let value = keep(object);
                let is_new = self.objects.get(&key) != Some(&value);
                self.objects.insert(key, value);
                is_new
            }
            // The last readable version of the object stays.
            Change::Unread(meta) => {
                let key = meta.key();
                if let Some(value) = self.objects.get(&key) {
                    self.listed.insert(key, value.clone());
                }
                false
            }
            Change::Deleted(meta) => self.objects.remove(&meta.key()).is_some(),
            // A cluster without the kind has no objects of it. Objects that were known before stay nevertheless.
            Change::Failed(ClusterError::NotFound) => {
                !std::mem::replace(&mut self.is_complete, true)
            }
            Change::Failed(_) => false,
        }
    }

    /// Returns whether a list has been complete.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the values by the keys of their objects: `namespace/name`, or the name of a cluster-scoped object.
    pub fn objects(&self) -> &BTreeMap<String, V> {
        &self.objects
    }
}
