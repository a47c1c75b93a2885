//! Checks of the pools: which nodes and NodePools a pool opens, and whether Karpenter and the cluster-autoscaler create
//! new nodes there.

use super::findings::{Exam, Findings, Status, some_of};
use crate::cli::autoscaler::AutoscalerSearch;
use crate::cli::inventory::ClusterNodes;
use crate::cli::output::count;
use crate::config::{Config, Discover};
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::autoscaler::{Autoscaler, Choice, Outlook, Priorities};
use tolerarch_kubernetes::cluster::NodePool;
use tolerarch_kubernetes::discovery::{ClusterPool, Discovery, Source, Verdict, lacking};

/// Advice if Karpenter takes other NodePools before those of a pool.
pub(super) const RANK_FIX: &str = "change the weights: Karpenter takes NodePools by weight, then by name, and compares prices only within one";

/// Checks the pools of this configuration, and the discovered pools if discovery is on.
pub(super) async fn check(exam: &mut Exam<'_>, config: &Config) {
    let findings = &mut exam.findings;
    let cluster = ClusterNodes::read(exam.client, Discover::ALL, &config.policy.pools).await;
    let Some(cluster) = findings.read("pools", "the nodes and NodePools", cluster) else {
        return;
    };
    let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
    let is_discovering = config.discover.node_pools;
    let nodes = cluster.nodes.as_deref();
    let search = AutoscalerSearch::read(exam.client, nodes).await;
    for note in cluster.notes.iter().chain(&search.notes) {
        findings.unknown("pools", note);
    }
    if is_discovering {
        for warning in &discovery.warnings {
            findings.unknown("pools", warning);
        }
    }
    let autoscaler = search.autoscaler.as_ref();
    if let Some(autoscaler) = autoscaler {
        check_platforms(config, autoscaler, findings);
    }
    let grouped = autoscaler.map(|autoscaler| autoscaler.grouped(nodes.unwrap_or_default()));
    for cluster_pool in &discovery.pools {
        if !is_discovering && cluster_pool.source != Source::Configured {
            continue;
        }
        let grouped = grouped.as_ref();
        let outlook = grouped.map(|grouped| grouped.outlook(&cluster_pool.pool));
        check_pool(
            cluster_pool,
            &cluster,
            config.discover,
            outlook.as_ref(),
            findings,
        );
        if let Some(autoscaler) = autoscaler
            && let Some(outlook) = outlook
            && outlook.concerns(cluster_pool)
        {
            check_autoscaler(&cluster_pool.pool.name, autoscaler, &outlook, findings);
        }
    }
}

/// Checks whether discovery sees all architectures of the cluster-autoscaler's groups, if placement uses them.
fn check_platforms(config: &Config, autoscaler: &Autoscaler, findings: &mut Findings) {
    let profiles = config.policies(&config.policy);
    let mut policies = profiles.values().chain([&config.policy]);
    let is_discovered = policies.any(|policy| policy.placement.discovered);
    let empty = autoscaler.empty_groups();
    if !is_discovered || empty.is_empty() {
        return;
    }
    let message = format!(
        "placement.platforms: discovered does not see the architecture of node groups without nodes: {}",
        some_of(empty)
    );
    let fix = "name all architectures of the node groups in placement.platforms, unless the pools name them";
    findings.add(Status::Unknown, "pools", message, fix);
}

/// Checks whether the cluster-autoscaler takes the node groups of a pool first.
fn check_autoscaler(
    name: &str,
    autoscaler: &Autoscaler,
    outlook: &Outlook<'_>,
    findings: &mut Findings,
) {
    let choice = &outlook.choice;
    let message = format!("pool {name}: {choice}");
    if choice.is_right() {
        findings.ok("pools", message);
    } else if choice.is_wrong() {
        findings.failed("pools", message, choice_fix(name, autoscaler, choice));
    } else {
        findings.unknown("pools", message);
    }
    for warning in outlook.warnings() {
        findings.unknown("pools", format!("pool {name}: {warning}"));
    }
}

/// Returns advice on how to have the cluster-autoscaler take the node groups of a pool first.
pub(super) fn choice_fix(name: &str, autoscaler: &Autoscaler, choice: &Choice) -> String {
    let map = format!(
        "the ConfigMap {}/{}",
        autoscaler.namespace,
        Priorities::CONFIG_MAP
    );
    match choice {
        Choice::Chance { .. } | Choice::NoPriorities { .. } => format!(
            "run it with --expander=priority,least-waste, and give the node groups of {name} the highest priority in {map}: docs/autoscalers.md"
        ),
        Choice::Ignored { .. } => {
            "remove it from --startup-taint, --status-taint and --ignore-taint, or give the pool a taint with another key: docs/autoscalers.md".to_owned()
        }
        _ => format!("give the node groups of {name} the highest priority in {map}: docs/autoscalers.md"),
    }
}

