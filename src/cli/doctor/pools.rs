//! The configured pools against the nodes and Karpenter's NodePools that there are: whether a pool opens anything, whether
//! its images run there, and whether Karpenter would ever choose it.

use super::findings::Findings;
use super::objects::{Node, NodePool, Taint};
use super::webhooks::some_of;
use crate::cluster::UserClient;
use crate::image::PlatformSet;
use crate::pod::Toleration;
use crate::policy::Pool;

const NODE_POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
/// Taints that come and go with a node's state.
const PASSING: [&str; 3] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/"];

/// What a pool's tolerations make of the taints of some nodes.
#[derive(Debug, PartialEq)]
enum Fit<'a> {
    /// None of the taints concerns the pool.
    Foreign,
    /// All are tolerated, and there are some.
    Opened,
    /// Some are, and this one is not.
    Lacking(&'a str),
}

/// Taints that keep Pods away.
fn lasting(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    let passes = |taint: &&Taint| PASSING.iter().any(|prefix| taint.key.starts_with(prefix));
    taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").filter(move |taint| !passes(taint))
}

fn fit<'a>(pool: &Pool, taints: &'a [Taint]) -> Fit<'a> {
    let tolerated = |taint: &Taint| {
        let taint = Toleration {
            key: taint.key.clone().into(),
            operator: "Equal".into(),
            value: taint.value.clone().into(),
            effect: taint.effect.clone().into(),
            toleration_seconds: None,
        };
        pool.tolerations.iter().any(|toleration| toleration.covers(&taint))
    };
    let (open, closed): (Vec<&Taint>, Vec<&Taint>) = lasting(taints).partition(|taint| tolerated(taint));
    match (open.is_empty(), closed.first()) {
        (true, _) => Fit::Foreign,
        (false, None) => Fit::Opened,
        (false, Some(taint)) => Fit::Lacking(&taint.key),
    }
}

/// The nodes and the NodePools, where they can be read.
pub(super) struct Cluster {
    nodes: Option<Vec<Node>>,
    node_pools: Option<Vec<NodePool>>,
}

impl Cluster {
    pub(super) async fn read(client: &UserClient, findings: &mut Findings) -> Self {
        let nodes = match client.list("/api/v1/nodes").await {
            Ok(nodes) => Some(nodes),
            Err(error) => {
                findings.unread("pools", "the nodes", &error);
                None
            }
        };
        let node_pools = match client.list(NODE_POOLS).await {
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

    pub(super) fn check(&self, pool: &Pool, findings: &mut Findings) {
        let name = &pool.name;
        let (nodes, node_pools) = (self.nodes.as_deref(), self.node_pools.as_deref());
        let opened: Vec<&Node> = nodes
            .unwrap_or_default()
            .iter()
            .filter(|node| fit(pool, &node.spec.taints) == Fit::Opened)
            .collect();
        let chosen: Vec<&NodePool> = node_pools
            .unwrap_or_default()
            .iter()
            .filter(|known| fit(pool, &known.spec.template.spec.taints) == Fit::Opened)
            .collect();
        if opened.is_empty() && chosen.is_empty() {
            return self.nothing(pool, findings);
        }
        let before = findings.0.len();
        let foreign = opened.iter().filter(|node| !runs(pool, node)).map(|node| node.metadata.name.as_str());
        let foreign = some_of(foreign);
        if !foreign.is_empty() {
            findings.failed(
                "pools",
                format!("pool {name} opens {foreign}, of an architecture that is not in its platforms"),
                format!("add the architecture to the platforms of {name}, or taint these nodes otherwise"),
            );
        }
        for own in &chosen {
            if let Some(rival) = rival(own, node_pools.unwrap_or_default()) {
                let (own, other) = (&own.metadata.name, &rival.metadata.name);
                let weight = weight(rival);
                findings.failed(
                    "pools",
                    format!(
                        "pool {name}: NodePool {own} is never chosen: new nodes come from {other}, which has no taint, weight \
                         {weight} and comes first"
                    ),
                    format!("give {own} a weight of {} or more: Karpenter compares prices only within one NodePool", weight + 1),
                );
            }
        }
        if findings.0.len() == before {
            let of = match (opened.len(), chosen.len()) {
                (nodes, 0) => format!("{nodes} nodes"),
                (nodes, _) => {
                    let names = some_of(chosen.iter().map(|known| known.metadata.name.as_str()));
                    format!("{nodes} nodes, and NodePool {names}")
                }
            };
            findings.ok("pools", format!("pool {name} opens {of}"));
        }
    }

    /// Nothing has a taint of the pool, as far as can be seen.
    fn nothing(&self, pool: &Pool, findings: &mut Findings) {
        let (Some(nodes), Some(node_pools)) = (&self.nodes, &self.node_pools) else {
            findings.unknown("pools", format!("no node that can be read has a taint of pool {}", pool.name));
            return;
        };
        let nodes = nodes.iter().map(|node| (&node.metadata.name, &node.spec.taints));
        let all = nodes
            .chain(node_pools.iter().map(|known| (&known.metadata.name, &known.spec.template.spec.taints)));
        let lacking = all.filter_map(|(name, taints)| match fit(pool, taints) {
            Fit::Lacking(key) => Some((name, key)),
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

/// Whether a node's architecture is one that the pool's images run on. What is not known does no harm here.
fn runs(pool: &Pool, node: &Node) -> bool {
    let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
    let Some(architecture) = label("kubernetes.io/arch") else { return true };
    let platform = format!("{}/{architecture}", label("kubernetes.io/os").unwrap_or("linux"));
    platform.parse::<PlatformSet>().is_ok_and(|platform| pool.platforms.contains_all(platform))
}

fn weight(pool: &NodePool) -> u32 {
    pool.spec.weight.unwrap_or(0)
}

/// The NodePool without taints that Karpenter always takes before this one, if there is one: it goes by weight, then by
/// name, the later in the alphabet first.
fn rival<'a>(own: &NodePool, all: &'a [NodePool]) -> Option<&'a NodePool> {
    let rank = |pool: &NodePool| (weight(pool), pool.metadata.name.clone());
    let is_ready = |pool: &NodePool| {
        let mut conditions = pool.status.conditions.iter();
        !conditions.any(|condition| condition.r#type == "Ready" && condition.status == "False")
    };
    let open = |pool: &&NodePool| lasting(&pool.spec.template.spec.taints).next().is_none() && is_ready(pool);
    all.iter().filter(open).filter(|other| rank(other) > rank(own)).max_by_key(|other| rank(other))
}
