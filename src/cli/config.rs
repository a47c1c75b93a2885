//! `tolerarch config`: the effective configuration as a valid file, or all its faults.

use std::process::ExitCode;

use clap::Args;

use super::output::print;
use super::{Failure, Shared, warn};
use crate::config::{explained, schema};

#[derive(Debug, Args)]
pub(super) struct Show {
    /// Print the JSON schema of the configuration file instead, for editors
    #[arg(long)]
    schema: bool,
    /// Print every key with its meaning and its default instead
    #[arg(long, conflicts_with = "schema")]
    explain: bool,
}

impl Show {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let text = if self.schema {
            schema()
        } else if self.explain {
            explained()
        } else {
            let loaded = shared.sources([]).load()?;
            warn(&loaded);
            loaded.to_yaml()
        };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
