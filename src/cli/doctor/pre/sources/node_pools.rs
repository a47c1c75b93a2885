//! Checks of the NodePools of Karpenter that a pool opens.

use super::super::arrival::Arrival;
use super::makers::makers;
use super::node_classes::NodeClasses;
use crate::cli::doctor::findings::{Findings, Status, some_of};
use crate::cli::doctor::pools::{RANK_FIX, report_stuck};
use tolerarch_kubernetes::cluster::NodePool;
use tolerarch_kubernetes::discovery::{ClusterPool, Obstacle, Verdict, without_instance};

const CHECK: &str = "node-pools";

pub(super) fn check<'a>(
    arrival: &Arrival<'_>,
    cluster_pool: &ClusterPool<'a>,
    classes: &mut NodeClasses<'a>,
    findings: &mut Findings,
) {
    let Arrival {
        architecture,
        platform,
        ..
    } = arrival;
    let name = &cluster_pool.pool.name;
    let Some(first) = cluster_pool.node_pools.first() else {
        return;
    };
    let makers = makers(arrival, cluster_pool);
    if makers.is_empty() {
        return report_no_maker(arrival, cluster_pool, first, findings);
    }
    let before = findings.0.len();
    let mut usable = makers.clone();
    usable
        .retain(|maker| fault(maker, arrival).is_none() && !classes.has_fault(maker, architecture));
    for maker in &makers {
        if classes.report_fault(maker, arrival, findings) {
            continue;
        }
        if let Some((message, fix)) = fault(maker, arrival) {
            // If another NodePool creates the node, limits and the like are intended.
            let is_fault = usable.is_empty() || !may_be_intended(maker);
            findings.add(Status::failed_if(is_fault), CHECK, message, fix);
        }
    }
    if !usable.is_empty() {
        check_rank(arrival, cluster_pool, &makers, findings);
    }
    for maker in usable.iter().filter(|maker| maker.is_stuck) {
        report_stuck(CHECK, name, maker, findings);
    }
    if findings.0.len() == before {
        let names = some_of(usable.iter().map(|node_pool| node_pool.name()));
        findings.ok(
            CHECK,
            format!("pool {name}: NodePool {names} creates {platform}"),
        );
    }
}

/// Reports that the requirements of no NodePool of the pool allow the platform.
fn report_no_maker(
    arrival: &Arrival<'_>,
    cluster_pool: &ClusterPool<'_>,
    first: &NodePool,
    findings: &mut Findings,
) {
    let Arrival {
        architecture,
        platform,
        ..
    } = arrival;
    let name = &cluster_pool.pool.name;
    let names = some_of(
        cluster_pool
            .node_pools
            .iter()
            .map(|node_pool| node_pool.name()),
    );
    let message = format!("no NodePool of pool {name} creates {platform} ({names})");
    let first = first.name();
    let fix =
        format!("add {architecture} to kubernetes.io/arch in the requirements of NodePool {first}");
    findings.failed(CHECK, message, fix);
}

/// Returns whether the reason why a NodePool creates no nodes may be intended.
fn may_be_intended(node_pool: &NodePool) -> bool {
    match Obstacle::of(node_pool) {
        Some(Obstacle::Deleted | Obstacle::Static | Obstacle::Limits) => true,
        Some(Obstacle::NotReady | Obstacle::Contradiction) | None => false,
    }
}

/// Returns why a NodePool creates no nodes of the platform, and advice.
fn fault(node_pool: &NodePool, arrival: &Arrival<'_>) -> Option<(String, String)> {
    let Arrival {
        architecture,
        platform,
        ..
    } = arrival;
    let name = node_pool.name();
    let message = |why: &str| format!("NodePool {name} {why}: it creates no {platform} node");
    if let Some(why) = without_instance(node_pool, architecture) {
        let fix = format!(
            "allow instance types of {architecture} there, such as m7g, or remove the requirement"
        );
        return Some((
            message(&format!("has no instance type of {architecture}, as {why}")),
            fix,
        ));
    }
    let obstacle = Obstacle::of(node_pool)?;
    let fix = match obstacle {
        Obstacle::Deleted => "create another NodePool with its taints, or create it again".to_owned(),
        Obstacle::Static => {
            "create another NodePool with its taints: one with spec.replicas creates no node for Pods that wait".to_owned()
        }
        Obstacle::NotReady => format!("see its conditions: kubectl describe nodepool {name}"),
        Obstacle::Limits => format!("raise spec.limits of NodePool {name}"),
        Obstacle::Contradiction => format!("correct the requirements and labels of NodePool {name}, which leave a label no value"),
    };
    Some((message(&obstacle.to_string()), fix))
}

/// Checks whether Karpenter takes another NodePool before those that create the platform.
fn check_rank(
    arrival: &Arrival<'_>,
    cluster_pool: &ClusterPool<'_>,
    makers: &[&NodePool],
    findings: &mut Findings,
) {
    let name = &cluster_pool.pool.name;
    let platform = arrival.platform;
    match &cluster_pool.verdict {
        verdict @ Verdict::Behind { .. } => {
            findings.failed(CHECK, format!("pool {name}: {verdict}"), RANK_FIX);
        }
        Verdict::OfPool(first) if !makers.contains(first) => {
            let first = first.name();
            let others = some_of(makers.iter().map(|maker| maker.name()));
            let message = format!(
                "pool {name}: new nodes come from `{first}`, which creates no {platform}, before `{others}`"
            );
            findings.failed(CHECK, message, RANK_FIX);
        }
        Verdict::OfPool(_) | Verdict::Unusable { .. } | Verdict::NoNodePool => {}
    }
}
