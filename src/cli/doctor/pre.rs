//! `tolerarch doctor --pre`: whether the first node of another architecture may come. Nothing has to be installed for it.

mod admission;
mod agents;
mod arrival;
mod images;
mod quotas;
mod sources;
mod versions;
mod workloads;

use clap::Args;
use serde_json::{Value, json};

use super::findings::{Exam, Finding, Findings, Status};
use super::{installation, version};
use crate::cli::autoscaler::Seen;
use crate::cli::configured::{Configured, NotConfigured};
use crate::cli::inventory::Shown;
use crate::cli::kubernetes::Access;
use crate::cli::output::Progress;
use crate::cli::session::Session;
use crate::cli::survey::Survey;
use crate::cli::{Failure, Shared};
use crate::config::{Discover, Verify};
use arrival::{Arrival, NOT_TRIED, present};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{DaemonSet, Node};
use tolerarch_kubernetes::discovery::{Discovery, NewNode};

/// Architecture that is asked for where the nodes have all that the pools name.
const USUAL: &str = "arm64";

#[derive(Debug, Args)]
pub(super) struct Pre {
    /// Check, before anything is installed, whether the first node of another architecture may come
    #[arg(long = "pre")]
    pub(super) is_on: bool,
    /// The platform of the new node, for --pre [default: one of the pools that no node has yet, or linux/arm64]
    #[arg(long, value_name = "PLATFORM", requires = "is_on", value_parser = platform)]
    platform: Option<PlatformSet>,
    /// The pool that the new node belongs to, for --pre [default: all with the platform]
    #[arg(long, value_name = "NAME", requires = "is_on")]
    pool: Option<String>,
}

/// Nodes that are to come.
struct Target<'a> {
    platform: PlatformSet,
    architecture: &'static str,
    pools: Vec<&'a Pool>,
    nodes: Vec<NewNode<'a>>,
}

impl Pre {
    /// Runs all checks, those on what a new node cannot do without first.
    pub(super) async fn examine(
        &self,
        shared: &Shared,
        access: &Access,
        progress: Progress,
    ) -> Result<Findings, Failure> {
        progress.show("asking the API server");
        let client = access.connect(&shared.environment)?;
        let mut exam = Exam {
            client: &client,
            only: access.namespace.as_deref(),
            config: shared.config.as_deref(),
            findings: Findings::default(),
        };
        version::check(&mut exam).await?;
        let mut configured = configured(shared, access, &mut exam).await?;
        let pools = &configured.config.policy.pools;
        let shown = Shown::read(&client, Discover::ALL, pools).await?;
        let seen = Seen::read(&client, shown.nodes.as_deref()).await;
        let namespaces = installation::namespaces(&mut exam).await;
        // What these could not read.
        for finding in &mut exam.findings.0 {
            if finding.status == Status::Unknown && !finding.message.starts_with(NOT_TRIED) {
                finding.message.insert_str(0, NOT_TRIED);
            }
        }
        let config = &mut configured.config;
        let discovery = Discovery::of(&config.policy.pools, &shown.inventory);
        let Target {
            platform,
            architecture,
            pools,
            nodes,
        } = self.target(&shown, &discovery)?;
        let arrival = Arrival {
            client: &client,
            only: exam.only,
            architecture,
            platform,
            present: present(shown.nodes.as_deref().unwrap_or_default()),
            shown: &shown,
            seen: &seen,
            discovery: &discovery,
            pools,
            nodes,
            namespaces,
            verify: config.verify,
        };
        // What an image says of itself is compared with its config, whatever the webhook does.
        config.verify = Verify::Config;
        let findings = &mut exam.findings;
        check(&arrival, shared, configured, progress, findings).await?;
        for note in client.take_left_out() {
            findings.unknown("unread", note);
        }
        findings.sort();
        Ok(exam.findings)
    }

