//! What the configuration says of the controller.

use std::collections::BTreeMap;

use tokio::time::Duration;

use tolerarch_kubernetes::cluster::{ObjectName, Taint, WEBHOOK_CONFIGURATION};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Whether Pods without a node get what the webhook could not give them.
    pub repair: bool,
    /// Whether Pods show by events what keeps their pools closed, and what has become of them.
    pub events: bool,
    /// Whether, for these events, the last line is read that a container has written which ended at once.
    pub pod_logs: bool,
    /// Whether images that fail on an architecture are recorded, and kept from its pools.
    pub learn: bool,
    /// How often all Pods are counted; zero for never.
    pub census: Duration,
    pub node_taints: Vec<NodeTaint>,
    /// The MutatingWebhookConfigurations that say which Pods are tolerarch's concern.
    pub webhook_configurations: Vec<ObjectName>,
    /// The Lease by which one replica leads.
    pub lease: ObjectName,
}

impl ControllerSettings {
    /// The ConfigMap of images that failed, in its own namespace.
    pub fn failed_images(&self) -> ObjectName {
        self.lease.with_suffix("-failed-images")
    }
}

/// A taint, and the nodes that get it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTaint {
    /// Labels, all of which such a node has. There is one at least.
    pub selector: BTreeMap<String, String>,
    pub taint: Taint,
}

/// Prefixes of keys that others set by the state of a node.
const RESERVED: [&str; 3] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/"];

/// Whether taints of this key are never set, so that none can be one that the controller has set.
pub fn is_reserved_taint(key: &str) -> bool {
    RESERVED.iter().any(|prefix| key.starts_with(prefix))
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            repair: true,
            events: true,
            pod_logs: false,
            learn: true,
            census: Duration::from_secs(600),
            node_taints: Vec::new(),
            webhook_configurations: ObjectName::new(WEBHOOK_CONFIGURATION).into_iter().collect(),
            lease: ObjectName::new("tolerarch-controller").unwrap_or_default(),
        }
    }
}
