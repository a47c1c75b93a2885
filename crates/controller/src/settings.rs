//! Settings of the controller.

use std::collections::BTreeMap;

use tokio::time::Duration;

use tolerarch_kubernetes::cluster::{ObjectName, Taint, WEBHOOK_CONFIGURATION};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Set if pending Pods get the tolerations that the webhook could not add.
    pub repair: bool,
    /// Set if events report on Pods why they are not eligible, and later changes.
    pub events: bool,
    /// Set if the controller reads the last log line of a container that ended at once, for these events.
    pub pod_logs: bool,
    /// Set if images that fail on an architecture are recorded, so that Pods with them get no tolerations for it.
    pub learn: bool,
    /// Set if Pods whose image has failed on their node's architecture are evicted.
    pub evict_failed: bool,
    /// Time between counts of all Pods; zero for no counts.
    pub census: Duration,
    pub node_taints: Vec<NodeTaint>,
    /// MutatingWebhookConfigurations that show for which Pods the webhook is called.
    pub webhook_configurations: Vec<ObjectName>,
    /// Lease whose holder leads.
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
    /// Labels that a node must have, at least one.
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
