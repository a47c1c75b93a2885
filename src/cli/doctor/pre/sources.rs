//! Where the first node of the architecture would come from: a NodePool of Karpenter, a node group of the
//! cluster-autoscaler, or a person who adds it.

mod groups;
mod makers;
mod node_classes;
mod node_pools;
mod overlays;

use super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, Status};
use crate::cli::doctor::pools;
use crate::cli::output::count;
use node_classes::NodeClasses;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::discovery::{ClusterPool, Origin};

pub(super) async fn check(arrival: &Arrival<'_>, findings: &mut Findings) {
    for note in &arrival.cluster.notes {
        findings.not_tried("nodes", note);
    }
    for note in &arrival.search.notes {
        findings.not_tried("autoscaler", note);
    }
    let cluster_pools = cluster_pools(arrival);
    if cluster_pools.is_empty() {
        let platform = arrival.platform;
        let message = format!("no pool has {platform}: Pods get no toleration for such nodes");
        let fix = format!("add a pool with platforms: [{platform}], and taint its nodes");
        findings.failed("nodes", message, fix);
    }
    let mut classes = NodeClasses::read(arrival, &cluster_pools, findings).await;
    let mut has_source = false;
    for pool in &cluster_pools {
        let has_node_pools = !pool.node_pools.is_empty();
        node_pools::check(arrival, pool, &mut classes, findings);
        let has_groups = groups::check(arrival, pool, findings);
        let has_nodes =
            !has_node_pools && !has_groups && report_nodes(arrival, &pool.pool, findings);
        has_source |= has_node_pools || has_groups || has_nodes;
    }
    if !has_source && !cluster_pools.is_empty() {
        report_no_source(arrival, findings);
    }
    check_untainted(arrival, &classes, findings);
    classes.report_usable_classes(arrival, findings);
    overlays::check(arrival, &cluster_pools, findings).await;
}

/// Returns the pools of the new node, with the nodes and NodePools that they open.
fn cluster_pools<'a>(arrival: &Arrival<'a>) -> Vec<&'a ClusterPool<'a>> {
    let mut cluster_pools = Vec::new();
    for cluster_pool in &arrival.discovery.pools {
        let mut pools = arrival.pools.iter();
        if pools.any(|pool| pool.name == cluster_pool.pool.name) {
            cluster_pools.push(cluster_pool);
        }
    }
    cluster_pools
}

/// Reports the nodes with the platform that a pool opens; returns whether there are any.
fn report_nodes(arrival: &Arrival<'_>, pool: &Pool, findings: &mut Findings) -> bool {
    let inventory = &arrival.cluster.inventory;
    let nodes = inventory.count_nodes(arrival.platform, pool);
    if nodes == 0 {
        return false;
    }
    let message = format!(
        "pool {} opens {} with {} already",
        pool.name,
        count(nodes as u64, "node"),
        arrival.platform
    );
    findings.ok("nodes", message);
    true
}

/// Reports that nothing creates a node of any of the pools.
fn report_no_source(arrival: &Arrival<'_>, findings: &mut Findings) {
    let Arrival {
        cluster, platform, ..
    } = arrival;
    // A list that cannot be read may have a source. That it cannot be read has been reported.
    let (true, Some(_)) = (cluster.has_read_node_pools, &cluster.nodes) else {
        return;
    };
    let signs = pools::opened_by(&arrival.pools);
    let with_taints = with_taints(arrival);
    for pool in &arrival.pools {
        if let Some((name, key)) = pools::half_open(pool, cluster) {
            let pool = &pool.name;
            let message = format!(
                "{name} has a taint that pool {pool} tolerates, but also {key}, which it does not tolerate"
            );
            let fix = format!("add a toleration for {key} to pool {pool}, or remove the taint");
            return findings.failed("nodes", message, fix);
        }
    }
    if !cluster.inventory.node_pools.is_empty() {
        let message =
            format!("no NodePool has {signs}: Karpenter creates no {platform} node for it");
        let fix = format!("create a NodePool for {platform} {with_taints}: docs/autoscalers.md");
        findings.failed("node-pools", message, fix);
    } else if arrival.search.autoscaler.is_some() {
        let message = format!(
            "no node group of the cluster-autoscaler has {signs}: it creates no {platform} node for it"
        );
        let fix = format!("create a node group with {platform} {with_taints}: docs/autoscalers.md");
        findings.failed("autoscaler", message, fix);
    } else if arrival.search.notes.is_empty() {
        report_no_autoscaler(arrival, &signs, findings);
    }
}

