//! What is known of the objects that are followed.

use std::collections::BTreeMap;

use super::{Change, Followed, name};
use crate::cluster::ClusterError;

/// What is known of the objects that are followed, and of each only what is kept.
#[derive(Debug, Default)]
pub struct Known<V> {
    objects: BTreeMap<String, V>,
    /// Those of a list that is not complete yet.
    listed: BTreeMap<String, V>,
    is_complete: bool,
}

impl<V: Clone + PartialEq> Known<V> {
    /// Takes over what has happened, of an object what `keep` says. Whether something new is known now.
    pub fn take<K: Followed>(&mut self, change: Change<K>, keep: impl FnOnce(K) -> V) -> bool {
        match change {
            Change::Begins => {
                self.listed.clear();
                false
            }
            Change::Listed(object) => {
                self.listed.insert(name(object.metadata()), keep(object));
                false
            }
            Change::Complete => {
                let is_new = !self.is_complete || self.objects != self.listed;
                (self.objects, self.is_complete) = (std::mem::take(&mut self.listed), true);
                is_new
            }
            Change::Applied(object) => {
                let (name, value) = (name(object.metadata()), keep(object));
                let is_new = self.objects.get(&name) != Some(&value);
                self.objects.insert(name, value);
                is_new
            }
            // What was read of it last counts.
            Change::Unread(meta) => {
                let name = name(&meta);
                if let Some(value) = self.objects.get(&name) {
                    self.listed.insert(name, value.clone());
                }
                false
            }
            Change::Deleted(meta) => self.objects.remove(&name(&meta)).is_some(),
            // There are none of a kind that the cluster does not have. Those that were known are not given up by that.
            Change::Failed(ClusterError::NotFound) => !std::mem::replace(&mut self.is_complete, true),
            Change::Failed(_) => false,
        }
    }

    /// Whether all objects have been read once.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What is kept of the object of this name, which is in no namespace.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.objects.get(name)
    }

    /// What is kept of each object, by namespace and name.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.objects.values()
    }
}
