//! The command line: a module for each subcommand, what they share, and what the process exits with.

mod config;
mod serve;

use std::error::Error as StdError;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Flag, Sources};
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
    /// Check the configuration and print what holds, with where each value comes from; or all its faults.
    #[command(
        after_help = "Examples:\n  tolerarch config --config config.yaml\n  tolerarch config --schema > config.schema.json"
    )]
    Config(config::Show),
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
            Command::Config(show) => show.run(&shared),
        }
    }
}

impl Shared {
    /// The file, the environment over it, and over both these flags and those that all subcommands share.
    fn sources(&self, flags: impl IntoIterator<Item = Option<Flag>>) -> Sources {
        let Self { config, log_level, log_format } = self;
        let shared = [
            flag("--log-level", "log.level", log_level.map(shown)),
            flag("--log-format", "log.format", log_format.map(shown)),
        ];
        Sources::of_process(config.clone(), shared.into_iter().chain(flags).flatten().collect())
    }
}

/// A flag that sets the key at `path`, if it was given.
fn flag(name: &'static str, path: &'static str, value: Option<impl ToString>) -> Option<Flag> {
    value.map(|value| Flag { name, path, value: value.to_string() })
}

/// A variant as it is written.
fn shown(variant: impl ValueEnum) -> String {
    variant.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
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
