//! Failure of a command as a whole, and its exit status.

use std::error::Error as StdError;
use std::iter::successors;
use std::process::ExitCode;

use super::output;

#[derive(Debug)]
pub(super) enum Failure {
    /// Wrong usage that shows only when the configuration is read.
    Usage(String),
    Error(Box<dyn StdError>),
}

impl<E: StdError + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Failure {
    /// Prints the failure with its causes, and returns the exit status.
    pub(super) fn print(self) -> ExitCode {
        let (text, status) = match self {
            Self::Usage(message) => (message, ExitCode::from(2)),
            Self::Error(error) => {
                let causes = successors(Some(&*error), |&error| error.source());
                let causes: Vec<String> = causes.map(ToString::to_string).collect();
                (causes.join(": "), ExitCode::FAILURE)
            }
        };
        // An invalid configuration has one line for each fault.
        for line in format!("tolerarch: {text}").lines() {
            output::print_error(line);
        }
        status
    }
}
