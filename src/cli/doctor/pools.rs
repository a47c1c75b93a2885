//! The configured pools against the nodes and Karpenter's NodePools that there are: whether a pool opens anything, whether
//! its images run there, and whether Karpenter would ever choose it.

use super::findings::{Exam, Findings};
use super::webhooks::some_of;
use crate::cli::inventory::Shown;
use crate::cli::output::count;
use crate::config::{Config, Discover};
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{Node, NodePool};
use tolerarch_kubernetes::discovery::{Discovery, Fit, KnownPool, NodeKind, Source, Verdict, fit};

/// Checks the pools of this configuration, and those that it lets be found.
pub(super) async fn check(exam: &mut Exam<'_>, config: &Config) {
    let Exam { client, findings, .. } = exam;
    let shown = match Shown::read(client, Discover { node_pools: true, nodes: true }).await {
        Ok(shown) => shown,
        Err(error) => return findings.unread("pools", "the nodes and NodePools", &error),
    };
    for note in &shown.notes {
        findings.unknown("pools", note);
    }
    let discovery = Discovery::of(&config.policy.pools, &shown.inventory);
    let finds = config.discover.node_pools;
    for known in discovery.pools.iter().filter(|known| finds || known.source == Source::Configured) {
        shown.check_pool(known, config.discover, findings);
    }
    for warning in discovery.warnings.iter().filter(|_| finds) {
        findings.unknown("pools", warning);
    }
}

impl Shown {
    fn check_pool(&self, known: &KnownPool<'_>, discover: Discover, findings: &mut Findings) {
        let KnownPool { pool, node_pools, nodes, .. } = known;
        let name = &pool.name;
        if *nodes == 0 && node_pools.is_empty() {
            return self.check_empty(pool, findings);
        }
        let before = findings.0.len();
        if !known.mismatch().is_empty() {
            let foreign = some_of(self.foreign(known));
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
            verdict @ Verdict::Behind { .. } => findings.failed(
                "pools",
                format!("pool {name}: {verdict}"),
                "change the weights: Karpenter takes NodePools by weight, then by name, and compares prices only within one",
            ),
            verdict @ Verdict::Unusable { .. } => {
                findings.unknown("pools", format!("pool {name}: {verdict}"));
            }
            Verdict::NoNodePool | Verdict::Own(_) => {}
        }
        if findings.0.len() == before {
            let nodes = count(*nodes as u64, "node");
            let of = match node_pools.len() {
                0 => nodes,
                _ => {
                    let names = some_of(node_pools.iter().map(|known| known.name()));
                    format!("{nodes}, and NodePool {names}")
                }
            };
            findings.ok("pools", format!("pool {name} opens {of}"));
        }
    }

    fn foreign<'a>(&'a self, known: &'a KnownPool<'_>) -> impl Iterator<Item = &'a str> {
        let nodes = self.nodes.iter().filter(|node| {
            fit(&known.pool.tolerations, &node.taints) == Fit::Opened
                && !known.declared.contains_all(NodeKind::of(node).platforms())
        });
        let is_foreign = |pool: &&&NodePool| !known.declared.contains_all(self.inventory.platforms_of(pool));
        let node_pools = known.node_pools.iter().filter(is_foreign);
        nodes.map(Node::name).chain(node_pools.map(|pool| pool.name()))
    }

    /// Nothing has a taint of the pool, as far as can be seen.
    fn check_empty(&self, pool: &Pool, findings: &mut Findings) {
        let name = &pool.name;
        if !self.notes.is_empty() {
            findings.unknown("pools", format!("no node that can be read has a taint of pool {name}"));
            return;
        }
        let nodes = self.nodes.iter().map(|node| (node.name(), &node.taints));
        let node_pools = self.inventory.node_pools.iter().map(|known| (known.name(), &known.taints));
        let lacking =
            nodes.chain(node_pools).find_map(|(name, taints)| match fit(&pool.tolerations, taints) {
                Fit::Lacking(taint) => Some((name, &taint.key)),
                Fit::Foreign | Fit::Opened => None,
            });
        let (why, fix) = match lacking {
            Some((node, key)) => (
                format!("{node} also has the taint {key}, which it does not tolerate"),
                format!("add a toleration for {key} to pool {name}, or remove the taint"),
            ),
            None => {
                let key = pool.tolerations.first().map_or("", |toleration| toleration.key.as_str());
                (
                    "no node and no NodePool has a taint that it tolerates".to_owned(),
                    format!(
                        "taint the nodes of the pool ({key}), or correct pools in the configuration; nothing to do if the pool is \
                         at zero and has no NodePool"
                    ),
                )
            }
        };
        findings.failed("pools", format!("pool {name} opens nothing: {why}"), fix);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tolerarch_kubernetes::discovery::Inventory;

    use super::*;

    #[test]
    fn one_node_is_told_as_one() {
        let labels = json!({"kubernetes.io/arch": "arm64"});
        let taint = json!({"key": "tolerarch.io/multi-arch", "value": "true", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": [taint]}});
        let node: Node = serde_json::from_value(node).unwrap();
        let inventory = Inventory::of(Vec::new(), &[NodeKind::of(&node)]);
        let shown = Shown { inventory, nodes: vec![node], notes: Vec::new() };
        let (config, mut findings) = (Config::default(), Findings::default());
        let discovery = Discovery::of(&config.policy.pools, &shown.inventory);
        shown.check_pool(&discovery.pools[0], config.discover, &mut findings);
        assert_eq!(findings.0[0].message, "pool multi-arch opens 1 node");
    }
}
