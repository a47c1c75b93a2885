//! What was found, check by check, and how it is written.

use serde_json::{Value, json};

use crate::cli::output::{Colour, Look, shown};
use tolerarch_kubernetes::cluster::RequestError;

/// Characters of the longest name of a check.
const WIDTH: usize = 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Failed,
    /// It could not be checked, or there is nothing to check.
    Unknown,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    const fn look(self) -> (&'static str, Colour) {
        match self {
            Self::Ok => ("✓", Colour::Green),
            Self::Failed => ("✗", Colour::Red),
            Self::Unknown => ("–", Colour::Faint),
        }
    }
}

/// One line.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) status: Status,
    pub(super) message: String,
    /// What to do; empty where there is nothing to do.
    pub(super) fix: String,
}

/// All lines, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(check, Status::Ok, message.into(), String::new());
    }

    pub(super) fn failed(&mut self, check: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.add(check, Status::Failed, message.into(), fix.into());
    }

    pub(super) fn unknown(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(check, Status::Unknown, message.into(), String::new());
    }

    /// What is no fault of the installation, and what to do about it.
    pub(super) fn noted(&mut self, check: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.add(check, Status::Unknown, message.into(), fix.into());
    }

    /// Something could not be read; a missing right is no fault of the installation.
    pub(super) fn unread(&mut self, check: &'static str, what: &str, error: &RequestError) {
        self.unknown(check, format!("{what} cannot be read: {error}"));
    }

    fn add(&mut self, check: &'static str, status: Status, message: String, fix: String) {
        self.0.push(Finding { check, status, message, fix });
    }

    /// Whether this check has failed.
    pub(super) fn has_failed(&self, check: &str) -> bool {
        self.0.iter().any(|finding| finding.check == check && finding.status == Status::Failed)
    }

    pub(super) fn any_failed(&self) -> bool {
        self.0.iter().any(|finding| finding.status == Status::Failed)
    }

    pub(super) fn table(&self, look: Look) -> String {
        let line = |finding: &Finding| {
            let (mark, colour) = finding.status.look();
            let mark = colour.paint(mark, look);
            let mut text = format!("{mark} {:WIDTH$}  {}\n", finding.check, shown(&finding.message));
            if !finding.fix.is_empty() {
                text += &format!("  {:WIDTH$}  → {}\n", "", shown(&finding.fix));
            }
            text
        };
        self.0.iter().map(line).collect()
    }

    pub(super) fn json(&self) -> Value {
        let one = |finding: &Finding| {
            let Finding { check, status, message, fix } = finding;
            json!({"check": check, "status": status.as_str(), "message": message, "fix": fix})
        };
        json!({"healthy": !self.any_failed(), "checks": self.0.iter().map(one).collect::<Vec<_>>()})
    }
}
