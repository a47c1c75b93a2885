//! The Kubernetes API, and the architectures of a cluster's nodes.
//!
//! [`cluster`] has the client, bounded lists and watches that read each object by itself, and partial types of the
//! objects. [`discovery`] is pure: from NodePools and nodes to the pools, the platforms of their nodes, and the
//! NodePool of the next node.

pub mod cluster;
pub mod discovery;
