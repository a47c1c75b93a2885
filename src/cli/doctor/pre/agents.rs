//! DaemonSets on a new node: those whose images lack its architecture, and those that would be missing there.

use std::collections::BTreeSet;

use futures_util::stream::{self, StreamExt};

use super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, Status, some_of};
use crate::cli::output::count;
use crate::cli::session::Session;
use tolerarch_core::reason::Reason;
use tolerarch_engine::decide::{Examined, ImageState};
use tolerarch_kubernetes::cluster::{DaemonSet, Taint};
use tolerarch_kubernetes::discovery::NewNode;
use tolerarch_kubernetes::node_agent::{Role, Schedulability, are_siblings};

const CHECK: &str = "daemonsets";
/// Maximum number of DaemonSets whose images are looked up at a time.
const AT_A_TIME: usize = 256;

/// DaemonSet with the platforms of its images.
struct Agent<'a> {
    set: &'a DaemonSet,
    role: Option<Role>,
    images: Vec<ImageState>,
}

/// Results of the checks that findings list for several DaemonSets together.
#[derive(Default)]
struct Sums<'a> {
    /// Number of DaemonSets that would run on a new node, and whose images do.
    running: u64,
    /// Names of DaemonSets without a role that would be missing.
    missing: BTreeSet<String>,
    /// Names of images whose platforms are unknown.
    unknown: BTreeSet<&'a str>,
    has_fault: bool,
}

pub(super) async fn check(
    arrival: &Arrival<'_>,
    session: &Session,
    sets: &[DaemonSet],
    findings: &mut Findings,
) {
    session.progress.show("looking up the images of DaemonSets");
    let agents = stream::iter(sets).map(|set| Agent::of(set, session));
    let agents: Vec<Agent<'_>> = agents.buffered(AT_A_TIME).collect().await;
    let mut sums = Sums::default();
    for agent in &agents {
        check_agent(arrival, agent, &agents, &mut sums, findings);
    }
    report(arrival, &sums, findings);
}

/// Checks a DaemonSet on each new node, and reports the first fault.
fn check_agent<'a>(
    arrival: &Arrival<'_>,
    agent: &'a Agent<'_>,
    all: &[Agent<'_>],
    sums: &mut Sums<'a>,
    findings: &mut Findings,
) {
    let mut runs = false;
    for node in &arrival.nodes {
        let outcome = Schedulability::of(agent.set, node, &arrival.present);
        let lacking = agent.lacking(arrival);
        match outcome {
            Schedulability::Elsewhere => continue,
            Schedulability::Runs if lacking.is_empty() => {
                let unknown = agent.images.iter().filter(|state| state.unknown.is_some());
                sums.unknown.extend(unknown.map(|state| &*state.image));
                runs = true;
                continue;
            }
            Schedulability::Unsure if lacking.is_empty() => continue,
            Schedulability::Unsure => report_unsure(arrival, agent, node, &lacking, findings),
            Schedulability::Runs => {
                sums.has_fault = true;
                report_broken(arrival, agent, node, &lacking, findings);
            }
            Schedulability::Bound(_) if has_sibling(arrival, agent, node, all) => continue,
            Schedulability::Bound(_) | Schedulability::Untolerated(_) if agent.role.is_none() => {
                sums.missing.insert(agent.name());
            }
            Schedulability::Bound(other) => {
                sums.has_fault = true;
                report_bound(arrival, agent, node, &other, findings);
            }
            Schedulability::Untolerated(taint) => {
                sums.has_fault = true;
                report_untolerated(arrival, agent, node, taint, findings);
            }
        }
        return;
    }
    sums.running += u64::from(runs);
}

