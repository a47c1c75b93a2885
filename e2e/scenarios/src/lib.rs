//! The harness of the scenarios: tolerarch in front of a real control plane.
//!
//! A scenario gets the [`Cluster`], makes itself a [`Namespace`], and says what it expects there. Under the cluster lie
//! `programs` (what has to be built), [`Process`] (a program that runs, and ends with this one), `control_plane` (etcd,
//! API server, controller manager, scheduler), `distribution` (a real registry with the images of `fixtures`) and
//! [`Tolerarch`], as far as they are of this machine a [`Local`]. [`Stub`] is a webhook that does what a scenario wants, [`Forwarder`] stands for a Service, and
//! [`Karpenter`] and [`ClusterAutoscaler`] are the autoscalers, [`Peer`] is another tool's webhook. [`Kind`] is a cluster with real nodes. A [`Desk`] is a cluster of its own for what changes all of it.

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

mod cluster;
mod cluster_autoscaler;
mod control_plane;
mod desk;
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

pub use cluster::Cluster;
pub use cluster_autoscaler::{
    AUTOSCALED, AutoscalerSettings, ClusterAutoscaler, NODE_GROUP, NodeGroup,
    define_provisioning_requests,
};
pub use desk::Desk;
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