fn report_no_autoscaler(arrival: &Arrival<'_>, signs: &str, findings: &mut Findings) {
    let platform = arrival.platform;
    let nodes = arrival.cluster.nodes.iter().flatten();
    let nodes = nodes.filter(|node| node.architecture == arrival.architecture);
    let message = match nodes.count() {
        0 => format!(
            "no autoscaler creates nodes here: the first {platform} node comes when you add it, {}",
            with_taints(arrival)
        ),
        number => format!(
            "{} with {platform} already, none of them with {signs}",
            count(number as u64, "node")
        ),
    };
    findings.ok("nodes", message);
}

/// Returns `with the taint a=b:NoSchedule of pool c`, or `with group=arm of pool d` for a pool that labels select; for
/// several pools joined by `or`.
fn with_taints(arrival: &Arrival<'_>) -> String {
    let mut parts = Vec::new();
    for pool in &arrival.pools {
        let name = &pool.name;
        if !pool.select.is_empty() {
            parts.push(format!("with {} of pool {name}", pools::labels(pool)));
        } else if let Some(taint) = taint_of(pool) {
            parts.push(format!("with the taint {taint} of pool {name}"));
        }
    }
    parts.join(", or ")
}

/// Returns the first taint that a pool tolerates, as kubectl writes it.
fn taint_of(pool: &Pool) -> Option<String> {
    let mut tolerations = pool.tolerations.iter();
    let toleration = tolerations.find(|toleration| !toleration.key.is_empty())?;
    let key = toleration.key.as_str();
    let effect = match toleration.effect.as_str() {
        "" => "NoSchedule",
        effect => effect,
    };
    Some(match toleration.value.as_str() {
        "" => format!("{key}:{effect}"),
        value => format!("{key}={value}:{effect}"),
    })
}

/// Checks whether nodes of the architecture have a taint, which keeps Pods away whose images do not run there.
fn check_untainted(arrival: &Arrival<'_>, classes: &NodeClasses<'_>, findings: &mut Findings) {
    let Arrival {
        architecture,
        platform,
        present,
        ..
    } = arrival;
    let mut others: Vec<&str> = present.iter().map(String::as_str).collect();
    others.retain(|other| other != architecture);
    // If all nodes have the architecture, it needs no taint.
    if others.is_empty() {
        return;
    }
    let others = others.join(", ");
    let taint = arrival.pools.iter().find_map(|pool| taint_of(pool));
    let taint = taint.unwrap_or_default();
    for node in arrival.nodes.iter().filter(|node| node.taints.is_empty()) {
        match node.origin {
            Origin::NodePool(node_pool) if !classes.cannot_create_node(node_pool, architecture) => {
                let name = node_pool.name();
                let message = format!(
                    "NodePool {name} may create {platform} nodes and has no taint: any Pod may go there, whatever its images"
                );
                let fix = format!(
                    "restrict it in its requirements (kubernetes.io/arch In [{others}]), or taint it ({taint})"
                );
                findings.failed("node-pools", message, fix);
            }
            // No fault: the check of the workloads reports the Pods that would fail there.
            Origin::Node(first) => {
                let name = first.name();
                let message = format!(
                    "{platform} nodes like {name} have no taint: any Pod may go there, whatever its images"
                );
                let fix = format!("taint them: kubectl taint node {name} {taint}");
                findings.add(Status::Unknown, "nodes", message, fix);
            }
            Origin::NodePool(_) | Origin::Pool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
