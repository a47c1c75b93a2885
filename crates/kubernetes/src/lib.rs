//! The Kubernetes API, and the architectures of a cluster's nodes.
//!
//! [`cluster`] has the client, bounded lists and watches that read each object by itself, and partial types of objects.
//! [`discovery`] is pure: from NodePools and nodes to pools, their nodes' platforms, and the next node's NodePool.

pub mod cluster;
pub mod discovery;
