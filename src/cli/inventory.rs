//! What a cluster shows of pools, read once with the rights of the person who asks.

use crate::config::Discover;
use crate::serve::Discovered;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{Node, NodePool, RequestError, UserClient};
use tolerarch_kubernetes::discovery::{Discovery, Inventory, NodeKind};

/// What could be read.
pub(super) struct Shown {
    pub(super) inventory: Inventory,
    /// Whether all lists could be read; it does not count what was left out of them, as for the webhook.
    is_complete: bool,
    /// What could not be read.
    pub(super) notes: Vec<String>,
}

impl Shown {
    /// Reads what of NodePools and nodes is to be read. A missing right to one of them leaves it out.
    ///
    /// # Errors
    /// The API server gives no answer, or one that cannot be read.
    pub(super) async fn read(client: &UserClient, discover: Discover) -> Result<Self, RequestError> {
        let mut notes = Vec::new();
        let mut lenient = |what: &str, error: RequestError| {
            if !error.is_forbidden() {
                return Err(error);
            }
            notes.push(format!("{what} cannot be read, and are left out: {error}"));
            Ok(())
        };
        let mut node_pools = Vec::new();
        if discover.node_pools {
            node_pools = match client.list::<NodePool>(NodePool::PATH).await {
                Ok(pools) => pools,
                Err(error) if error.is_missing() => Vec::new(),
                Err(error) => lenient("NodePools", error).map(|()| Vec::new())?,
            };
        }
        let mut nodes = Vec::new();
        if discover.nodes {
            nodes = match client.list::<Node>(Node::PATH).await {
                Ok(nodes) => nodes,
                Err(error) => lenient("nodes", error).map(|()| Vec::new())?,
            };
        }
        let kinds: Vec<NodeKind> = nodes.iter().map(NodeKind::of).collect();
        let is_complete = notes.is_empty();
        notes.extend(client.take_left_out());
        Ok(Self { inventory: Inventory::of(node_pools, &kinds), is_complete, notes })
    }

    /// The same where the configuration says that something is to be read.
    pub(super) async fn configured(
        client: &UserClient,
        discover: Discover,
    ) -> Result<Option<Self>, RequestError> {
        if !discover.is_on() {
            return Ok(None);
        }
        Self::read(client, discover).await.map(Some)
    }

    /// What decides, and what people should know of it beside these pools of the configuration.
    pub(super) fn noted(self, configured: &[Pool]) -> (Discovered, Vec<String>) {
        let Self { inventory, is_complete, mut notes } = self;
        let discovery = Discovery::of(configured, &inventory);
        notes.extend(discovery.mismatches());
        notes.extend(discovery.warnings);
        (Discovered { inventory, is_complete }, notes)
    }
}
