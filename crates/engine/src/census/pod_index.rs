//! Pods of a list, kept small; those that are alike are decided together. The raw Pods are dropped.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::shape::{Shape, Shapes};
use super::summary::{Amount, IndexedPod, Workload};
use tolerarch_kubernetes::cluster::{OwnerReference, StoredPod};

#[derive(Default)]
pub struct PodIndex {
    pub pods: Vec<IndexedPod>,
    pub shapes: Shapes,
    /// Names that many Pods share.
    texts: HashSet<Arc<str>>,
    controllers: HashSet<Arc<Workload>>,
}

impl PodIndex {
    /// Adds a Pod, unless it has ended: ended Pods request nothing any more.
    pub fn add(&mut self, mut pod: StoredPod) {
        if pod.has_ended() {
            return;
        }
        let namespace = intern(&mut self.texts, pod.namespace());
        let shape = Shape::of(&mut pod, &namespace, None).and_then(|shape| self.shapes.place(shape));
        let (kind, name) = pod.controller().map_or(("Pod", pod.name()), |owner| (&owner.kind, &owner.name));
        let kind = intern(&mut self.texts, kind);
        let workload = intern(&mut self.controllers, Workload { namespace, kind, name: name.into() });
        self.pods.push(IndexedPod {
            name: pod.name().into(),
            between: pod.controller().filter(|owner| is_between(owner)).map(|_| Arc::clone(&workload)),
            workload,
            shape,
            requests: Amount::of(&pod),
            node: pod.node.as_deref().map(|name| intern(&mut self.texts, name)),
        });
    }
}

/// Returns the known value that equals this one, and keeps a new one.
fn intern<T: Eq + Hash + ?Sized>(
    known: &mut HashSet<Arc<T>>,
    value: impl Borrow<T> + Into<Arc<T>>,
) -> Arc<T> {
    if let Some(known) = known.get(value.borrow()) {
        return Arc::clone(known);
    }
    let new = value.into();
    known.insert(Arc::clone(&new));
    new
}

/// Returns whether there usually is an owner above this controller.
pub(super) fn is_between(controller: &OwnerReference) -> bool {
    let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
    matches!((group, &*controller.kind), ("apps", "ReplicaSet") | ("batch", "Job"))
}
