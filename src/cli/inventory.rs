//! NodePools and nodes of a cluster, which show its pools, read once with the user's own rights.

use crate::config::Discover;
use crate::serve::ClusterState;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{Node, NodePool, RequestError, UserClient};
use tolerarch_kubernetes::discovery::{Discovery, Inventory, NodeKind, selected_label_keys};

pub(super) struct ClusterNodes {
    pub(super) inventory: Inventory,
    /// False if the user may not read the NodePools. The inventory then has none.
    pub(super) has_read_node_pools: bool,
    /// `None` if the user may not read them.
    pub(super) nodes: Option<Vec<Node>>,
    /// Messages about lists that could not be read.
    pub(super) notes: Vec<String>,
}

impl ClusterNodes {
    /// Reads the NodePools and nodes that `discover` switches on, with the labels that select `pools`. A list that the
    /// user may not read is left out.
    pub(super) async fn read(
        client: &UserClient,
        discover: Discover,
        pools: &[Pool],
    ) -> Result<Self, RequestError> {
        let mut notes = Vec::new();
        let mut node_pools = Some(Vec::new());
        if discover.node_pools {
            let listed = client.list::<NodePool>(NodePool::PATH).await;
            node_pools = unless_forbidden("NodePools", listed, &mut notes)?;
        }
        let mut nodes = Some(Vec::new());
        if discover.nodes {
            let listed = client.list::<Node>(Node::PATH).await;
            nodes = unless_forbidden("nodes", listed, &mut notes)?;
        }
        let selected = selected_label_keys(pools);
        let mut kinds = Vec::new();
        for node in nodes.iter().flatten() {
            kinds.push(NodeKind::of(node, &selected));
        }
        let has_read_node_pools = node_pools.is_some();
        let inventory = Inventory::of(node_pools.unwrap_or_default(), &kinds);
        Ok(Self {
            inventory,
            has_read_node_pools,
            nodes,
            notes,
        })
    }

    /// Returns the discovered pools and platforms, and notes: lists that could not be read, mismatches with the
    /// configured pools, warnings.
    pub(super) fn discovered(self, configured: &[Pool]) -> (ClusterState, Vec<String>) {
        let Self {
            inventory,
            mut notes,
            ..
        } = self;
        // Objects that were left out of a list do not count, as for the webhook.
        let is_complete = notes.is_empty();
        let discovery = Discovery::of(configured, &inventory);
        notes.extend(discovery.mismatches());
        notes.extend(discovery.warnings);
        let state = ClusterState {
            inventory,
            is_complete,
        };
        (state, notes)
    }
}

/// Returns the items of a list: none if the kind does not exist, as without Karpenter; `None` and a note if the user may
/// not read the list.
fn unless_forbidden<T>(
    what: &str,
    list: Result<Vec<T>, RequestError>,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<T>>, RequestError> {
    match list {
        Err(error) if error.is_missing() => Ok(Some(Vec::new())),
        Err(error) if error.is_forbidden() => {
            notes.push(format!("{what} cannot be read, and are left out: {error}"));
            Ok(None)
        }
        list => list.map(Some),
    }
}
