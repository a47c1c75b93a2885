//! The Kubernetes API, and the architectures of a cluster's nodes.
//!
//! [`cluster`] has the client, bounded lists and watches that read objects one by one, and partial types of objects.
//! The other modules are pure. [`discovery`] derives pools, the platforms of their nodes, and the NodePool of the next
//! node from NodePools and nodes. [`autoscaler`] judges which node group the cluster-autoscaler chooses.
//! [`node_agent`] recognizes what DaemonSets do for their nodes.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod autoscaler;
pub mod cluster;
pub mod discovery;
pub mod node_agent;
