//! `tolerarch pools`: which pools there are, what the cluster says about them, and where new nodes come from. Reads with the
//! rights of the person who runs it.

mod written;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::inventory::Shown;
use super::output::{Look, json, print};
use super::session::run;
use super::{Failure, Shared};
use crate::config::Discover;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::discovery::Discovery;

#[derive(Debug, Args)]
pub(super) struct Command {
    // Pools are of the whole cluster: namespaces are taken as kubectl takes them there.
    #[command(flatten)]
    access: super::kubernetes::Access,
    /// How the result is written: a table, one JSON document, or configuration to paste
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
        let (configured, shown) = run(shared, async |progress| {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment)?;
            let (config, notes) = self.access.configured(shared, &client).await?;
            let mut shown = Shown::read(&client, Discover { node_pools: true, nodes: true }).await?;
            shown.notes.extend(client.take_left_out());
            // Only that which says whose pools these are: no file is opened for them.
            shown.notes.extend(notes.into_iter().take(usize::from(shared.config.is_none())));
            Ok((config.policy.pools, shown))
        })?;
        print(&shown.written(&configured, self.output, Look::of_stdout(&shared.environment))?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Shown {
    fn written(&self, configured: &[Pool], output: Output, look: Look) -> serde_json::Result<String> {
        let discovery = Discovery::of(configured, &self.inventory);
        Ok(match output {
            Output::Table => written::table(&discovery, &self.inventory, &self.notes, look),
            Output::Json => json(&written::json(&discovery, &self.notes))?,
            Output::Yaml => written::yaml(&discovery)?,
        })
    }
}

#[cfg(test)]
mod tests;
