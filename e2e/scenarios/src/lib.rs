//! The harness of the scenarios: tolerarch in front of a real control plane.
//!
//! A scenario receives the [`Cluster`], creates a [`Namespace`] in it, and makes its assertions there. The parts:
//!
//! - `programs` builds the programs. A [`Process`] is a running program, which ends with this one.
//! - `control_plane` is etcd, the API server, the controller manager and the scheduler.
//! - `distribution` is a real registry, which holds the images of `fixtures`.
//! - [`Local`] is what only a cluster on this machine has, such as [`Tolerarch`]. [`Kind`] is a cluster with real nodes.
//! - [`Stub`] is a webhook that a scenario programs. [`Forwarder`] stands for a Service.
//! - [`Karpenter`] and [`ClusterAutoscaler`] are the autoscalers. [`Peer`] is another tool's webhook.
//! - [`AdminCluster`] is another cluster, with a shell in which documented commands run.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and their support fail at once"
)]

mod admin_cluster;
mod cluster;
mod cluster_autoscaler;
mod control_plane;
mod distribution;
mod fixtures;
mod forwarder;
mod karpenter;
mod kind;
mod kwok;
mod local;
mod metrics;
mod namespace;
mod peer;
mod pods;
mod process;
mod programs;
mod stub;
mod tolerarch;
mod wait;
mod workload_controller;

pub use admin_cluster::AdminCluster;
pub use cluster::Cluster;
pub use cluster_autoscaler::{
    AUTOSCALED, AutoscalerSettings, ClusterAutoscaler, NODE_GROUP, NodeGroup,
    define_provisioning_requests,
};
pub use forwarder::Forwarder;
pub use karpenter::{Karpenter, define_capacity_buffers, define_ec2_node_class, node_pool};
pub use kind::Kind;
pub use local::Local;
pub use namespace::Namespace;
pub use peer::{Archaware, Peer, Tool};
pub use pods::{POOL, PodExt, add_container, deployment, pod};
pub use process::Process;
pub use programs::is_optimized;
pub use stub::{Reaction, Stub};
pub use tolerarch::Tolerarch;
pub use wait::{soon, until, until_in, until_ok};
pub use workload_controller::WorkloadController;
