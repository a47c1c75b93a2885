//! The Kubernetes API: one client, watches, typed objects, and what NodePools and nodes show.

pub mod cluster;
pub mod discovery;