fn check_pool(
    cluster_pool: &ClusterPool<'_>,
    cluster: &ClusterNodes,
    discover: Discover,
    outlook: Option<&Outlook<'_>>,
    findings: &mut Findings,
) {
    let ClusterPool {
        pool,
        node_pools,
        nodes,
        verdict,
        ..
    } = cluster_pool;
    let Pool { name, share, .. } = pool;
    if *share < Pool::ALL {
        let message =
            format!("pool {name} is open to {share} % of the workloads that could use it (share)");
        findings.unknown("pools", message);
    }
    if *nodes == 0 && node_pools.is_empty() {
        return check_empty(pool, cluster, outlook, findings);
    }
    let before = findings.0.len();
    check_mismatch(cluster_pool, discover, outlook, findings);
    match verdict {
        Verdict::Behind { .. } => {
            findings.failed("pools", format!("pool {name}: {verdict}"), RANK_FIX);
        }
        Verdict::Unusable { .. } => findings.unknown("pools", format!("pool {name}: {verdict}")),
        Verdict::NoNodePool | Verdict::OfPool(_) => {}
    }
    for node_pool in node_pools.iter().filter(|node_pool| node_pool.is_stuck) {
        report_stuck("pools", name, node_pool, findings);
    }
    if findings.0.len() == before {
        let mut message = format!("pool {name} opens {}", count(*nodes as u64, "node"));
        if !node_pools.is_empty() {
            let names = some_of(node_pools.iter().map(|node_pool| node_pool.name()));
            message += &format!(", and NodePool {names}");
        }
        findings.ok("pools", message);
    }
}

/// Reports a NodePool whose last nodes could not be launched, or did not register.
pub(super) fn report_stuck(
    check: &'static str,
    pool: &str,
    node_pool: &NodePool,
    findings: &mut Findings,
) {
    let stuck = node_pool.name();
    findings.failed(
        check,
        format!("pool {pool}: Karpenter gets no nodes of NodePool {stuck}, and Pods that fit there wait for them"),
        format!("see its condition NodeRegistrationHealthy: kubectl describe nodepool {stuck}; with a limit of cpu 0 Karpenter takes others"),
    );
}

/// Checks whether a pool opens nodes of platforms that it does not name.
fn check_mismatch(
    cluster_pool: &ClusterPool<'_>,
    discover: Discover,
    outlook: Option<&Outlook<'_>>,
    findings: &mut Findings,
) {
    let name = &cluster_pool.pool.name;
    let unnamed = cluster_pool.mismatch();
    if unnamed.is_empty() {
        return;
    }
    let message = format!(
        "pool {name} opens nodes with {unnamed}, which its platforms do not name: its images have to run there, too"
    );
    let is_discovered =
        discover.nodes || discover.node_pools && !cluster_pool.node_pools.is_empty();
    let fix = if !is_discovered {
        format!(
            "add {unnamed} to the platforms of {name}, give these nodes another taint, or let tolerarch discover platforms (discover)"
        )
    } else if outlook.is_some() {
        // Groups of the cluster-autoscaler scale to zero, where no node shows the platform.
        format!(
            "add {unnamed} to the platforms of {name}: discovery forgets it with the last of these nodes"
        )
    } else {
        String::new()
    };
    findings.add(Status::failed_if(!is_discovered), "pools", message, fix);
}

/// Reports a pool that opens no node and no NodePool, as far as these can be read.
fn check_empty(
    pool: &Pool,
    cluster: &ClusterNodes,
    outlook: Option<&Outlook<'_>>,
    findings: &mut Findings,
) {
    let name = &pool.name;
    if !cluster.notes.is_empty() {
        return findings.unknown(
            "pools",
            format!("no node that can be read has {}", opened_by(&[pool])),
        );
    }
    let (why, fix) = match half_open(pool, cluster) {
        Some((node, key)) => (
            format!("{node} also has the taint {key}, which it does not tolerate"),
            format!("add a toleration for {key} to pool {name}, or remove the taint"),
        ),
        None if outlook.is_some_and(|outlook| outlook.is_partly_unseen) => {
            let message = format!(
                "no node has {} now; the taints of node groups without a node cannot be seen",
                opened_by(&[pool])
            );
            return findings.unknown("pools", message);
        }
        None if !pool.select.is_empty() => {
            let labels = labels(pool);
            let fix = format!(
                "label the nodes of the pool ({labels}), or correct pools in the configuration; nothing to do if the pool is \
                 scaled to zero and has no NodePool"
            );
            let why =
                format!("no node and no NodePool has {labels} and only taints that it tolerates");
            (why, fix)
        }
        None => {
            let toleration = pool.tolerations.first();
            let key = toleration.map_or("", |toleration| toleration.key.as_str());
            let fix = format!(
                "taint the nodes of the pool ({key}), or correct pools in the configuration; nothing to do if the pool is \
                 scaled to zero and has no NodePool"
            );
            (
                "no node and no NodePool has a taint that it tolerates".to_owned(),
                fix,
            )
        }
    };
    findings.failed("pools", format!("pool {name} opens nothing: {why}"), fix);
}

