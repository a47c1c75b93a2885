//! NodePools that create nodes of the platform.

use super::super::arrival::Arrival;
use tolerarch_kubernetes::cluster::NodePool;
use tolerarch_kubernetes::discovery::ClusterPool;

/// Returns the NodePools of a pool whose requirements allow the platform.
pub(super) fn makers<'a>(
    arrival: &Arrival<'_>,
    cluster_pool: &ClusterPool<'a>,
) -> Vec<&'a NodePool> {
    let mut makers = cluster_pool.node_pools.clone();
    let inventory = &arrival.cluster.inventory;
    makers.retain(|node_pool| inventory.platforms_of(node_pool).contains(arrival.platform));
    makers
}
