//! `tolerarch doctor --pre` checks whether a cluster is ready for its first node of another architecture. It needs no
//! installation.

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

use super::findings::{Exam, Finding, Findings};
use super::{installation, version};
use crate::cli::autoscaler::AutoscalerSearch;
use crate::cli::configured::{Configured, NotConfigured};
use crate::cli::inventory::ClusterNodes;
use crate::cli::kubernetes::Access;
use crate::cli::output::Progress;
use crate::cli::session::Session;
use crate::cli::survey::Survey;
use crate::cli::{Failure, Shared};
use crate::config::{Discover, Verify};
use arrival::{Arrival, present};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{DaemonSet, Node};
use tolerarch_kubernetes::discovery::{Discovery, NewNode};

/// Architecture of the new node if the nodes already have every platform of the pools.
const DEFAULT_ARCHITECTURE: &str = "arm64";

#[derive(Debug, Args)]
pub(super) struct Pre {
    /// Check, before an installation, whether the cluster is ready for its first node of another architecture
    #[arg(long = "pre")]
    pub(super) is_on: bool,
    /// The platform of the new node, for --pre [default: a platform of the pools that no node has yet, or linux/arm64]
    #[arg(long, value_name = "PLATFORM", requires = "is_on", value_parser = platform)]
    platform: Option<PlatformSet>,
    /// The pool of the new node, for --pre [default: all pools with the platform]
    #[arg(long, value_name = "NAME", requires = "is_on")]
    pool: Option<String>,
}

/// Nodes to be added.
struct Target<'a> {
    platform: PlatformSet,
    architecture: &'static str,
    pools: Vec<&'a Pool>,
    nodes: Vec<NewNode<'a>>,
}

impl Pre {
    /// Runs all checks. Those on DaemonSets come first: no node works without these.
    pub(super) async fn examine(
        &self,
        shared: &Shared,
        access: &Access,
        progress: Progress,
    ) -> Result<Findings, Failure> {
        progress.show("querying the API server");
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
        let cluster = ClusterNodes::read(&client, Discover::ALL, pools).await?;
        let search = AutoscalerSearch::read(&client, cluster.nodes.as_deref()).await;
        let namespaces = installation::namespaces(&mut exam).await;
        // So far, an unknown result means that something could not be read.
        exam.findings.mark_unknown_as_not_tried();
        let config = &mut configured.config;
        let discovery = Discovery::of(&config.policy.pools, &cluster.inventory);
        let Target {
            platform,
            architecture,
            pools,
            nodes,
        } = self.target(&cluster, &discovery)?;
        let arrival = Arrival {
            client: &client,
            only: exam.only,
            architecture,
            platform,
            present: present(cluster.nodes.as_deref().unwrap_or_default()),
            cluster: &cluster,
            search: &search,
            discovery: &discovery,
            pools,
            nodes,
            namespaces,
            verify: config.verify,
        };
        // The index of an image is always compared with the configs, even if the webhook trusts the index.
        config.verify = Verify::Config;
        let findings = &mut exam.findings;
        check(&arrival, shared, configured, progress, findings).await?;
        for note in client.take_left_out() {
            findings.unknown("unread", note);
        }
        findings.sort();
        Ok(exam.findings)
    }

    /// Returns the nodes to be added: with the platform and the pool that the user names, or those that pools and nodes
    /// suggest.
    fn target<'a>(
        &self,
        cluster: &'a ClusterNodes,
        discovery: &'a Discovery<'_>,
    ) -> Result<Target<'a>, Failure> {
        let nodes = cluster.nodes.as_deref().unwrap_or_default();
        let platform = match self.platform {
            Some(platform) => platform,
            None => missing(discovery, nodes),
        };
        let architectures = platform.architectures();
        let architecture = architectures
            .first()
            .copied()
            .unwrap_or(DEFAULT_ARCHITECTURE);
        let pools = self.pools(discovery, platform)?;
        let inventory = &cluster.inventory;
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
        let all = discovery
            .pools
            .iter()
            .map(|cluster_pool| &cluster_pool.pool);
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
    let was_tried = |finding: &Finding| finding.was_tried;
    json!({
        "ready": !findings.has_failed(),
        "complete": findings.0.iter().all(was_tried),
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
    let readable_sets = findings.read_or_not_tried("daemonsets", "the DaemonSets", sets);
    let sets = readable_sets.as_deref().unwrap_or_default();
    let survey = Survey::read(client, *only, None, &progress).await;
    let survey = findings.read_or_not_tried("workloads", "the Pods", survey);
    let survey = survey.unwrap_or_default();
    let images = survey.images();
    let session = Session::start(shared, configured, progress, Some(client), images).await?;
    agents::check(arrival, &session, sets, findings).await;
    sources::check(arrival, findings).await;
    admission::check(arrival, findings).await;
    quotas::check(arrival, readable_sets.as_deref(), findings).await;
    versions::check(arrival, findings).await;
    let examined = survey.examine(&session).await;
    workloads::check(arrival, &survey, &examined, findings);
    images::check(arrival, &session, &examined, &survey, sets, findings);
    Ok(())
}

/// Reads the configuration: the built-in defaults if that of the cluster cannot be read.
async fn configured(
    shared: &Shared,
    access: &Access,
    exam: &mut Exam<'_>,
) -> Result<Configured, Failure> {
    match access.configured(shared, exam.client).await {
        Ok(configured) => {
            // The first note names the source. The others concern parts that have no effect here.
            if let (None, Some(source)) = (&shared.config, configured.notes.first()) {
                exam.findings.ok("configuration", source);
            }
            Ok(configured)
        }
        Err(NotConfigured::Unread(why)) => {
            let why = format!("{why}; the checks use the built-in defaults");
            exam.findings.not_tried("configuration", why);
            Ok(shared.load(None, None)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a platform of the pools that no node has yet, preferably that of arm64.
fn missing(discovery: &Discovery<'_>, nodes: &[Node]) -> PlatformSet {
    let usual = PlatformSet::of_architecture(DEFAULT_ARCHITECTURE);
    let mut missing = PlatformSet::EMPTY;
    for cluster_pool in &discovery.pools {
        missing = missing.union(cluster_pool.pool.platforms);
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
