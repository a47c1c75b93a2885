//! Settings that all subcommands share, and the configuration that follows from them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::output;
use crate::config::{Config, Flag, Loaded, Sources};
use tolerarch_support::environment::Environment;
use tolerarch_support::logging::{Format, Level};

#[derive(Debug, Args)]
pub(super) struct Shared {
    /// The configuration [default: that of the cluster; for check and serve the built-in defaults]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// From which level on lines are logged [default: info for serve and controller, otherwise warn]
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    pub(super) log_level: Option<Level>,
    /// How a log line looks [default: json for serve and controller, otherwise text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(super) log_format: Option<Format>,
    #[arg(skip)]
    pub(super) environment: Environment,
}

impl Shared {
    /// Returns the file, the environment over it, and over both `flags` and the flags that all subcommands share.
    pub(super) fn sources(&self, flags: impl IntoIterator<Item = Option<Flag>>) -> Sources {
        let Self {
            config,
            log_level,
            log_format,
            environment,
        } = self;
        let shared = [
            flag("--log-level", "log.level", log_level.map(shown)),
            flag("--log-format", "log.format", log_format.map(shown)),
        ];
        let flags = shared.into_iter().chain(flags).flatten().collect();
        Sources {
            file: config.clone(),
            environment: environment.clone(),
            flags,
            tolerant: false,
        }
    }
}

/// Uses the user's own docker configuration if none is configured, as crane and regctl do, and expands `~` in paths.
pub(super) fn personal(config: &mut Config, environment: &Environment) {
    let variable = |name| {
        let value = environment.get(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let home = variable("HOME");
    if let Some(home) = &home {
        config.expand_home(home);
    }
    let files = &mut config.credentials.docker_configs;
    if !files.is_empty() {
        return;
    }
    let directory = variable("DOCKER_CONFIG").or_else(|| Some(home?.join(".docker")));
    if let Some(directory) = directory {
        let file = directory.join("config.json");
        if file.is_file() {
            files.push(file);
        }
    }
}

/// Prints the values of a configuration that are valid, but probably not what the user meant.
pub(super) fn warn(loaded: &Loaded) {
    for warning in loaded.warnings() {
        output::tell(&format!("tolerarch: warning: {warning}"));
    }
}

/// Returns a flag that sets the key at `path`, if there is a value.
pub(super) fn flag(
    name: &'static str,
    path: &'static str,
    value: Option<impl ToString>,
) -> Option<Flag> {
    value.map(|value| Flag {
        name,
        path,
        value: value.to_string(),
    })
}

/// Returns the name of a variant on the command line.
fn shown(variant: impl ValueEnum) -> String {
    let value = variant.to_possible_value();
    value
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
