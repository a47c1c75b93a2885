//! The binary: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tolerarch::cli::Cli::parse_and_run()
}
