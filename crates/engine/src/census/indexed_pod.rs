//! A Pod of a list, and the workload to which it belongs.

use std::sync::Arc;

use super::amount::Amount;

/// Controller of Pods, or the owner above that people know, such as a Deployment or a CronJob.
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

#[derive(Debug, PartialEq)]
pub struct IndexedPod {
    pub name: Box<str>,
    /// Controller of the Pod if there usually is an owner above it: a ReplicaSet or a Job.
    pub between: Option<Arc<Workload>>,
    /// Owner above the controller, as names or the cluster say; else the controller, else the Pod.
    pub workload: Arc<Workload>,
    /// Place of the Pod's shape; `None` if the Pod cannot be read within the limits on untrusted input.
    pub shape: Option<usize>,
    pub requests: Amount,
    pub node: Option<Arc<str>>,
    /// When the Pod was created, in seconds since 1970; `None` if it does not say.
    pub created: Option<i64>,
    /// False if no webhook of tolerarch selects the Pod; true if that is not known.
    pub is_called: bool,
}
