//! `tolerarch completions`: a script for a shell.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

use super::output::print;
use super::{Cli, fail};

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub(super) fn run(self) -> ExitCode {
        let shell = match self.shell {
            Which::Bash => Shell::Bash,
            Which::Zsh => Shell::Zsh,
            Which::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut Cli::command(), "tolerarch", &mut script);
        match print(&String::from_utf8_lossy(&script)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        }
    }
}
