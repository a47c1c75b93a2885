//! The controllers of Pods, and the owners above them that people know, such as Deployment and CronJob: by names mostly.

use std::sync::Arc;

use super::Workload;
use tolerarch_kubernetes::cluster::{Owner, StoredPod};

/// Labels that hold the hash of a template, which ends the name of its ReplicaSet.
const HASHES: [(&str, &str); 2] =
    [("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    kind: Arc<str>,
    name: Arc<str>,
    /// The owner above, by the names.
    above: Option<(&'static str, Arc<str>)>,
    is_between: bool,
}

impl Controller {
    pub(super) fn of(owner: &Owner, pod: &StoredPod) -> Self {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_between = matches!((group, &*owner.kind), ("apps", "ReplicaSet") | ("batch", "Job"));
        let labels = pod.metadata.labels.as_ref();
        let by_hash = HASHES.iter().find_map(|(label, kind)| {
            let hash = labels?.get(*label).filter(|hash| !hash.is_empty())?;
            let name = owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')?;
            Some((*kind, name.into()))
        });
        let facts = pod.facts.as_ref().map(|facts| facts.workload());
        let by_time = facts.filter(|(kind, name)| *kind == "Job" && *name != owner.name);
        let by_time = by_time.map(|(_, name)| ("CronJob", name.into()));
        let above = by_hash.or(by_time).filter(|_| is_between);
        Self { kind: owner.kind.as_str().into(), name: owner.name.as_str().into(), above, is_between }
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there usually is an owner above it: it is a ReplicaSet or a Job.
    pub fn is_between(&self) -> bool {
        self.is_between
    }

    /// What its Pods are of, if nothing is above it.
    pub fn workload(&self, namespace: &Arc<str>) -> Workload {
        Workload {
            namespace: Arc::clone(namespace),
            kind: Arc::clone(&self.kind),
            name: Arc::clone(&self.name),
        }
    }

    /// What its Pods are of, as far as names tell.
    pub fn workload_by_name(&self, namespace: &Arc<str>) -> Workload {
        match &self.above {
            Some((kind, name)) => {
                Workload { namespace: Arc::clone(namespace), kind: (*kind).into(), name: Arc::clone(name) }
            }
            None => self.workload(namespace),
        }
    }
}
