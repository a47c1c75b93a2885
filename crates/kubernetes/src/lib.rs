//! The Kubernetes API, and what it shows of a cluster's architectures.
//!
//! [`cluster`] has the client, its lists and watches, which read each object by itself and within bounds, and the objects as
//! far as they matter here. [`discovery`] is pure: from NodePools and nodes to the pools there are, the platforms that they
//! can have, and the NodePool from which the next node comes.

pub mod cluster;
pub mod discovery;
