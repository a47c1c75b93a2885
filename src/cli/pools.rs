//! `tolerarch pools` shows the pools, their nodes and NodePools, and the source of new nodes. Reads with the user's rights.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::autoscaler::AutoscalerSearch;
use super::configured::Configured;
use super::inventory::ClusterNodes;
use super::output::{self, Colour, Row, print, wrapped};
use super::session::run;
use super::{Failure, Shared};
use crate::config::Discover;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::autoscaler::{Autoscaler, Choice, Expanders, NodeGroup, Outlook};
use tolerarch_kubernetes::cluster::NodePool;
use tolerarch_kubernetes::discovery::{ClusterPool, Discovery, Inventory, Source, Verdict};

#[derive(Debug, Args)]
pub(super) struct Command {
    // `--namespace` is accepted and has no effect, as in kubectl for cluster-scoped objects.
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// The format of the result: a table, one JSON document, or configuration to paste
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
    Yaml,
}

impl Command {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let (configured, cluster, autoscaler) = run(shared, async |progress| {
            progress.show("querying the API server");
            let client = self.access.connect(&shared.environment)?;
            let Configured { config, notes, .. } = self.access.configured(shared, &client).await?;
            let mut cluster =
                ClusterNodes::read(&client, Discover::ALL, &config.policy.pools).await?;
            let search = AutoscalerSearch::read(&client, cluster.nodes.as_deref()).await;
            cluster.notes.extend(search.notes);
            cluster.notes.extend(client.take_left_out());
            // The first note names the source of the configuration. The others concern parts that have no effect here.
            if shared.config.is_none() {
                cluster.notes.extend(notes.into_iter().next());
            }
            Ok((config.policy.pools, cluster, search.autoscaler))
        })?;
        let width = output::columns();
        print(&cluster.written(&configured, autoscaler.as_ref(), self.output, width)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl ClusterNodes {
    fn written(
        &self,
        configured: &[Pool],
        autoscaler: Option<&Autoscaler>,
        output: Output,
        width: Option<usize>,
    ) -> serde_json::Result<String> {
        let discovery = Discovery::of(configured, &self.inventory);
        Ok(match output {
            Output::Table => self.table(&discovery, autoscaler, width),
            Output::Json => output::json(&document(&discovery, autoscaler, self))?,
            Output::Yaml => yaml(&discovery)?,
        })
    }

    /// Renders the pools as a table, followed by verdicts, warnings and notes, and by the NodePools that no pool opens.
    fn table(
        &self,
        discovery: &Discovery<'_>,
        autoscaler: Option<&Autoscaler>,
        width: Option<usize>,
    ) -> String {
        let outlooks = self.outlooks(discovery, autoscaler);
        let mut header = vec!["POOL", "SOURCE", "PLATFORMS", "NODEPOOLS", "NODES"];
        let mut rows: Vec<Row> = discovery.pools.iter().map(|pool| self.row(pool)).collect();
        if let Some(autoscaler) = autoscaler {
            header.push("NODE GROUPS");
            for (row, outlook) in rows.iter_mut().zip(&outlooks) {
                let cell = |group: &&NodeGroup| group_cell(autoscaler, group);
                let groups: Vec<String> = outlook.groups.iter().map(cell).collect();
                row.cells.push(groups.join(", "));
            }
        }
        let mut text = output::table(&header, rows, "", width);
        for (colour, line) in self.verdicts(discovery, &outlooks) {
            text += &colour.paint(&wrapped(&line, "  ", width));
        }
        let warnings = discovery.mismatches().chain(discovery.warnings.clone());
        for warning in warnings.chain(self.notes.iter().cloned()) {
            text += &Colour::Yellow.paint(&wrapped(&warning, "  ", width));
        }
        if !discovery.closed.is_empty() {
            let closed = discovery.closed.iter();
            let closed = closed.map(|pool| closed_row(pool, &self.inventory));
            text += "\nNodePools with taints that no pool opens:\n";
            text += &output::table(&["NODEPOOL", "PLATFORMS", "TAINTS"], closed, "", width);
        }
        text
    }

    /// Returns a line for each pool on what Karpenter and the cluster-autoscaler do for it.
    fn verdicts(
        &self,
        discovery: &Discovery<'_>,
        outlooks: &[Outlook<'_>],
    ) -> Vec<(Colour, String)> {
        let mut lines = Vec::new();
        let mut add = |is_fine: bool, line: String| {
            let colour = if is_fine {
                Colour::Plain
            } else {
                Colour::Yellow
            };
            lines.push((colour, line));
        };
        for (at, cluster_pool) in discovery.pools.iter().enumerate() {
            let ClusterPool { pool, verdict, .. } = cluster_pool;
            let name = &pool.name;
            // Without any NodePool there is no verdict on Karpenter.
            if !self.inventory.node_pools.is_empty() {
                let is_fine = matches!(verdict, Verdict::OfPool(_) | Verdict::NoNodePool);
                add(is_fine, format!("{name}: {verdict}"));
            }
            if let Some(outlook) = outlooks.get(at)
                && outlook.concerns(cluster_pool)
            {
                let choice = &outlook.choice;
                let is_fine = choice.is_right() || *choice == Choice::NoGroup;
                add(is_fine, format!("{name}: {choice}"));
                for warning in outlook.warnings() {
                    add(false, format!("{name}: {warning}"));
                }
            }
        }
        lines
    }

    /// Returns the outlook for each pool, in their order; none without a cluster-autoscaler.
    fn outlooks<'a>(
        &'a self,
        discovery: &Discovery<'_>,
        autoscaler: Option<&'a Autoscaler>,
    ) -> Vec<Outlook<'a>> {
        let Some(autoscaler) = autoscaler else {
            return Vec::new();
        };
        let grouped = autoscaler.grouped(self.nodes.as_deref().unwrap_or_default());
        let pools = discovery.pools.iter();
        pools
            .map(|cluster_pool| grouped.outlook(&cluster_pool.pool))
            .collect()
    }

    fn row(&self, cluster_pool: &ClusterPool<'_>) -> Row {
        let weighted = |pool: &&NodePool| format!("{} ({})", pool.name(), pool.weight);
        let node_pools: Vec<String> = cluster_pool.node_pools.iter().map(weighted).collect();
        let or_unknown =
            |is_known: bool, text: String| if is_known { text } else { "?".to_owned() };
        Row {
            colour: Colour::Plain,
            cells: vec![
                cluster_pool.pool.name.clone(),
                source(cluster_pool.source).to_owned(),
                architectures(cluster_pool.pool.platforms),
                or_unknown(self.has_read_node_pools, node_pools.join(", ")),
                or_unknown(self.nodes.is_some(), cluster_pool.nodes.to_string()),
            ],
        }
    }
}

/// Renders a node group with its priority, if it has one that counts.
fn group_cell(autoscaler: &Autoscaler, group: &NodeGroup) -> String {
    match autoscaler.priority(group) {
        Some(priority) => format!("{} ({priority})", group.name),
        None => group.name.clone(),
    }
}

const fn source(source: Source) -> &'static str {
    match source {
        Source::Configured => "configured",
        Source::Discovered => "discovered",
    }
}

