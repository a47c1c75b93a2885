//! `tolerarch pools`: which pools there are, what the cluster says about them, and where new nodes come from. Reads with the
//! rights of the person who runs it.

mod written;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::inventory::Shown;
use super::output::{Look, Progress, document, print};
use super::{Shared, fail};
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
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        let progress = Progress::start(shared.log_level, shared.log_format);
        let configured = match shared.load() {
            Ok(config) => config.policy.pools,
            Err(error) => return fail(&error),
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&error),
        };
        let read = runtime.block_on(async {
            progress.show("asking the API server");
            let client = self.access.connect(&shared.environment).await.map_err(|error| fail(&error))?;
            let read = Shown::read(&client, Discover { node_pools: true, nodes: true }).await;
            progress.show("");
            read.map_err(|error| fail(&error))
        });
        let shown = match read {
            Ok(shown) => shown,
            Err(status) => return status,
        };
        let text = shown.written(&configured, self.output, Look::of_stdout(&shared.environment));
        match print(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        }
    }
}

impl Shown {
    fn written(&self, configured: &[Pool], output: Output, look: Look) -> String {
        let discovery = Discovery::of(configured, &self.inventory);
        match output {
            Output::Table => written::table(&discovery, &self.inventory, &self.notes, look),
            Output::Json => document(&format!("{:#}", written::json(&discovery, &self.notes))),
            Output::Yaml => written::yaml(&discovery),
        }
    }
}

#[cfg(test)]
mod tests;
