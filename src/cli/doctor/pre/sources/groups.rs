//! Node groups of a cluster-autoscaler that a pool opens.

use super::super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, some_of};
use crate::cli::doctor::pools::{choice_fix, opened_by};
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::autoscaler::{Choice, Grouped, NodeGroup, Outlook};
use tolerarch_kubernetes::discovery::ClusterPool;

const CHECK: &str = "autoscaler";

/// Checks the node groups of a pool; returns whether the cluster-autoscaler may create nodes of the pool.
pub(super) fn check(
    arrival: &Arrival<'_>,
    cluster_pool: &ClusterPool<'_>,
    findings: &mut Findings,
) -> bool {
    let Some(autoscaler) = &arrival.search.autoscaler else {
        return false;
    };
    let nodes = arrival.cluster.nodes.as_deref().unwrap_or_default();
    let grouped = autoscaler.grouped(nodes);
    let outlook = grouped.outlook(&cluster_pool.pool);
    let choice = &outlook.choice;
    if !outlook.concerns(cluster_pool) || *choice == Choice::NoGroup {
        return false;
    }
    let name = &cluster_pool.pool.name;
    let message = format!("pool {name}: {choice}");
    if choice.is_wrong() {
        findings.failed(CHECK, message, choice_fix(name, autoscaler, choice));
    } else if let Choice::Unseen { .. } = choice {
        findings.not_tried(CHECK, message);
    } else if !report_other_architecture(arrival, &grouped, &outlook, &cluster_pool.pool, findings)
        && !report_no_growth(&outlook.groups, name, findings)
    {
        findings.ok(CHECK, message);
    }
    for warning in outlook.warnings() {
        findings.unknown(CHECK, format!("pool {name}: {warning}"));
    }
    true
}

/// Reports a group that is taken first and has only nodes of other architectures; returns whether there is one.
fn report_other_architecture(
    arrival: &Arrival<'_>,
    grouped: &Grouped<'_>,
    outlook: &Outlook<'_>,
    pool: &Pool,
    findings: &mut Findings,
) -> bool {
    let (Choice::First { group, .. } | Choice::Alone { group }) = &outlook.choice else {
        return false;
    };
    let architectures = grouped.architectures(group);
    if architectures.is_empty() || architectures.contains(arrival.architecture) {
        return false;
    }
    let name = &pool.name;
    let platform = arrival.platform;
    let others = some_of(architectures);
    let message = format!(
        "pool {name}: the node group `{group}`, which the cluster-autoscaler takes first, creates {others} and no {platform}"
    );
    let sign = opened_by(&[pool]);
    let fix = format!(
        "create a node group with {platform} and {sign}, and give it the highest priority: docs/autoscalers.md"
    );
    findings.failed(CHECK, message, fix);
    true
}

/// Reports if no group of a pool may grow now; returns whether that is so.
fn report_no_growth(groups: &[&NodeGroup], name: &str, findings: &mut Findings) -> bool {
    let mut obstacles = Vec::new();
    for group in groups {
        let Some(obstacle) = group.obstacle() else {
            return false;
        };
        obstacles.push(format!("`{}` {obstacle}", group.name));
    }
    let obstacles = some_of(obstacles.iter().map(String::as_str));
    let message = format!("pool {name}: no node group of it may grow: {obstacles}");
    let fix =
        "raise the maximum of the group at the provider, or see the log of the cluster-autoscaler";
    findings.failed(CHECK, message, fix);
    true
}