/// Returns what nodes of these pools have: `a taint of a, b or the labels group=arm of c`.
pub(super) fn opened_by(pools: &[&Pool]) -> String {
    let mut tainted = Vec::new();
    let mut signs = Vec::new();
    for pool in pools {
        if pool.select.is_empty() {
            tainted.push(pool.name.as_str());
        } else {
            let noun = if pool.select.len() == 1 {
                "label"
            } else {
                "labels"
            };
            signs.push(format!("the {noun} {} of {}", labels(pool), pool.name));
        }
    }
    if !tainted.is_empty() {
        signs.insert(0, format!("a taint of {}", some_of(tainted)));
    }
    signs.join(" or ")
}

/// Renders the labels by which a pool is selected: `group=multi-arch, zone=a`.
pub(super) fn labels(pool: &Pool) -> String {
    let labels = pool.select.iter();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    labels.join(", ")
}

/// Returns a node or a NodePool of which the pool tolerates one taint, with the key of another taint that it does not
/// tolerate.
pub(super) fn half_open<'a>(pool: &Pool, cluster: &'a ClusterNodes) -> Option<(&'a str, &'a str)> {
    let nodes = cluster.nodes.iter().flatten();
    let nodes = nodes.map(|node| (node.name(), &node.taints));
    let node_pools = cluster.inventory.node_pools.iter();
    let node_pools = node_pools.map(|node_pool| (node_pool.name(), &node_pool.taints));
    for (name, taints) in nodes.chain(node_pools) {
        if let Some(taint) = lacking(&pool.tolerations, taints) {
            return Some((name, &taint.key));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use tolerarch_kubernetes::cluster::Node;
    use tolerarch_kubernetes::discovery::{Inventory, NodeKind};

    use super::*;

    #[test]
    fn single_node_is_counted_in_the_singular() {
        let labels = json!({"kubernetes.io/arch": "arm64"});
        let taint =
            json!({"key": "tolerarch.io/multi-arch", "value": "true", "effect": "NoSchedule"});
        let node =
            json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": [taint]}});
        let node: Node = serde_json::from_value(node).unwrap();
        let inventory = Inventory::of(Vec::new(), &[NodeKind::of(&node, &BTreeSet::new())]);
        let cluster = ClusterNodes {
            inventory,
            has_read_node_pools: true,
            nodes: Some(vec![node]),
            notes: Vec::new(),
        };
        let config = Config::default();
        let mut findings = Findings::default();
        let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
        check_pool(
            &discovery.pools[0],
            &cluster,
            config.discover,
            None,
            &mut findings,
        );
        assert_eq!(findings.0[0].message, "pool multi-arch opens 1 node");
    }

    #[test]
    fn share_of_a_pool_is_reported() {
        let config = Config::parse("pools: [{preset: karpenter, share: 10}]\n").unwrap();
        let cluster = ClusterNodes {
            inventory: Inventory::of(Vec::new(), &[]),
            has_read_node_pools: true,
            nodes: Some(Vec::new()),
            notes: Vec::new(),
        };
        let mut findings = Findings::default();
        let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
        check_pool(
            &discovery.pools[0],
            &cluster,
            config.discover,
            None,
            &mut findings,
        );
        assert!(
            findings.0[0]
                .message
                .contains("is open to 10 % of the workloads"),
            "{:?}",
            findings.0
        );
    }

    #[test]
    fn unhealthy_node_registration_is_reported() {
        let taint =
            json!({"key": "tolerarch.io/multi-arch", "value": "true", "effect": "NoSchedule"});
        let messages = |healthy: &str| {
            let pool = json!({
                "metadata": {"name": "arm"}, "spec": {"template": {"spec": {"taints": [taint]}}},
                "status": {"conditions": [{"type": "NodeRegistrationHealthy", "status": healthy}]},
            });
            let inventory = Inventory::of(vec![serde_json::from_value(pool).unwrap()], &[]);
            let cluster = ClusterNodes {
                inventory,
                has_read_node_pools: true,
                nodes: Some(Vec::new()),
                notes: Vec::new(),
            };
            let config = Config::default();
            let mut findings = Findings::default();
            let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
            check_pool(
                &discovery.pools[0],
                &cluster,
                config.discover,
                None,
                &mut findings,
            );
            findings
                .0
                .into_iter()
                .map(|finding| finding.message)
                .collect::<Vec<_>>()
        };
        let stuck = "pool multi-arch: Karpenter gets no nodes of NodePool arm, and Pods that fit there wait for them";
        assert!(
            messages("False").contains(&stuck.to_owned()),
            "{:?}",
            messages("False")
        );
        for healthy in ["True", "Unknown"] {
            assert!(!messages(healthy).contains(&stuck.to_owned()));
        }
    }
}
