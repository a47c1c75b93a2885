//! Settings that all subcommands share, and the configuration that follows from them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::output;
use crate::config::{Config, Flag, Loaded, Sources};
use tolerarch_support::environment::Environment;
use tolerarch_support::logging::{Format, Level};

#[derive(Debug, Args)]
pub(super) struct Shared {
    /// The configuration file [default: the cluster's configuration; for check, config and the services the built-in
    /// defaults]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The lowest level that is logged [default: info for the services, otherwise warn]
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    pub(super) log_level: Option<Level>,
    /// The format of log lines [default: json for the services, otherwise text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(super) log_format: Option<Format>,
    #[arg(skip)]
    pub(super) environment: Environment,
}

impl Shared {
    /// Returns the sources of the configuration: the file, which the environment overrides, and the flags, which override
    /// both. `flags` are those of the subcommand.
    pub(super) fn sources(&self, flags: impl IntoIterator<Item = Option<Flag>>) -> Sources {
        let Self {
            config,
            log_level,
            log_format,
            environment,
        } = self;
        let shared = [
            flag("--log-level", "log.level", log_level.map(variant_name)),
            flag("--log-format", "log.format", log_format.map(variant_name)),
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

/// Expands `~` in paths, and uses the user's own docker configuration if none is configured, as crane and regctl do.
pub(super) fn apply_user_defaults(config: &mut Config, environment: &Environment) {
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

/// Prints warnings on values of a configuration that are valid, but probably not what the user meant.
pub(super) fn warn(loaded: &Loaded) {
    for warning in loaded.warnings() {
        output::print_error(&format!("tolerarch: warning: {warning}"));
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
fn variant_name(variant: impl ValueEnum) -> String {
    let value = variant.to_possible_value();
    value
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