/// Lists the architectures of platforms, whose operating system is always linux.
fn architectures(platforms: PlatformSet) -> String {
    let names: Vec<String> = platforms.names().collect();
    names.join(", ").replace("linux/", "")
}

fn closed_row(pool: &NodePool, inventory: &Inventory) -> Row {
    let taints: Vec<&str> = pool.taints.iter().map(|taint| taint.key.as_str()).collect();
    let platforms = architectures(inventory.platforms_of(pool));
    Row {
        colour: Colour::Faint,
        cells: vec![pool.name().to_owned(), platforms, taints.join(", ")],
    }
}

fn document(
    discovery: &Discovery<'_>,
    autoscaler: Option<&Autoscaler>,
    cluster: &ClusterNodes,
) -> Value {
    let pools = discovery.pools.iter();
    let mut pools: Vec<Value> = pools
        .map(|cluster_pool| pool_document(cluster_pool, cluster))
        .collect();
    if let Some(autoscaler) = autoscaler {
        let outlooks = cluster.outlooks(discovery, Some(autoscaler));
        for (pool, outlook) in pools.iter_mut().zip(outlooks) {
            pool["clusterAutoscaler"] = groups_document(autoscaler, &outlook);
        }
    }
    let mut document = json!({
        "pools": pools,
        "closed": discovery.closed.iter().map(|pool| pool.name()).collect::<Vec<&str>>(),
        "warnings": discovery.warnings,
        "notes": cluster.notes,
    });
    if let Some(autoscaler) = autoscaler {
        document["clusterAutoscaler"] = autoscaler_document(autoscaler);
    }
    document
}

