//! Findings of the checks, and their output.

use std::fmt::Display;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::output::{Colour, shown};
use tolerarch_kubernetes::cluster::UserClient;

/// Characters of the longest name of a check.
const WIDTH: usize = 22;
/// Maximal number of names in a message.
const NAMED: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    Failed,
    /// A check that was not possible, or had nothing to check.
    Unknown,
}

impl Status {
    pub(super) const fn failed_if(is_fault: bool) -> Self {
        if is_fault {
            Self::Failed
        } else {
            Self::Unknown
        }
    }
}

/// Result of all checks together, as the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Healthy = 0,
    Failed = 3,
    /// No fault was found, but no dry run has shown that Pods are decided.
    Unproven = 4,
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) status: Status,
    pub(super) message: String,
    /// Advice; empty if there is nothing to do.
    pub(super) fix: String,
}

/// Findings in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

/// Client and scope of the checks, and their findings so far.
pub(super) struct Exam<'a> {
    pub(super) client: &'a UserClient,
    /// Namespace to which the checks are limited.
    pub(super) only: Option<&'a str>,
    pub(super) config: Option<&'a Path>,
    pub(super) findings: Findings,
}

impl Findings {
    pub(super) fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(Status::Ok, check, message, "");
    }

    pub(super) fn failed(
        &mut self,
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Status::Failed, check, message, fix);
    }

    pub(super) fn unknown(&mut self, check: &'static str, message: impl Into<String>) {
        self.add(Status::Unknown, check, message, "");
    }

    /// Returns what was read; a failure becomes a finding. A missing right is no fault of the installation.
    pub(super) fn read<T, E: Display>(
        &mut self,
        check: &'static str,
        what: &str,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|error| self.unknown(check, format!("{what} cannot be read: {error}")))
            .ok()
    }

    pub(super) fn add(
        &mut self,
        status: Status,
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Finding {
            check,
            status,
            message: message.into(),
            fix: fix.into(),
        });
    }

    /// Adds findings on several objects, each with its name; those that differ in nothing but the name become one.
    pub(super) fn merge(&mut self, all: impl IntoIterator<Item = (String, Self)>) {
        let mut merged: Vec<((Status, String), Finding, Vec<String>)> = Vec::new();
        for (name, own) in all {
            for finding in own.0 {
                let key = (
                    finding.status,
                    finding.message.replace(&name, "") + &finding.fix,
                );
                match merged.iter_mut().find(|(known, ..)| *known == key) {
                    Some((.., others)) => others.push(name.clone()),
                    None => merged.push((key, finding, Vec::new())),
                }
            }
        }
        self.0
            .extend(merged.into_iter().map(|(_, mut finding, others)| {
                if !others.is_empty() {
                    finding.message +=
                        &format!("; so for {}", some_of(others.iter().map(String::as_str)));
                }
                finding
            }));
    }

    pub(super) fn verdict(&self) -> Verdict {
        let mut dry_runs = self
            .0
            .iter()
            .filter(|finding| finding.check == "dry-run")
            .peekable();
        if self
            .0
            .iter()
            .any(|finding| finding.status == Status::Failed)
        {
            Verdict::Failed
        } else if dry_runs.peek().is_some() && dry_runs.all(|finding| finding.status == Status::Ok)
        {
            Verdict::Healthy
        } else {
            Verdict::Unproven
        }
    }

    pub(super) fn json(&self) -> Value {
        let verdict = self.verdict();
        json!({"healthy": verdict == Verdict::Healthy, "status": verdict, "checks": self.0})
    }

    /// Renders a line for each finding: faults first, so that the first line names what to mend first.
    pub(super) fn table(&self) -> String {
        let line = |finding: &Finding| {
            let mark = match finding.status {
                Status::Ok => Colour::Green.paint("✓"),
                Status::Failed => Colour::Red.paint("✗"),
                Status::Unknown => Colour::Faint.paint("–"),
            };
            let mut text = format!(
                "{mark} {:WIDTH$}  {}\n",
                finding.check,
                shown(&finding.message)
            );
            if !finding.fix.is_empty() {
                text += &format!("  {:WIDTH$}  → {}\n", "", shown(&finding.fix));
            }
            text
        };
        let is_fault = |finding: &&Finding| finding.status == Status::Failed;
        let (faults, others): (Vec<&Finding>, Vec<&Finding>) = self.0.iter().partition(is_fault);
        faults.into_iter().chain(others).map(line).collect()
    }
}

/// Lists the first of these names, and the number of the others.
pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    let first = all
        .iter()
        .take(NAMED)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    if all.len() > NAMED {
        format!("{first} and {} more", all.len() - NAMED)
    } else {
        first
    }
}
