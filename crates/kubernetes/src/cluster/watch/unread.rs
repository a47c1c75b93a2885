//! Objects that cannot be read: counted, and named in the log.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ObjectMeta;
use prometheus::IntCounterVec;

use super::name;
use crate::cluster::ClusterError;
use tolerarch_support::metrics::Metrics;
use tolerarch_support::recently::Recently;
use tolerarch_support::sync::Mutex;

/// For how long, and of how many objects, it is known that they were named in the log.
const NAMED: (Duration, usize) = (Duration::from_secs(3600), 1024);

/// Reports objects that cannot be read. Clones share what was reported.
#[derive(Clone)]
pub(super) struct Unread {
    named: Arc<Mutex<Recently>>,
    pub(super) counted: Option<UnreadMetrics>,
}

impl Unread {
    pub(super) fn new() -> Self {
        Self { named: Arc::new(Mutex::new(Recently::new(NAMED.0, NAMED.1))), counted: None }
    }

    /// Counts an object, and names it in the log, once.
    pub(super) fn report(&self, resource: &str, meta: &ObjectMeta, error: ClusterError) {
        if let Some(UnreadMetrics(counted)) = &self.counted {
            counted.with_label_values(&[resource]).inc();
        }
        let name = name(meta);
        let id = format!("{resource} {name} {}", meta.uid.as_deref().unwrap_or_default());
        if self.named.lock().insert(&id) {
            tracing::warn!(resource, name, %error, "an object of the cluster cannot be read, and is left out");
        }
    }
}

/// What is counted of objects that cannot be read. Clones count the same.
#[derive(Clone)]
pub struct UnreadMetrics(IntCounterVec);

impl UnreadMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let unread = metrics.counters(
            "tolerarch_cluster_unread_objects_total",
            "Objects of the cluster that could not be read and were left out, at each list and watch.",
            &["resource"],
        )?;
        for resource in ["namespaces", "nodepools", "nodes", "pods"] {
            let _ = unread.with_label_values(&[resource]);
        }
        Ok(Self(unread))
    }
}
