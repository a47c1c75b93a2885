//! The result of a check: for people, for programs, or the patches alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::advice::EXCLUDED;
use super::super::output::{Colour, Look, Row, document, print, shown, table, tell};
use super::super::session::{BlockingImage, Decided, FailOn};
use super::workload::Object;
use tolerarch_core::reason::Reason;

/// Causes that are listed below a table.
const CAUSES: usize = 20;

#[derive(Default)]
pub(super) struct Report {
    /// Names of files, as they were given.
    sources: Vec<String>,
    /// In the order of files and documents.
    pub(super) verdicts: Vec<Verdict>,
    pub(super) faults: Vec<InputError>,
    /// How many there were of each kind that brings no Pods.
    pub(super) skipped: BTreeMap<String, usize>,
    /// The same of each kind that may bring Pods, and is not known.
    pub(super) foreign: BTreeMap<String, usize>,
    /// The same of each kind whose operator makes Pods by no template that stands in it.
    pub(super) templateless: BTreeMap<String, usize>,
    /// How many documents there were in all.
    pub(super) documents: usize,
}

/// A decision on an object.
pub(super) struct Verdict {
    pub(super) source: usize,
    pub(super) document: usize,
    pub(super) object: Object,
    pub(super) decided: Decided,
}

/// What could not be read.
pub(super) struct InputError {
    pub(super) source: usize,
    /// From 1; 0 where it is the whole file.
    pub(super) document: usize,
    /// From 1; 0 where it is the whole file.
    pub(super) line: usize,
    pub(super) message: String,
}

impl InputError {
    pub(super) fn of_file(source: usize, message: String) -> Self {
        Self { source, document: 0, line: 0, message }
    }
}

impl Report {
    /// Where a file stands in the list of those that were read.
    pub(super) fn source(&mut self, file: &Path) -> usize {
        self.sources.push(file.display().to_string());
        self.sources.len() - 1
    }

    pub(super) fn add(&mut self, decided: Result<Verdict, InputError>) {
        match decided {
            Ok(verdict) => self.verdicts.push(verdict),
            Err(fault) => self.faults.push(fault),
        }
    }

    fn name_of(&self, source: usize) -> &str {
        self.sources.get(source).map_or("", String::as_str)
    }

    /// A fault as people read it.
    pub(super) fn told(&self, fault: &InputError) -> String {
        let file = match self.name_of(fault.source) {
            "-" => "standard input",
            file => file,
        };
        let place = match fault.document {
            0 => String::new(),
            document => format!(": document {document}, line {}", fault.line),
        };
        shown(&format!("{file}{place}: {}", fault.message))
    }

    pub(super) fn table(&self, look: Look) -> String {
        let files = self.sources.len() > 1;
        let mut header = vec!["NAMESPACE", "OBJECT", "DECISION", "POOLS", "REASON", "IMAGE"];
        if files {
            header.insert(0, "FILE");
        }
        // A row for the decision, and one for each other image that keeps the Pod closed.
        let rows_of = |verdict: &Verdict| {
            let Verdict { source, object, decided, .. } = verdict;
            let mut cells = vec![
                shown(&object.namespace),
                shown(&object.label()),
                decided.done.to_owned(),
                shown(&decided.pools.join(",")),
                decided.reason.as_str().to_owned(),
                decided.image.as_deref().map(shown).unwrap_or_default(),
            ];
            if files {
                cells.insert(0, format!("{}:{}", shown(self.name_of(*source)), object.line));
            }
            let mut rows = vec![Row { colour: colour(decided.reason), cells }];
            for other in decided.blockers.iter().filter(|other| decided.image.as_ref() != Some(&other.image))
            {
                let mut cells = vec![String::new(); header.len()];
                cells[header.len() - 2] = other.reason.as_str().to_owned();
                cells[header.len() - 1] = shown(&other.image);
                rows.push(Row { colour: colour(other.reason), cells });
            }
            rows
        };
        let rows: Vec<Row> = self.verdicts.iter().flat_map(rows_of).collect();
        let mut text = String::new();
        if !rows.is_empty() {
            text += &table(&header, &rows, "", look);
            text.push('\n');
        }
        text + &self.warnings() + &self.lacking() + &self.causes() + &self.footer()
    }

    /// What the API server would print for the creator of the Pod.
    fn warnings(&self) -> String {
        let mut text = String::new();
        for Verdict { object, decided, .. } in &self.verdicts {
            for warning in &decided.warnings {
                text += &format!("warning: {}: {}\n", shown(&object.label()), shown(warning));
            }
        }
        if text.is_empty() { text } else { text + "\n" }
    }

    /// What images lack, each once.
    fn lacking(&self) -> String {
        let blockers = self.verdicts.iter().flat_map(|verdict| &verdict.decided.blockers);
        let lacking = blockers.filter(|blocker| !blocker.lacks.is_empty());
        let lines: BTreeSet<String> = lacking
            .map(|BlockingImage { image, lacks, .. }| format!("{} lacks {lacks}\n", shown(image)))
            .collect();
        let text: String = lines.into_iter().collect();
        if text.is_empty() { text } else { text + "\n" }
    }

    /// Why images are unknown, each once.
    fn causes(&self) -> String {
        let causes: BTreeSet<(&str, &str)> = self
            .verdicts
            .iter()
            .filter_map(|verdict| {
                Some((verdict.decided.image.as_deref()?, verdict.decided.cause.as_deref()?))
            })
            .collect();
        let mut text: String = causes
            .iter()
            .take(CAUSES)
            .map(|(image, cause)| format!("{}: {}\n", shown(image), shown(cause)))
            .collect();
        if causes.len() > CAUSES {
            text += &format!("and {} more; -o json has them all\n", causes.len() - CAUSES);
        }
        if text.is_empty() { text } else { text + "\n" }
    }

