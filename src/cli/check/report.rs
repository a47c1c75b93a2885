//! Result of a check: as a table, as JSON, or only its patches.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::Serialize;

use super::super::advice::{EXCLUDED, placeholder, unread_pull_secrets};
use super::super::output::{
    MAX_ITEMS, Row, document, paragraphs, print, print_error, rest, sanitized, table,
};
use super::super::session::colour;
use super::verdict::Verdict;
use super::workload::{Contents, InputError, Place, UnseenImage};
use tolerarch_core::reason::Reason;
use tolerarch_text::escape::shortened;

/// Number of columns of the table, including those that may be hidden.
const COLUMNS: usize = 9;

/// Report in the form of `-o json`. Members are added, never renamed.
#[derive(Default, Serialize)]
pub(super) struct Report {
    /// Results in the order of files and documents. The errors have the same order.
    pub(super) results: Vec<Verdict>,
    pub(super) errors: Vec<InputError>,
    #[serde(flatten)]
    pub(super) contents: Contents,
    #[serde(skip)]
    pub(super) files: usize,
}

impl Report {
    pub(super) fn table(&self, width: Option<usize>) -> String {
        let results = &self.results;
        // With a single file its name is superfluous.
        let several_files = self.files > 1;
        let has_required = results.iter().any(|verdict| !verdict.required.is_empty());
        let has_preferred = results.iter().any(|verdict| !verdict.preferred.is_empty());
        let columns = [
            ("FILE", several_files),
            ("NAMESPACE", true),
            ("OBJECT", true),
            ("DECISION", true),
            ("POOLS", true),
            ("REQUIRED", has_required),
            ("PREFERRED", has_preferred),
            ("REASON", true),
            ("IMAGE", true),
        ];
        let header = visible(columns, &columns.map(|(name, _)| name));
        let mut rows = Vec::new();
        for verdict in results {
            for (reason, cells) in verdict_rows(verdict) {
                rows.push(Row {
                    colour: colour(reason),
                    cells: visible(columns, &cells),
                });
            }
        }
        let table = table(&header, rows, "", width);
        let [lacking, causes, unseen] = self.notes();
        paragraphs([
            table,
            self.warnings(),
            lacking,
            causes,
            unseen,
            self.footer(),
        ])
    }

    /// Returns the warnings that the API server would send to the creator of the Pod.
    fn warnings(&self) -> String {
        let mut lines = String::new();
        for Verdict {
            place, warnings, ..
        } in &self.results
        {
            for warning in warnings {
                lines += &sanitized(&format!("warning: {}: {warning}", place.label));
                lines += "\n";
            }
        }
        lines
    }

    /// Returns three texts: the platforms that images lack, why other images are unknown, and the images that are not
    /// looked up.
    fn notes(&self) -> [String; 3] {
        let mut lacking = Vec::new();
        let mut causes = Vec::new();
        for Verdict {
            blockers,
            image,
            cause,
            ..
        } in &self.results
        {
            if let (Some(image), Some(cause)) = (image, cause) {
                causes.push(format!("{image}: {cause}"));
            }
            for blocker in blockers {
                let image = &blocker.image;
                let lacks = blocker.lacks();
                if !lacks.is_empty() {
                    lacking.push(format!("{image} lacks {lacks}"));
                } else if let Some(meaning) = placeholder(image) {
                    causes.push(format!("{image}: {meaning}"));
                }
            }
        }
        let mut unseen = Vec::new();
        for UnseenImage { place, image } in &self.contents.unseen_images {
            let Place {
                kind, name, path, ..
            } = place;
            unseen.push(format!("not looked at: {kind}/{name}{path} is {image}"));
        }
        [
            lines(lacking, usize::MAX),
            lines(causes, MAX_ITEMS),
            lines(unseen, MAX_ITEMS),
        ]
    }

