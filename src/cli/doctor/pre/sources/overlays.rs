//! NodeOverlays, which change the prices by which Karpenter compares architectures within a NodePool.

use super::super::arrival::Arrival;
use super::makers::makers;
use crate::cli::doctor::findings::Findings;
use crate::cli::output::count;
use tolerarch_kubernetes::cluster::{NodeOverlay, NodePool, Price};
use tolerarch_kubernetes::discovery::{ClusterPool, Shift};

const CHECK: &str = "overlays";

pub(super) async fn check(
    arrival: &Arrival<'_>,
    pools: &[&ClusterPool<'_>],
    findings: &mut Findings,
) {
    let mut node_pools = Vec::new();
    for pool in pools {
        node_pools.extend(makers(arrival, pool));
    }
    if node_pools.is_empty() {
        return;
    }
    let overlays = arrival.client.list::<NodeOverlay>(NodeOverlay::PATH).await;
    let overlays = match overlays {
        // This version of Karpenter has no overlays.
        Err(error) if error.is_missing() => return,
        overlays => findings.read_or_not_tried(CHECK, "the NodeOverlays", overlays),
    };
    let overlays = overlays.unwrap_or_default();
    let before = findings.0.len();
    for overlay in &overlays {
        check_overlay(arrival, overlay, &node_pools, findings);
    }
    if !overlays.is_empty() && findings.0.len() == before {
        let number = count(overlays.len() as u64, "NodeOverlay");
        let architecture = arrival.architecture;
        findings.ok(
            CHECK,
            format!("{number}, and none makes {architecture} more expensive"),
        );
    }
}

fn check_overlay(
    arrival: &Arrival<'_>,
    overlay: &NodeOverlay,
    node_pools: &[&NodePool],
    findings: &mut Findings,
) {
    let architecture = arrival.architecture;
    let mut shifts = node_pools.iter().filter_map(|node_pool| {
        Some((
            node_pool.name(),
            Shift::of(overlay, node_pool, architecture)?,
        ))
    });
    let Some((node_pool, shift)) = shifts.next() else {
        return;
    };
    let name = overlay.name();
    let price = match &overlay.price {
        Some(Price::Adjusted(by)) => format!("priceAdjustment: {by}"),
        Some(Price::Fixed(price)) => format!("price: {price}"),
        None => return,
    };
    let what = format!(
        "NodeOverlay {name} ({price}) makes {architecture} more expensive in NodePool {node_pool}"
    );
    let fix = format!(
        "delete NodeOverlay {name}, or change it into one for {architecture} that lowers the price"
    );
    match (overlay.is_ready, shift) {
        (Some(true), Shift::Certain) => findings.failed(
            CHECK,
            format!("{what}: by usual prices Karpenter takes other architectures first"),
            fix,
        ),
        (Some(true), Shift::Possible) => {
            let message = format!(
                "{what}, or reduces its price advantage: whether Karpenter takes it first depends on the prices"
            );
            findings.unknown(CHECK, message);
        }
        (Some(false) | None, _) => {
            let message = format!("{what} as soon as Karpenter applies it: it is not ready");
            findings.unknown(CHECK, message);
        }
    }
}
