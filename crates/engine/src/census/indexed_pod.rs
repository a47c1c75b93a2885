//! A Pod of a list, and the workload to which it belongs.

use std::sync::Arc;

use super::amount::Amount;

/// The controller of Pods, or the owner above it, such as a Deployment or a CronJob.
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
    /// The controller of the Pod if it is a ReplicaSet or a Job, which usually have an owner.
    pub between: Option<Arc<Workload>>,
    /// The owner above the controller, which follows from the controller's name or from the cluster. Without one: the
    /// controller, or the Pod itself.
    pub workload: Arc<Workload>,
    /// Index of the Pod's shape; `None` if the Pod cannot be read within the limits on untrusted input.
    pub shape: Option<usize>,
    pub requests: Amount,
    pub node: Option<Arc<str>>,
    /// Time of creation, in seconds since 1970; `None` if the Pod has none.
    pub created: Option<i64>,
    /// Unset if no webhook of tolerarch selects the Pod; set if that is unknown.
    pub is_called: bool,
}