    /// Returns what is to come, as the user names it, or as pools and nodes show what is missing.
    fn target<'a>(
        &self,
        shown: &'a Shown,
        discovery: &'a Discovery<'_>,
    ) -> Result<Target<'a>, Failure> {
        let nodes = shown.nodes.as_deref().unwrap_or_default();
        let platform = match self.platform {
            Some(platform) => platform,
            None => missing(discovery, nodes),
        };
        let architectures = platform.architectures();
        let architecture = architectures.first().copied().unwrap_or(USUAL);
        let pools = self.pools(discovery, platform)?;
        let inventory = &shown.inventory;
        let all = pools.iter().copied();
        let mut new = NewNode::all(architecture, platform, inventory, nodes, all);
        if self.pool.is_some() {
            let is_opened = |node: &NewNode<'_>| {
                let mut pools = pools.iter();
                pools.any(|pool| node.is_opened_by(pool))
            };
            new.retain(is_opened);
        }
        Ok(Target {
            platform,
            architecture,
            pools,
            nodes: new,
        })
    }

    /// Returns the pools with the platform, or the one that the user names.
    fn pools<'d>(
        &self,
        discovery: &'d Discovery<'_>,
        platform: PlatformSet,
    ) -> Result<Vec<&'d Pool>, Failure> {
        let all = discovery.pools.iter().map(|known| &known.pool);
        let Some(name) = &self.pool else {
            let mut pools: Vec<&Pool> = all.collect();
            pools.retain(|pool| pool.platforms.contains(platform));
            return Ok(pools);
        };
        let mut named: Vec<&Pool> = all.clone().collect();
        named.retain(|pool| pool.name == *name);
        if named.is_empty() {
            let names: Vec<&str> = all.map(|pool| pool.name.as_str()).collect();
            return Err(Failure::Usage(format!(
                "--pool {name:?}: the pools are {}",
                names.join(", ")
            )));
        }
        Ok(named)
    }
}

/// Returns the findings in the form of `-o json`.
pub(super) fn document(findings: &Findings) -> Value {
    let is_unknown = |finding: &Finding| finding.message.starts_with(NOT_TRIED);
    json!({
        "ready": !findings.has_failed(),
        "complete": !findings.0.iter().any(is_unknown),
        "checks": findings.0,
    })
}

async fn check(
    arrival: &Arrival<'_>,
    shared: &Shared,
    configured: Configured,
    progress: Progress,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let Arrival { client, only, .. } = arrival;
    let path = match only {
        Some(namespace) => format!("/apis/apps/v1/namespaces/{namespace}/daemonsets"),
        None => DaemonSet::PATH.to_owned(),
    };
    let sets = client.list::<DaemonSet>(&path).await;
    let what = format!("{NOT_TRIED}the DaemonSets");
    let known = findings.read("daemonsets", &what, sets);
    let sets = known.as_deref().unwrap_or_default();
    let survey = Survey::read(client, *only, None, &progress).await;
    let what = format!("{NOT_TRIED}the Pods");
    let survey = findings.read("workloads", &what, survey);
    let survey = survey.unwrap_or_default();
    let images = survey.images();
    let session = Session::start(shared, configured, progress, Some(client), images).await?;
    agents::check(arrival, &session, sets, findings).await;
    sources::check(arrival, findings).await;
    admission::check(arrival, findings).await;
    quotas::check(arrival, known.as_deref(), findings).await;
    versions::check(arrival, findings).await;
    let examined = survey.examine(&session).await;
    workloads::check(arrival, &survey, &examined, findings);
    images::check(arrival, &session, &examined, &survey, sets, findings);
    Ok(())
}

/// Reads the configuration; the built-in defaults decide where that of the cluster cannot be read.
async fn configured(
    shared: &Shared,
    access: &Access,
    exam: &mut Exam<'_>,
) -> Result<Configured, Failure> {
    match access.configured(shared, exam.client).await {
        Ok(configured) => {
            // The first note names the source; the others are on parts that have no effect here.
            if let (None, Some(source)) = (&shared.config, configured.notes.first()) {
                exam.findings.ok("configuration", source);
            }
            Ok(configured)
        }
        Err(NotConfigured::Unread(why)) => {
            let message = format!("{NOT_TRIED}{why}; the checks go by the built-in defaults");
            exam.findings.unknown("configuration", message);
            Ok(shared.load(None, None)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a platform of the pools that no node has yet, rather that of arm64.
fn missing(discovery: &Discovery<'_>, nodes: &[Node]) -> PlatformSet {
    let usual = PlatformSet::of_architecture(USUAL);
    let mut missing = PlatformSet::EMPTY;
    for known in &discovery.pools {
        missing = missing.union(known.pool.platforms);
    }
    for node in nodes {
        missing = missing.difference(PlatformSet::of_architecture(&node.architecture));
    }
    if missing.is_empty() || missing.contains(usual) {
        return usual;
    }
    let first = missing.names().next().unwrap_or_default();
    first.parse().unwrap_or(usual)
}

fn platform(text: &str) -> Result<PlatformSet, String> {
    let platform: Result<PlatformSet, _> = text.parse();
    platform.map_err(|error| error.to_string())
}
