//! Findings of the checks, and their output.

use std::fmt::Display;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::output::{Colour, sanitized};
use tolerarch_kubernetes::cluster::UserClient;
use tolerarch_text::list::List;

/// Number of characters of the longest name of a check.
const WIDTH: usize = 22;
/// Form of a list of names in a message.
const NAMES: List = List {
    separator: ", ",
    before_rest: " ",
    after_rest: "",
    items: 5,
    bytes: usize::MAX,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    Failed,
    /// The check was not possible, or there was nothing to check.
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

/// Result of all checks together. The numbers are the exit statuses.
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
    /// False if `doctor --pre` could not run the check.
    #[serde(skip)]
    pub(super) was_tried: bool,
}

/// Findings in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

/// Findings on one of several objects that are checked alike, such as a replica. Each message is a function of its name.
pub(super) struct SubjectFindings {
    subject: String,
    findings: Vec<SubjectFinding>,
}

struct SubjectFinding {
    finding: Finding,
    /// Message without the name of the object. Findings of one kind have it in common.
    common: String,
}

/// Beginning of the message of a check that was not possible.
const NOT_TRIED: &str = "not tried: ";

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

    /// Adds a finding on a check that was not possible.
    pub(super) fn not_tried(&mut self, check: &'static str, why: impl Display) {
        self.not_tried_with_fix(check, why, "");
    }

    pub(super) fn not_tried_with_fix(
        &mut self,
        check: &'static str,
        why: impl Display,
        fix: impl Into<String>,
    ) {
        self.0.push(Finding {
            check,
            status: Status::Unknown,
            message: format!("{NOT_TRIED}{why}"),
            fix: fix.into(),
            was_tried: false,
        });
    }

    /// Marks all checks with an unknown result as not tried.
    pub(super) fn mark_unknown_as_not_tried(&mut self) {
        for finding in &mut self.0 {
            if finding.status == Status::Unknown && finding.was_tried {
                finding.message.insert_str(0, NOT_TRIED);
                finding.was_tried = false;
            }
        }
    }

    /// Returns the result of a read; a failure becomes a finding on a check that was not possible.
    pub(super) fn read_or_not_tried<T, E: Display>(
        &mut self,
        check: &'static str,
        what: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(read) => Some(read),
            Err(error) => {
                self.not_tried(check, format!("{what} cannot be read: {error}"));
                None
            }
        }
    }

    /// Returns the result of a read; a failure becomes a finding. A missing right is no fault of the installation.
    pub(super) fn read<T, E: Display>(
        &mut self,
        check: &'static str,
        what: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(read) => Some(read),
            Err(error) => {
                self.unknown(check, format!("{what} cannot be read: {error}"));
                None
            }
        }
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
            was_tried: true,
        });
    }

    /// Adds findings on several objects. Findings of one kind become one, which names the other objects.
    pub(super) fn merge(&mut self, all: impl IntoIterator<Item = SubjectFindings>) {
        let mut merged: Vec<(SubjectFinding, Vec<String>)> = Vec::new();
        for SubjectFindings { subject, findings } in all {
            for one in findings {
                match merged.iter_mut().find(|(first, _)| first.is_like(&one)) {
                    Some((_, others)) => others.push(subject.clone()),
                    None => merged.push((one, Vec::new())),
                }
            }
        }
        for (SubjectFinding { mut finding, .. }, others) in merged {
            if !others.is_empty() {
                let others = some_of(others.iter().map(String::as_str));
                finding.message += &format!("; so for {others}");
            }
            self.0.push(finding);
        }
    }

    /// Puts faults first and checks without a fault last.
    pub(super) fn sort(&mut self) {
        self.0.sort_by_key(|finding| match finding.status {
            Status::Failed => 0,
            Status::Unknown => 1,
            Status::Ok => 2,
        });
    }

    pub(super) fn has_failed(&self) -> bool {
        let mut findings = self.0.iter();
        findings.any(|finding| finding.status == Status::Failed)
    }

    pub(super) fn verdict(&self) -> Verdict {
        let mut has_dry_run = false;
        let mut is_proven = true;
        for Finding { check, status, .. } in &self.0 {
            if *status == Status::Failed {
                return Verdict::Failed;
            }
            if *check == "dry-run" {
                has_dry_run = true;
                is_proven &= *status == Status::Ok;
            }
        }
        if has_dry_run && is_proven {
            Verdict::Healthy
        } else {
            Verdict::Unproven
        }
    }

    pub(super) fn json(&self) -> Value {
        let verdict = self.verdict();
        json!({"healthy": verdict == Verdict::Healthy, "status": verdict, "checks": self.0})
    }

    /// Renders a line for each finding: faults first, so that the user sees first what to fix first.
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
                sanitized(&finding.message)
            );
            if !finding.fix.is_empty() {
                text += &format!("  {:WIDTH$}  → {}\n", "", sanitized(&finding.fix));
            }
            text
        };
        let is_fault = |finding: &&Finding| finding.status == Status::Failed;
        let (faults, others): (Vec<&Finding>, Vec<&Finding>) = self.0.iter().partition(is_fault);
        faults.into_iter().chain(others).map(line).collect()
    }
}

impl SubjectFindings {
    pub(super) fn on(subject: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            findings: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn ok(&mut self, check: &'static str, message: impl Fn(&str) -> String) {
        self.add(Status::Ok, check, message, "");
    }

    pub(super) fn failed(
        &mut self,
        check: &'static str,
        message: impl Fn(&str) -> String,
        fix: impl Into<String>,
    ) {
        self.add(Status::Failed, check, message, fix);
    }

    pub(super) fn unknown(&mut self, check: &'static str, message: impl Fn(&str) -> String) {
        self.add(Status::Unknown, check, message, "");
    }

    /// Returns the result of a read; a failure becomes a finding, as with [`Findings::read`].
    pub(super) fn read<T, E: Display>(
        &mut self,
        check: &'static str,
        what: impl Fn(&str) -> String,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(read) => Some(read),
            Err(error) => {
                self.unknown(check, |name| {
                    format!("{} cannot be read: {error}", what(name))
                });
                None
            }
        }
    }

    pub(super) fn add(
        &mut self,
        status: Status,
        check: &'static str,
        message: impl Fn(&str) -> String,
        fix: impl Into<String>,
    ) {
        self.findings.push(SubjectFinding {
            common: message(""),
            finding: Finding {
                check,
                status,
                message: message(&self.subject),
                fix: fix.into(),
                was_tried: true,
            },
        });
    }
}

impl SubjectFinding {
    fn is_like(&self, other: &Self) -> bool {
        self.finding.status == other.finding.status
            && self.common == other.common
            && self.finding.fix == other.finding.fix
    }
}

/// Lists the first names, and the number of the others.
pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    NAMES.write(&names, |name| (*name).to_owned())
}