    /// Returns hints on why the webhook may decide differently, or how an unknown image can be looked up.
    pub(super) fn hints(&self) -> Vec<String> {
        let lacking = self
            .results
            .iter()
            .filter(|verdict| verdict.lacks_pull_secrets)
            .count();
        let mut hints = Vec::from_iter(unread_pull_secrets(lacking, "them"));
        let mut excluded = 0;
        for verdict in &self.results {
            let namespace = verdict.place.namespace.as_str();
            if verdict.decision != "unchanged" && EXCLUDED.contains(&namespace) {
                excluded += 1;
            }
        }
        if excluded > 0 {
            hints.push(format!(
                "{excluded} of them are in namespaces that the shipped manifests exclude ({}), \
                 where the API server does not call the webhook",
                EXCLUDED.join(", ")
            ));
        }
        hints
    }

    fn footer(&self) -> String {
        let mut reasons = BTreeMap::new();
        for verdict in &self.results {
            *reasons.entry(verdict.reason.to_string()).or_default() += 1;
        }
        let mut text = counted("checked", &reasons);
        for (sort, kinds) in [
            ("without Pods", &self.contents.skipped),
            (
                "without a Pod template of their own",
                &self.contents.without_template,
            ),
            ("not looked at", &self.contents.not_looked_at),
        ] {
            if !kinds.is_empty() {
                text += &format!("; {}", counted(sort, kinds));
            }
        }
        if !self.errors.is_empty() {
            text += &format!("; {} not readable", self.errors.len());
        }
        text + "\n"
    }

    /// Prints one patch per line to standard output, for other programs, and the object of each to standard error.
    pub(super) fn patches(&self) -> io::Result<()> {
        for verdict in &self.results {
            if let Some(patch) = &verdict.patch {
                let Place {
                    kind,
                    namespace,
                    name,
                    ..
                } = &verdict.place;
                let namespace = if namespace.is_empty() {
                    String::new()
                } else {
                    format!(" -n {namespace}")
                };
                print_error(&format!("# {}/{name}{namespace}", kind.to_lowercase()));
                print(&document(patch.get()))?;
            }
        }
        self.warnings().lines().for_each(print_error);
        print_error(&format!("# {}", self.footer().trim_end()));
        Ok(())
    }
}

/// Returns the cells of the visible columns.
fn visible<T: Clone>(columns: [(&str, bool); COLUMNS], cells: &[T; COLUMNS]) -> Vec<T> {
    let mut visible = Vec::new();
    for ((_, is_visible), cell) in columns.iter().zip(cells) {
        if *is_visible {
            visible.push(cell.clone());
        }
    }
    visible
}

/// Returns the cells of the decision, and a row for each other blocker.
fn verdict_rows(verdict: &Verdict) -> Vec<(Reason, [String; COLUMNS])> {
    let Verdict {
        place,
        decision,
        reason,
        pools,
        required,
        preferred,
        blockers,
        image,
        ..
    } = verdict;
    let image = image.clone().unwrap_or_default();
    let decided = [
        format!("{}:{}", place.file, place.line),
        place.namespace.clone(),
        place.label.clone(),
        (*decision).to_owned(),
        pools.join(","),
        shortened(required).to_owned(),
        shortened(preferred).to_owned(),
        reason.to_string(),
        image.clone(),
    ];
    let mut rows = vec![(*reason, decided)];
    for other in blockers {
        if other.image != image {
            let mut cells: [String; COLUMNS] = Default::default();
            cells[COLUMNS - 2] = other.reason().to_string();
            cells[COLUMNS - 1].clone_from(&other.image);
            rows.push((other.reason(), cells));
        }
    }
    rows
}

/// Joins untrusted texts as lines: each text once, and at most `limit` lines.
fn lines(texts: Vec<String>, limit: usize) -> String {
    let mut lines = BTreeSet::new();
    for text in texts {
        lines.insert(sanitized(&text) + "\n");
    }
    let rest = rest(lines.len(), limit);
    lines.into_iter().take(limit).chain(rest).collect()
}

/// Formats counts: `3 checked (1 daemonset, 2 tolerated)`.
fn counted(what: &str, counts: &BTreeMap<String, usize>) -> String {
    let all: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{count} {}", sanitized(name)))
        .collect();
    let list = if all.is_empty() {
        String::new()
    } else {
        format!(" ({})", all.join(", "))
    };
    format!("{} {what}{list}", counts.values().sum::<usize>())
}
