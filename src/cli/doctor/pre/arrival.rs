//! The new node, and the cluster to which it comes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;

use crate::cli::autoscaler::AutoscalerSearch;
use crate::cli::inventory::ClusterNodes;
use crate::config::Verify;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{Node, UserClient};
use tolerarch_kubernetes::discovery::{Discovery, NewNode};

pub(super) struct Arrival<'a> {
    pub(super) client: &'a UserClient,
    /// Namespace to which the checks are limited.
    pub(super) only: Option<&'a str>,
    pub(super) architecture: &'a str,
    pub(super) platform: PlatformSet,
    /// Architectures of the existing nodes; amd64 if none is known.
    pub(super) present: BTreeSet<String>,
    pub(super) cluster: &'a ClusterNodes,
    pub(super) search: &'a AutoscalerSearch,
    pub(super) discovery: &'a Discovery<'a>,
    /// Pools with the platform, or the one that the user names.
    pub(super) pools: Vec<&'a Pool>,
    /// Possible new nodes, one for each source.
    pub(super) nodes: Vec<NewNode<'a>>,
    pub(super) namespaces: Vec<Namespace>,
    /// How far the cluster's configuration trusts an index.
    pub(super) verify: Verify,
}

impl Arrival<'_> {
    /// Returns whether an image for nodes of these platforms runs on the new node.
    pub(super) fn runs_on(&self, platforms: PlatformSet) -> bool {
        platforms.intersects(self.platform)
    }
}

/// Returns the architectures of nodes; amd64 if none is known.
pub(super) fn present(nodes: &[Node]) -> BTreeSet<String> {
    let mut present = BTreeSet::new();
    for node in nodes {
        if !node.architecture.is_empty() {
            present.insert(node.architecture.clone());
        }
    }
    if present.is_empty() {
        present.insert("amd64".to_owned());
    }
    present
}
