//! The Pods of a list in little memory, without the raw Pods. Pods that are alike share one shape, and so one decision.

use std::hash::Hash;
use std::sync::Arc;

use indexmap::IndexSet;

use super::amount::Amount;
use super::indexed_pod::{IndexedPod, Workload};
use super::shape::Shape;
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
    /// Adds a Pod, unless it has ended: an ended Pod requests nothing. `is_called` is false if no webhook of tolerarch
    /// selects the Pod.
    pub fn add(&mut self, mut pod: StoredPod, is_called: bool) {
        if pod.has_ended() {
            return;
        }
        let namespace = intern(&mut self.texts, pod.namespace());
        let mut between = None;
        if let Some(owner) = pod.controller()
            && is_between(owner)
        {
            between = Some(self.workload(&namespace, (&owner.kind, &owner.name)));
        }
        let workload = self.workload(&namespace, by_name(&pod));
        let mut shape_index = None;
        if let Some(shape) = Shape::of(&mut pod, &namespace, None) {
            let (index, _) = self.shapes.insert_full(shape);
            shape_index = Some(index);
        }
        let mut node = None;
        if let Some(name) = &pod.node {
            node = Some(intern(&mut self.texts, &**name));
        }
        let mut created = None;
        if let Some(time) = &pod.metadata.creation_timestamp {
            created = Some(time.0.as_second());
        }
        self.pods.push(IndexedPod {
            name: pod.name().into(),
            between,
            workload,
            shape: shape_index,
            requests: Amount::of(&pod),
            node,
            created,
            is_called,
        });
    }

    fn workload(&mut self, namespace: &Arc<str>, (kind, name): (&str, &str)) -> Arc<Workload> {
        let workload = Workload {
            namespace: Arc::clone(namespace),
            kind: intern(&mut self.texts, kind),
            name: name.into(),
        };
        intern(&mut self.workloads, workload)
    }
}

/// Returns the stored value that equals this one, which is stored if it is new.
fn intern<T: Eq + Hash + ?Sized>(
    stored: &mut IndexSet<Arc<T>>,
    value: impl Into<Arc<T>>,
) -> Arc<T> {
    let (index, _) = stored.insert_full(value.into());
    Arc::clone(&stored[index])
}

/// Returns kind and name of the Pod's workload, as names reveal it.
pub(super) fn by_name(pod: &StoredPod) -> (&str, &str) {
    let Some(controller) = pod.controller() else {
        return ("Pod", pod.name());
    };
    if is_between(controller)
        && let Some(facts) = &pod.facts
        && let Some(owner) = facts.owner_above()
    {
        return owner;
    }
    (&controller.kind, &controller.name)
}

/// Returns whether there usually is an owner above this controller.
fn is_between(controller: &OwnerReference) -> bool {
    let Some((group, _)) = controller.api_version.split_once('/') else {
        return false;
    };
    matches!(
        (group, &*controller.kind),
        ("apps", "ReplicaSet") | ("batch", "Job")
    )
}
