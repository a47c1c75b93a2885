//! The command line: a module for each subcommand, what they share, and what the process exits with.

mod serve;

use std::error::Error as StdError;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigError};
use crate::logging::{Format, Level};

/// Opens multi-arch node pools to the Pods whose images run on every architecture of the pool.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the webhook: reviews over HTTPS at /mutate, metrics and probes on the admin port.
    #[command(
        after_help = "Example:\n  tolerarch serve --tls-cert tls.crt --tls-key tls.key --log-format text"
    )]
    Serve(serve::Serve),
}

#[derive(Debug, Args)]
struct Shared {
    /// The configuration; without one, the defaults do the main job
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// From which level on lines are logged [default: info]
    #[arg(long, global = true, value_enum)]
    log_level: Option<Level>,
    /// How a log line looks [default: json]
    #[arg(long, global = true, value_enum)]
    log_format: Option<Format>,
}

impl Cli {
    /// Parses the process' arguments and does what they say. Wrong usage ends the process with status 2.
    pub fn parse_and_run() -> ExitCode {
        let Self { command, shared } = Self::parse();
        match command {
            Command::Serve(serve) => serve.run(&shared),
        }
    }
}

/// The file, and the flags that beat it.
fn configure(shared: &Shared) -> Result<Config, ConfigError> {
    let Shared { config, log_level, log_format } = shared;
    let mut config = config.as_deref().map_or_else(|| Ok(Config::default()), Config::load)?;
    config.log.level = log_level.unwrap_or(config.log.level);
    config.log.format = log_format.unwrap_or(config.log.format);
    Ok(config)
}

/// Tells what went wrong, with its causes, and gives the status for it.
fn fail(error: &dyn StdError) -> ExitCode {
    let mut text = format!("tolerarch: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    eprintln!("{text}");
    ExitCode::FAILURE
}