fn pool_document(cluster_pool: &ClusterPool<'_>, cluster: &ClusterNodes) -> Value {
    let weighted = |pool: &&NodePool| json!({"name": pool.name(), "weight": pool.weight});
    let node_pools: Vec<Value> = cluster_pool.node_pools.iter().map(weighted).collect();
    json!({
        "name": cluster_pool.pool.name,
        "source": source(cluster_pool.source),
        "platforms": cluster_pool.pool.platforms,
        "nodePools": cluster.has_read_node_pools.then_some(node_pools),
        "nodes": cluster.nodes.is_some().then_some(cluster_pool.nodes),
        "mismatch": cluster_pool.mismatch(),
        "verdict": cluster.has_read_node_pools.then(|| cluster_pool.verdict.to_string()),
    })
}

fn autoscaler_document(autoscaler: &Autoscaler) -> Value {
    let expanders = match &autoscaler.expanders {
        Expanders::Named(names) => Some(names),
        Expanders::Gke | Expanders::Unseen => None,
    };
    let group = |group: &NodeGroup| {
        json!({
            "name": group.name,
            "priority": autoscaler.priority(group),
            "nodes": group.nodes(),
            "most": group.max_size(),
        })
    };
    let groups = autoscaler.groups.as_ref();
    let groups = groups.map(|groups| groups.iter().map(group).collect::<Vec<Value>>());
    json!({"namespace": autoscaler.namespace, "expanders": expanders, "nodeGroups": groups})
}

/// Describes what the cluster-autoscaler does for a pool.
fn groups_document(autoscaler: &Autoscaler, outlook: &Outlook<'_>) -> Value {
    let mut groups = Vec::new();
    for group in &outlook.groups {
        groups.push(json!({
            "name": group.name,
            "priority": autoscaler.priority(group),
            "obstacle": group.obstacle(),
        }));
    }
    let is_first = if outlook.choice.is_right() {
        Some(true)
    } else if outlook.choice.is_wrong() {
        Some(false)
    } else {
        None
    };
    json!({"nodeGroups": groups, "isFirst": is_first, "verdict": outlook.choice.to_string()})
}

/// Renders the pools as configuration. Strings are written as JSON, which is YAML as well.
fn yaml(discovery: &Discovery<'_>) -> serde_json::Result<String> {
    let mut text = "pools:\n".to_owned();
    for ClusterPool { pool, .. } in &discovery.pools {
        let Pool {
            name,
            platforms,
            tolerations,
            share,
            prefer,
            select,
        } = pool;
        let platforms: Vec<String> = platforms.names().collect();
        text += &format!(
            "  - name: {}\n    platforms: [{}]\n",
            json!(name),
            platforms.join(", ")
        );
        text += "    tolerations:\n";
        for toleration in tolerations {
            text += &format!("      - {}\n", serde_json::to_string(toleration)?);
        }
        if *share != Pool::ALL {
            text += &format!("    share: {share}\n");
        }
        if let Some(prefer) = prefer {
            text += &format!(
                "    prefer: {{weight: {}, labels: {}}}\n",
                prefer.weight,
                json!(prefer.labels)
            );
        }
        if !select.is_empty() {
            text += &format!("    select: {{labels: {}}}\n", json!(select));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
