//! Pods of a list, kept small; those that are alike are decided together. The raw Pods are dropped.

use std::hash::Hash;
use std::sync::Arc;

use indexmap::IndexSet;

use super::shape::Shape;
use super::summary::{Amount, IndexedPod, Workload};
use tolerarch_kubernetes::cluster::{OwnerReference, StoredPod};

#[derive(Default)]
pub struct PodIndex {
    pub pods: Vec<IndexedPod>,
    pub shapes: IndexSet<Shape>,
    /// Names that many Pods share.
    texts: IndexSet<Arc<str>>,
    workloads: IndexSet<Arc<Workload>>,
}

impl PodIndex {
    /// Adds a Pod, unless it has ended: ended Pods request nothing any more.
    pub fn add(&mut self, mut pod: StoredPod) {
        if pod.has_ended() {
            return;
        }
        let namespace = intern(&mut self.texts, pod.namespace());
        let (texts, workloads) = (&mut self.texts, &mut self.workloads);
        let mut workload = |(kind, name): (&str, &str)| {
            let (namespace, kind) = (Arc::clone(&namespace), intern(texts, kind));
            intern(
                workloads,
                Workload {
                    namespace,
                    kind,
                    name: name.into(),
                },
            )
        };
        let between = pod.controller().filter(|owner| is_between(owner));
        let between = between.map(|owner| workload((&owner.kind, &owner.name)));
        let workload = workload(by_name(&pod));
        let shape =
            Shape::of(&mut pod, &namespace, None).map(|shape| self.shapes.insert_full(shape).0);
        self.pods.push(IndexedPod {
            name: pod.name().into(),
            between,
            workload,
            shape,
            requests: Amount::of(&pod),
            node: pod
                .node
                .as_deref()
                .map(|name| intern(&mut self.texts, name)),
        });
    }
}

/// Returns the known value that equals this one, and keeps a new one.
fn intern<T: Eq + Hash + ?Sized>(known: &mut IndexSet<Arc<T>>, value: impl Into<Arc<T>>) -> Arc<T> {
    let (place, _) = known.insert_full(value.into());
    Arc::clone(&known[place])
}

/// Returns kind and name of the Pod's workload, as far as names reveal it.
pub(super) fn by_name(pod: &StoredPod) -> (&str, &str) {
    let Some(controller) = pod.controller() else {
        return ("Pod", pod.name());
    };
    let facts = pod.facts.as_ref().filter(|_| is_between(controller));
    facts
        .and_then(|facts| facts.owner_above())
        .unwrap_or((&controller.kind, &controller.name))
}

/// Returns whether there usually is an owner above this controller.
fn is_between(controller: &OwnerReference) -> bool {
    let group = controller
        .api_version
        .split_once('/')
        .map_or("", |(group, _)| group);
    matches!(
        (group, &*controller.kind),
        ("apps", "ReplicaSet") | ("batch", "Job")
    )
}
