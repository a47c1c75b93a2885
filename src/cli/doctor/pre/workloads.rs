//! Existing workloads: Pods that may go to a new node and would fail there, and Pods that avoid it without need.

use std::collections::{BTreeMap, BTreeSet};

use super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, Status, some_of};
use crate::cli::output::count;
use crate::cli::survey::Survey;
use tolerarch_core::pod::{Fit, NodeLabels, PREFERRED_KEY, Pod, REQUIRED_KEY};
use tolerarch_engine::census::IndexedPod;
use tolerarch_engine::decide::Examined;
use tolerarch_kubernetes::discovery::{NewNode, Origin};

const CHECK: &str = "workloads";
/// Kinds of controllers whose Pods are bound to nodes: DaemonSets, and nodes, which own static Pods.
const OF_NODES: [&str; 2] = ["DaemonSet", "Node"];

/// Workloads with a finding, each named as `Deployment shop/web`.
#[derive(Default)]
struct Workloads {
    /// Workloads that would fail, each with an image that lacks the platform, by the index of the new node.
    failing: BTreeMap<usize, BTreeMap<String, String>>,
    /// Workloads that may go to a new node and have an image with unknown platforms.
    unknown: BTreeSet<String>,
    /// Workloads that require another architecture, and whose images have both.
    bound: BTreeSet<String>,
    /// Workloads that prefer an architecture themselves, and whose images have both.
    inclined: BTreeSet<String>,
}

pub(super) fn check(
    arrival: &Arrival<'_>,
    survey: &Survey,
    examined: &[Examined],
    findings: &mut Findings,
) {
    let mut workloads = Workloads::default();
    for pod in &survey.pods {
        let Some(index) = pod.shape else {
            continue;
        };
        if let (Some(shape), Some(examined)) = (survey.shapes.get_index(index), examined.get(index))
            && !OF_NODES.contains(&&*pod.workload.kind)
        {
            workloads.add(arrival, pod, &shape.pod, examined);
        }
    }
    for (index, failing) in &workloads.failing {
        report_failing(arrival, &arrival.nodes[*index], failing, findings);
    }
    report_kept_away(arrival, &workloads, findings);
    if !workloads.unknown.is_empty() {
        let number = count(workloads.unknown.len() as u64, "workload");
        let named = some_of(workloads.unknown.iter().map(String::as_str));
        let why = format!(
            "{number} may go to the new node, and an image of each has unknown platforms: {named}"
        );
        findings.not_tried(CHECK, why);
    } else if workloads.failing.is_empty() && !survey.pods.is_empty() {
        let pods = count(survey.pods.len() as u64, "Pod");
        let message = format!("of {pods} none would fail on the new node");
        findings.ok(CHECK, message);
    }
}

impl Workloads {
    fn add(
        &mut self,
        arrival: &Arrival<'_>,
        pod: &IndexedPod,
        facts: &Pod<'_>,
        examined: &Examined,
    ) {
        let workload = &pod.workload;
        let name = || format!("{} {}/{}", workload.kind, workload.namespace, workload.name);
        let lacking = examined.images.iter().find(|state| {
            let platforms = state.platforms;
            platforms.is_some_and(|platforms| !arrival.runs_on(platforms))
        });
        let unknown = examined.images.iter().find(|state| state.unknown.is_some());
        if lacking.or(unknown).is_some() {
            let may_go = |node: &NewNode<'_>| {
                node.closed_by(facts.tolerations()).is_none()
                    && facts.fits(&node.labels) == Fit::Yes
            };
            let index = arrival.nodes.iter().position(may_go);
            match (index, lacking) {
                (Some(index), Some(lacking)) => {
                    let failing = self.failing.entry(index).or_default();
                    failing.insert(name(), lacking.image.clone());
                }
                (Some(_), None) => {
                    self.unknown.insert(name());
                }
                (None, _) => {}
            }
            return;
        }
        if examined.skipped.is_some() || examined.images.is_empty() {
            return;
        }
        // tolerarch updates its own requirements and preferences when the images change.
        if is_bound(arrival, facts) && !facts.has_annotation(REQUIRED_KEY) {
            self.bound.insert(name());
        } else if facts.prefers_an_architecture() && !facts.has_annotation(PREFERRED_KEY) {
            self.inclined.insert(name());
        }
    }
}

/// Returns whether a Pod may go to nodes of an existing architecture, but never to those of the new one.
fn is_bound(arrival: &Arrival<'_>, pod: &Pod<'_>) -> bool {
    let fits = |architecture: &str| {
        let labels = NodeLabels::default().with_architecture(architecture);
        pod.fits(&labels) != Fit::No
    };
    let mut present = arrival.present.iter();
    !fits(arrival.architecture) && present.any(|other| fits(other))
}

fn report_failing(
    arrival: &Arrival<'_>,
    node: &NewNode<'_>,
    failing: &BTreeMap<String, String>,
    findings: &mut Findings,
) {
    let platform = arrival.platform;
    let named: Vec<String> = failing
        .iter()
        .map(|(workload, image)| format!("{workload} ({image})"))
        .collect();
    let named = some_of(named.iter().map(String::as_str));
    let (why, fix) = if node.taints.is_empty() {
        let fix = match node.origin {
            Origin::NodePool(node_pool) => format!(
                "taint NodePool {} with the taint of a pool, or remove {} from its requirements",
                node_pool.name(),
                arrival.architecture
            ),
            Origin::Node(_) | Origin::Pool(_) => {
                "taint the nodes with the taint of a pool".to_owned()
            }
        };
        ("which have no taint", fix)
    } else {
        let others = Vec::from_iter(arrival.present.iter().map(String::as_str)).join(", ");
        let fix = format!(
            "remove the toleration from them, or keep them off such nodes: nodeSelector kubernetes.io/arch: {others}"
        );
        ("whose taints are tolerated", fix)
    };
    let message = format!(
        "{} may go to {node}, {why}, and fail there, as an image lacks {platform}: {named}",
        count(failing.len() as u64, "workload")
    );
    findings.failed(CHECK, message, fix);
}

fn report_kept_away(arrival: &Arrival<'_>, workloads: &Workloads, findings: &mut Findings) {
    let platform = arrival.platform;
    let others = Vec::from_iter(arrival.present.iter().map(String::as_str)).join(", ");
    if !workloads.bound.is_empty() {
        let number = count(workloads.bound.len() as u64, "workload");
        let named = some_of(workloads.bound.iter().map(String::as_str));
        let message = format!(
            "{number} bound to nodes of {others} by nodeSelector or affinity, though the images have {platform}: {named}"
        );
        let fix = "remove the architecture from their nodeSelector or affinity, and they may move";
        findings.add(Status::Unknown, CHECK, message, fix);
    }
    if !workloads.inclined.is_empty() {
        let number = count(workloads.inclined.len() as u64, "workload");
        let named = some_of(workloads.inclined.iter().map(String::as_str));
        let message = format!(
            "{number} with a preference for an architecture in their affinity, which counts besides placement.prefer: {named}"
        );
        let fix = "remove the preference, and let placement.prefer decide: docs/placement.md";
        findings.add(Status::Unknown, CHECK, message, fix);
    }
}
