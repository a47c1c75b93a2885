//! Settings of the controller.

use std::collections::BTreeMap;

use tokio::time::Duration;

use tolerarch_kubernetes::cluster::{ObjectName, Taint, WEBHOOK_CONFIGURATION};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Set if pending Pods get the tolerations that the webhook could not add.
    pub repair: bool,
    /// Set if events on Pods report why pools are closed, and later changes.
    pub events: bool,
    /// Set if, for these events, the last log line of a container that ended at once is read.
    pub pod_logs: bool,
    /// Set if images that fail on an architecture are recorded, so that Pods with them get no tolerations for it.
    pub learn: bool,
    /// Set if Pods whose image has failed there are evicted.
    pub evict_failed: bool,
    /// Time between counts of all Pods; zero for none.
    pub census: Duration,
    pub node_taints: Vec<NodeTaint>,
    /// MutatingWebhookConfigurations by which the controller knows for which Pods the webhook is called.
    pub webhook_configurations: Vec<ObjectName>,
    /// Lease by which one replica leads.
    pub lease: ObjectName,
}

impl ControllerSettings {
    /// Returns the name of the ConfigMap that records failed images.
    pub fn failed_images(&self) -> ObjectName {
        self.lease.with_suffix("-failed-images")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTaint {
    /// Labels, at least one, all of which the node must have.
    pub selector: BTreeMap<String, String>,
    pub taint: Taint,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            repair: true,
            events: true,
            pod_logs: false,
            learn: true,
            evict_failed: false,
            census: Duration::from_secs(600),
            node_taints: Vec::new(),
            webhook_configurations: ObjectName::new(WEBHOOK_CONFIGURATION).into_iter().collect(),
            lease: ObjectName::new("tolerarch-controller").unwrap_or_default(),
        }
    }
}