/// Returns whether another DaemonSet takes its place on the new node.
fn has_sibling(
    arrival: &Arrival<'_>,
    agent: &Agent<'_>,
    node: &NewNode<'_>,
    all: &[Agent<'_>],
) -> bool {
    let mut others = all.iter();
    others.any(|other| {
        are_siblings(agent.set, other.set)
            && Schedulability::of(other.set, node, &arrival.present) == Schedulability::Runs
    })
}

fn report_broken(
    arrival: &Arrival<'_>,
    agent: &Agent<'_>,
    node: &NewNode<'_>,
    lacking: &str,
    findings: &mut Findings,
) {
    let platform = arrival.platform;
    let message = format!(
        "{agent} would run on {node}, where {lacking} lacks {platform}: its Pods fail with an exec format error"
    );
    let image =
        format!("take an image that has {platform} (`tolerarch inspect` shows the platforms)");
    let fix = match agent.role {
        Some(_) => image,
        None => format!("{image}, or keep it off such nodes: docs/daemonsets.md"),
    };
    findings.failed(CHECK, message, fix);
}

fn report_unsure(
    arrival: &Arrival<'_>,
    agent: &Agent<'_>,
    node: &NewNode<'_>,
    lacking: &str,
    findings: &mut Findings,
) {
    let platform = arrival.platform;
    let message = format!(
        "{agent} may run on {node}, by labels on which nodes differ, and {lacking} lacks {platform}"
    );
    let fix =
        format!("keep it off such nodes, or take an image that has {platform}: docs/daemonsets.md");
    findings.add(Status::Unknown, CHECK, message, fix);
}

fn report_bound(
    arrival: &Arrival<'_>,
    agent: &Agent<'_>,
    node: &NewNode<'_>,
    other: &str,
    findings: &mut Findings,
) {
    let mut fix = "remove the architecture from its nodeSelector or node affinity".to_owned();
    fix += &and_image(arrival, agent);
    let loss = agent.loss();
    let message = format!("{agent} would be missing on {node}, as it selects {other}: {loss}");
    findings.failed(CHECK, message, fix);
}

fn report_untolerated(
    arrival: &Arrival<'_>,
    agent: &Agent<'_>,
    node: &NewNode<'_>,
    taint: &Taint,
    findings: &mut Findings,
) {
    let Taint { key, effect, .. } = taint;
    let mut fix = format!(
        "add a toleration to its template: {{key: {key}, operator: Exists, effect: {effect}}}"
    );
    fix += &and_image(arrival, agent);
    let loss = agent.loss();
    let message =
        format!("{agent} would be missing on {node}, as it does not tolerate {taint}: {loss}");
    findings.failed(CHECK, message, fix);
}

/// Returns the second half of an advice that needs another image as well, because the DaemonSet would fail with its
/// present one.
fn and_image(arrival: &Arrival<'_>, agent: &Agent<'_>) -> String {
    let lacking = agent.lacking(arrival);
    if lacking.is_empty() {
        return String::new();
    }
    let platform = arrival.platform;
    format!("; before that take an image that has {platform}, as {lacking} lacks it")
}

fn report(arrival: &Arrival<'_>, sums: &Sums<'_>, findings: &mut Findings) {
    let platform = arrival.platform;
    if !sums.unknown.is_empty() {
        let images = some_of(sums.unknown.iter().copied());
        let why = format!(
            "DaemonSets would run on the new node, and the platforms of their images are unknown: {images}"
        );
        let fix = "`tolerarch inspect --explain` names the cause; log in, or name the credentials in a file for --config";
        findings.not_tried_with_fix(CHECK, why, fix);
    }
    if !sums.missing.is_empty() {
        let missing = some_of(sums.missing.iter().map(String::as_str));
        let message = format!("these DaemonSets would be missing on the new node: {missing}");
        let fix = "let them tolerate its taint and its architecture if nodes need them: docs/daemonsets.md";
        findings.add(Status::Unknown, CHECK, message, fix);
    }
    let is_known = sums.unknown.is_empty() && !arrival.nodes.is_empty();
    if is_known && !sums.has_fault && sums.running > 0 {
        let running = count(sums.running, "DaemonSet");
        findings.ok(
            CHECK,
            format!("the images of {running} that would run on the new node have {platform}"),
        );
    }
}

impl<'a> Agent<'a> {
    async fn of(set: &'a DaemonSet, session: &Session) -> Self {
        let examined = match &set.pod {
            Some(pod) => session.examine(&session.policy, set.namespace(), pod).await,
            None => Examined::skipped(Reason::Malformed),
        };
        Self {
            set,
            role: Role::of(set),
            images: examined.images,
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.set.namespace(), self.set.name())
    }

    /// Returns the images that certainly do not run on the new node; empty if there are none.
    fn lacking(&self, arrival: &Arrival<'_>) -> String {
        let mut lacking = Vec::new();
        for state in &self.images {
            let runs = |platforms| arrival.runs_on(platforms);
            if state.platforms.is_some_and(|platforms| !runs(platforms)) {
                lacking.push(&*state.image);
            }
        }
        some_of(lacking)
    }

    fn loss(&self) -> &'static str {
        self.role.map_or("", Role::loss)
    }
}

/// Writes the name and the role: `DaemonSet kube-system/calico-node, a network plug-in,`.
impl std::fmt::Display for Agent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DaemonSet {}", self.name())?;
        match self.role {
            Some(role) => write!(f, ", {role},"),
            None => Ok(()),
        }
    }
}
