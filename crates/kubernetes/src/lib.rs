//! The Kubernetes API, and the architectures of a cluster's nodes.
//!
//! [`cluster`] has the client, bounded lists and watches that read each object by itself, and partial types of objects.
//! [`discovery`] is pure: from NodePools and nodes to pools, their nodes' platforms, and the next node's NodePool.
//! [`autoscaler`] is pure as well: what the cluster-autoscaler makes of its priorities. So is [`node_agent`]: what
//! DaemonSets do for their nodes.

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
