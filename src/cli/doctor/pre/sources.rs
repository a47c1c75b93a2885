//! Whether the first node of the architecture comes: from Karpenter's NodePools, from node groups of the
//! cluster-autoscaler, or by hand.

mod groups;
mod makers;
mod node_classes;
mod node_pools;
mod overlays;

use super::arrival::{Arrival, NOT_TRIED};
use crate::cli::doctor::findings::{Findings, Status, some_of};
use crate::cli::doctor::pools;
use crate::cli::output::count;
use node_classes::NodeClasses;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::discovery::{KnownPool, Origin};

pub(super) async fn check(arrival: &Arrival<'_>, findings: &mut Findings) {
    for note in &arrival.shown.notes {
        findings.unknown("nodes", format!("{NOT_TRIED}{note}"));
    }
    for note in &arrival.seen.notes {
        findings.unknown("autoscaler", format!("{NOT_TRIED}{note}"));
    }
    let known = pools_in_question(arrival);
    if known.is_empty() {
        let platform = arrival.platform;
        let message = format!("no pool has {platform}: Pods get no toleration for such nodes");
        let fix = format!("add a pool with platforms: [{platform}], and taint its nodes");
        findings.failed("nodes", message, fix);
    }
    let mut classes = NodeClasses::read(arrival, &known, findings).await;
    let mut has_source = false;
    for pool in &known {
        let has_node_pools = !pool.node_pools.is_empty();
        node_pools::check(arrival, pool, &mut classes, findings);
        let has_groups = groups::check(arrival, pool, findings);
        let has_nodes =
            !has_node_pools && !has_groups && report_nodes(arrival, &pool.pool, findings);
        has_source |= has_node_pools || has_groups || has_nodes;
    }
    if !has_source && !known.is_empty() {
        report_no_source(arrival, findings);
    }
    check_untainted(arrival, &classes, findings);
    classes.report_sound(arrival, findings);
    overlays::check(arrival, &known, findings).await;
}

fn pools_in_question<'a>(arrival: &Arrival<'a>) -> Vec<&'a KnownPool<'a>> {
    let mut known = Vec::new();
    for pool in &arrival.discovery.pools {
        let mut in_question = arrival.pools.iter();
        if in_question.any(|other| other.name == pool.pool.name) {
            known.push(pool);
        }
    }
    known
}

/// Reports the nodes with the platform that a pool opens; returns whether there are any.
fn report_nodes(arrival: &Arrival<'_>, pool: &Pool, findings: &mut Findings) -> bool {
    let inventory = &arrival.shown.inventory;
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

/// Reports that nothing makes a node of any of the pools.
fn report_no_source(arrival: &Arrival<'_>, findings: &mut Findings) {
    let Arrival {
        shown, platform, ..
    } = arrival;
    // What cannot be read may be a source; that has been said.
    let (true, Some(_)) = (shown.knows_node_pools, &shown.nodes) else {
        return;
    };
    let names = some_of(arrival.pools.iter().map(|pool| pool.name.as_str()));
    let with_taints = with_taints(arrival);
    for pool in &arrival.pools {
        if let Some((name, key)) = pools::half_open(pool, shown) {
            let pool = &pool.name;
            let message = format!(
                "{name} has a taint of pool {pool}, and also {key}, which the pool does not tolerate"
            );
            let fix = format!("add a toleration for {key} to pool {pool}, or remove the taint");
            return findings.failed("nodes", message, fix);
        }
    }
    if !shown.inventory.node_pools.is_empty() {
        let message = format!(
            "no NodePool has a taint of {names}: Karpenter makes no {platform} node for it"
        );
        let fix = format!("make a NodePool for {platform} {with_taints}: docs/autoscalers.md");
        findings.failed("node-pools", message, fix);
    } else if arrival.seen.autoscaler.is_some() {
        let message = format!(
            "no node group of the cluster-autoscaler has a taint of {names}: no {platform} node comes for it"
        );
        let fix = format!("make a node group with {platform} {with_taints}: docs/autoscalers.md");
        findings.failed("autoscaler", message, fix);
    } else if arrival.seen.notes.is_empty() {
        report_no_autoscaler(arrival, &names, findings);
    }
}

fn report_no_autoscaler(arrival: &Arrival<'_>, names: &str, findings: &mut Findings) {
    let platform = arrival.platform;
    let nodes = arrival.shown.nodes.iter().flatten();
    let nodes = nodes.filter(|node| node.architecture == arrival.architecture);
    let message = match nodes.count() {
        0 => format!(
            "no autoscaler makes nodes here: the first {platform} node comes when you add it, {}",
            with_taints(arrival)
        ),
        number => format!(
            "{} with {platform} already, none of them with a taint of {names}",
            count(number as u64, "node")
        ),
    };
    findings.ok("nodes", message);
}

/// Returns `with the taint a=b:NoSchedule of pool c`, or the same of several pools, also for their labels.
fn with_taints(arrival: &Arrival<'_>) -> String {
    let mut marks = Vec::new();
    for pool in &arrival.pools {
        let name = &pool.name;
        if !pool.select.is_empty() {
            marks.push(format!("with {} of pool {name}", pools::labels(pool)));
        } else if let Some(taint) = taint_of(pool) {
            marks.push(format!("with the taint {taint} of pool {name}"));
        }
    }
    marks.join(", or ")
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

/// Checks whether nodes of the architecture keep Pods away whose images may not run there.
fn check_untainted(arrival: &Arrival<'_>, classes: &NodeClasses<'_>, findings: &mut Findings) {
    let Arrival {
        architecture,
        platform,
        present,
        ..
    } = arrival;
    let mut others: Vec<&str> = present.iter().map(String::as_str).collect();
    others.retain(|other| other != architecture);
    // Where all nodes have the architecture, it is the usual one.
    if others.is_empty() {
        return;
    }
    let others = others.join(", ");
    let taint = arrival.pools.iter().find_map(|pool| taint_of(pool));
    let taint = taint.unwrap_or_default();
    for node in arrival.nodes.iter().filter(|node| node.taints.is_empty()) {
        match node.origin {
            Origin::NodePool(node_pool) if !classes.is_impossible(node_pool, architecture) => {
                let name = node_pool.name();
                let message = format!(
                    "NodePool {name} may make {platform} nodes and has no taint: any Pod may go there, whatever its images"
                );
                let fix = format!(
                    "restrict it in its requirements (kubernetes.io/arch In [{others}]), or taint it ({taint})"
                );
                findings.failed("node-pools", message, fix);
            }
            // Which Pods of the cluster would fail there is seen from these Pods.
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