    /// What may make the webhook decide otherwise, or would make an image known.
    pub(super) fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let lacking = self.verdicts.iter().filter(|verdict| verdict.decided.lacks_pull_secrets).count();
        if lacking > 0 {
            hints.push(format!(
                "hint: {lacking} of them name imagePullSecrets, which are not read; \
                 set credentials.pullSecrets, or TOLERARCH_CREDENTIALS__PULL_SECRETS=true"
            ));
        }
        let changed = |verdict: &&Verdict| verdict.decided.done != "unchanged";
        let excluded = |verdict: &&Verdict| EXCLUDED.contains(&verdict.object.namespace.as_str());
        let excluded = self.verdicts.iter().filter(changed).filter(excluded).count();
        if excluded > 0 {
            hints.push(format!(
                "hint: {excluded} of them are in namespaces that the shipped manifests exclude ({}), \
                 where the API server does not call the webhook",
                EXCLUDED.join(", ")
            ));
        }
        hints
    }

    /// How many there were of each sort.
    fn footer(&self) -> String {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for verdict in &self.verdicts {
            *reasons.entry(verdict.decided.reason.as_str()).or_default() += 1;
        }
        let counts = |counts: Vec<String>| {
            if counts.is_empty() { String::new() } else { format!(" ({})", counts.join(", ")) }
        };
        let reasons = counts(reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect());
        let kinds = |kinds: &BTreeMap<String, usize>| {
            let shown =
                counts(kinds.iter().map(|(kind, count)| format!("{count} {}", shown(kind))).collect());
            (kinds.values().sum::<usize>(), shown)
        };
        let mut text = format!("{} checked{reasons}", self.verdicts.len());
        let ((skipped, without), (foreign, which)) = (kinds(&self.skipped), kinds(&self.foreign));
        let (templateless, whose) = kinds(&self.templateless);
        if skipped > 0 {
            text += &format!("; {skipped} without Pods{without}");
        }
        if templateless > 0 {
            text += &format!("; {templateless} without a Pod template of their own{whose}");
        }
        if foreign > 0 {
            text += &format!("; {foreign} not looked at{which}");
        }
        if !self.faults.is_empty() {
            text += &format!("; {} not readable", self.faults.len());
        }
        text + "\n"
    }

    /// The documented shape; members are added, never renamed.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        let error = |fault: &InputError| {
            json!({
                "file": self.name_of(fault.source),
                "document": fault.document,
                "line": fault.line,
                "message": fault.message,
            })
        };
        let all = Results {
            results: self.verdicts.iter().map(|own| CheckResult::of(own, self.name_of(own.source))).collect(),
            errors: self.faults.iter().map(error).collect(),
            skipped: &self.skipped,
            not_looked_at: &self.foreign,
            without_template: &self.templateless,
        };
        Ok(document(&serde_json::to_string_pretty(&all)?))
    }

    /// A patch a line on standard output, so that it can be handed on as it is; whose it is stands on standard error.
    pub(super) fn patches(&self) -> io::Result<()> {
        for verdict in &self.verdicts {
            if let Some(patch) = &verdict.decided.patch {
                let Object { kind, namespace, name, .. } = &verdict.object;
                let namespace = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
                tell(&shown(&format!("# {}/{name}{namespace}", kind.to_lowercase())));
                print(&document(patch))?;
            }
        }
        self.warnings().lines().filter(|line| !line.is_empty()).for_each(tell);
        tell(&format!("# {}", self.footer().trim_end()));
        Ok(())
    }
}

/// What `-o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Results<'r> {
    results: Vec<CheckResult<'r>>,
    errors: Vec<Value>,
    skipped: &'r BTreeMap<String, usize>,
    not_looked_at: &'r BTreeMap<String, usize>,
    without_template: &'r BTreeMap<String, usize>,
}

#[derive(Serialize)]
struct CheckResult<'r> {
    file: &'r str,
    document: usize,
    line: usize,
    kind: &'r str,
    namespace: &'r str,
    name: &'r str,
    /// Where the template of the Pod stands.
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'r str,
    decision: &'r str,
    reason: &'r str,
    pools: &'r [String],
    /// All that keep the Pod closed.
    blockers: Vec<Value>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'r [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'r str>,
    /// As it was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<&'r RawValue>,
}

impl<'r> CheckResult<'r> {
    fn of(verdict: &'r Verdict, file: &'r str) -> Self {
        let Verdict { document, object: Object { line, kind, namespace, name, path, .. }, decided, .. } =
            verdict;
        let Decided { reason, done, image, blockers, pools, warnings, patch, cause, .. } = decided;
        let blocker = |BlockingImage { image, reason, lacks }: &BlockingImage| json!({"image": image, "reason": reason.as_str(), "lacks": lacks.names().collect::<Vec<_>>()});
        Self {
            file,
            document: *document,
            line: *line,
            kind,
            namespace,
            name,
            path,
            decision: done,
            reason: reason.as_str(),
            pools,
            blockers: blockers.iter().map(blocker).collect(),
            warnings,
            image: image.as_deref(),
            error: cause.as_deref(),
            patch: patch.as_deref().and_then(|patch| serde_json::from_str(patch).ok()),
        }
    }
}

fn colour(reason: Reason) -> Colour {
    match (reason, FailOn::of(reason)) {
        (Reason::Tolerated | Reason::Placed | Reason::AlreadyTolerated | Reason::Observed, _) => {
            Colour::Green
        }
        (_, [FailOn::Unsupported, ..]) => Colour::Red,
        (_, [FailOn::Unknown, ..]) => Colour::Yellow,
        (_, [] | [FailOn::NotLookedAt, ..]) => Colour::Faint,
    }
}
