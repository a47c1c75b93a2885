//! The configured pools against the nodes and Karpenter's NodePools that there are: whether a pool opens anything, whether
//! its images run there, and whether Karpenter would ever choose it.

use super::findings::Findings;
use super::webhooks::some_of;
use crate::config::Config;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{Node, NodePool, UserClient};
use tolerarch_kubernetes::discovery::{Discovery, Fit, Inventory, KnownPool, NodeKind, Source, Verdict, fit};

/// The nodes and the NodePools, where they can be read.
pub(super) struct Cluster {
    nodes: Option<Vec<Node>>,
    node_pools: Option<Vec<NodePool>>,
}

impl Cluster {
    pub(super) async fn read(client: &UserClient, findings: &mut Findings) -> Self {
        let nodes = match client.list(Node::PATH).await {
            Ok(nodes) => Some(nodes),
            Err(error) => {
                findings.unread("pools", "the nodes", &error);
                None
            }
        };
        let node_pools = match client.list(NodePool::PATH).await {
            Ok(pools) => Some(pools),
            // No Karpenter.
            Err(error) if error.is_missing() => Some(Vec::new()),
            Err(error) => {
                findings.unread("pools", "Karpenter's NodePools", &error);
                None
            }
        };
        Self { nodes, node_pools }
    }

    /// The pools of this configuration, and those that it lets be found.
    pub(super) fn check(&self, config: &Config, findings: &mut Findings) {
        let nodes = self.nodes.as_deref().unwrap_or_default();
        let kinds: Vec<NodeKind> = nodes.iter().map(NodeKind::of).collect();
        let inventory = Inventory::of(self.node_pools.iter().flatten().cloned(), &kinds);
        let discovery = Discovery::of(&config.policy.pools, &inventory);
        let finds = config.discover.node_pools;
        for known in discovery.pools.iter().filter(|known| finds || known.source == Source::Configured) {
            self.check_pool(known, &inventory, config, findings);
        }
        for warning in discovery.warnings.iter().filter(|_| finds) {
            findings.unknown("pools", warning);
        }
    }

    fn check_pool(
        &self,
        known: &KnownPool<'_>,
        inventory: &Inventory,
        config: &Config,
        findings: &mut Findings,
    ) {
        let KnownPool { pool, node_pools, nodes, .. } = known;
        let name = &pool.name;
        if *nodes == 0 && node_pools.is_empty() {
            return self.nothing(pool, findings);
        }
        let before = findings.0.len();
        if !known.mismatch().is_empty() {
            let foreign = some_of(self.foreign(known, inventory));
            let discover = config.discover;
            if discover.nodes || discover.node_pools && !node_pools.is_empty() {
                let mismatch = known.mismatch();
                findings.unknown(
                    "pools",
                    format!("pool {name} opens {foreign}: its images have to run on {mismatch}, too"),
                );
            } else {
                findings.failed(
                    "pools",
                    format!("pool {name} opens {foreign}, of an architecture that is not in its platforms"),
                    format!(
                        "add the architecture to the platforms of {name}, taint these nodes otherwise, or let tolerarch look \
                         (discover)"
                    ),
                );
            }
        }
        match &known.verdict {
            Verdict::Behind { first, own } => {
                let taints =
                    if first.taints.is_empty() { "no taint" } else { "only taints that are tolerated" };
                let (own, other, weight) = (own.name(), first.name(), first.weight);
                let advice = if weight < NodePool::HEAVIEST {
                    format!("give {own} a weight of {} or more", weight + 1)
                } else {
                    format!("lower the weight of {other}, as no NodePool can have more")
                };
                findings.failed(
                    "pools",
                    format!(
                        "pool {name}: NodePool {own} is never chosen: new nodes come from {other}, which has {taints}, weight \
                         {weight} and comes first"
                    ),
                    format!("{advice}: Karpenter compares prices only within one NodePool"),
                );
            }
            verdict @ Verdict::Unusable { .. } => {
                findings.unknown("pools", format!("pool {name}: {verdict}"));
            }
            Verdict::NoNodePool | Verdict::Own(_) => {}
        }
        if findings.0.len() == before {
            let of = match node_pools.len() {
                0 => format!("{nodes} nodes"),
                _ => {
                    let names = some_of(node_pools.iter().map(|known| known.name()));
                    format!("{nodes} nodes, and NodePool {names}")
                }
            };
            findings.ok("pools", format!("pool {name} opens {of}"));
        }
    }

    /// What it opens that has other platforms than it declares.
    fn foreign<'a>(
        &'a self,
        known: &'a KnownPool<'_>,
        inventory: &'a Inventory,
    ) -> impl Iterator<Item = &'a str> {
        let nodes = self.nodes.iter().flatten().filter(|node| {
            fit(&known.pool.tolerations, &node.taints) == Fit::Opened
                && !known.declared.contains_all(NodeKind::of(node).platforms())
        });
        let node_pools = known.node_pools.iter();
        let node_pools = node_pools.filter(|pool| !known.declared.contains_all(inventory.platforms_of(pool)));
        nodes.map(Node::name).chain(node_pools.map(|pool| pool.name()))
    }

    /// Nothing has a taint of the pool, as far as can be seen.
    fn nothing(&self, pool: &Pool, findings: &mut Findings) {
        let (Some(nodes), Some(node_pools)) = (&self.nodes, &self.node_pools) else {
            findings.unknown("pools", format!("no node that can be read has a taint of pool {}", pool.name));
            return;
        };
        let nodes = nodes.iter().map(|node| (node.name(), &node.taints));
        let all = nodes.chain(node_pools.iter().map(|known| (known.name(), &known.taints)));
        let lacking = all.filter_map(|(name, taints)| match fit(&pool.tolerations, taints) {
            Fit::Lacking(taint) => Some((name, &taint.key)),
            Fit::Foreign | Fit::Opened => None,
        });
        match lacking.into_iter().next() {
            Some((node, key)) => findings.failed(
                "pools",
                format!(
                    "pool {} opens nothing: {node} also has the taint {key}, which it does not tolerate",
                    pool.name
                ),
                format!("add a toleration for {key} to pool {}, or remove the taint", pool.name),
            ),
            None => {
                let key = pool.tolerations.first().map_or("", |toleration| toleration.key.as_str());
                findings.failed(
                    "pools",
                    format!("pool {} opens nothing: no node and no NodePool has a taint that it tolerates", pool.name),
                    format!(
                        "taint the nodes of the pool ({key}), or correct pools in the configuration; nothing to do if the pool is \
                         at zero and has no NodePool"
                    ),
                );
            }
        }
    }
}
