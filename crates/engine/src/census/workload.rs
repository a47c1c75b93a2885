//! Workloads of Pods: their controllers, or the owners above that people know, such as Deployment and CronJob.

use std::sync::Arc;

use tolerarch_kubernetes::cluster::{OwnerReference, StoredPod};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    pub namespace: Arc<str>,
    /// `Pod` for a Pod without an owner.
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Workload {
    /// Returns `Deployment/web`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

/// Returns whether there usually is an owner above this controller.
pub(super) fn is_between(controller: &OwnerReference) -> bool {
    let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
    matches!((group, &*controller.kind), ("apps", "ReplicaSet") | ("batch", "Job"))
}

/// Returns kind and name of the Pod's workload, as far as names reveal it.
pub(super) fn by_name(pod: &StoredPod) -> (&str, &str) {
    let Some(controller) = pod.controller() else { return ("Pod", pod.name()) };
    let facts = pod.facts.as_ref().filter(|_| is_between(controller));
    facts.and_then(|facts| facts.owner_above()).unwrap_or((&controller.kind, &controller.name))
}
