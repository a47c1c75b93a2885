//! Result of a check: for people, for programs, or the patches alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::Serialize;

use super::super::advice::{EXCLUDED, placeholder, unread_pull_secrets};
use super::super::output::{MOST, Row, document, paragraphs, print, rest, shown, table, tell};
use super::super::session::colour;
use super::verdict::{BlockingImage, Verdict};
use super::workload::{Contents, InputError, Place, UnseenImage};
use tolerarch_core::reason::Reason;

/// Report in the form of `-o json`. Members are added, never renamed.
#[derive(Default, Serialize)]
pub(super) struct Report {
    /// Results in the order of files and documents, as are the errors.
    pub(super) results: Vec<Verdict>,
    pub(super) errors: Vec<InputError>,
    #[serde(flatten)]
    pub(super) contents: Contents,
    #[serde(skip)]
    pub(super) files: usize,
}

impl Report {
    pub(super) fn table(&self, width: Option<usize>) -> String {
        let header = [
            "FILE",
            "NAMESPACE",
            "OBJECT",
            "DECISION",
            "POOLS",
            "REASON",
            "IMAGE",
        ];
        // The name of a single file says nothing.
        let first = usize::from(self.files < 2);
        let mut rows = Vec::new();
        let mut add =
            |reason: Reason, image: &str, [file, namespace, label, decision, pools]: [&str; 5]| {
                let cells = [
                    file,
                    namespace,
                    label,
                    decision,
                    pools,
                    reason.as_str(),
                    image,
                ];
                let cells = cells[first..].iter().map(ToString::to_string).collect();
                rows.push(Row {
                    colour: colour(reason),
                    cells,
                });
            };
        // A row for the decision, and one for each other image that keeps the Pod closed.
        for Verdict {
            place,
            decision,
            reason,
            pools,
            blockers,
            image,
            ..
        } in &self.results
        {
            let (file, pools) = (format!("{}:{}", place.file, place.line), pools.join(","));
            let image = image.as_deref().unwrap_or_default();
            add(
                *reason,
                image,
                [&file, &place.namespace, &place.label, decision, &pools],
            );
            for other in blockers.iter().filter(|other| other.image != image) {
                add(other.reason, &other.image, Default::default());
            }
        }
        let table = table(&header[first..], rows, "", width);
        paragraphs(
            [table, self.warnings()]
                .into_iter()
                .chain(self.notes())
                .chain([self.footer()]),
        )
    }

    /// Returns the warnings that the API server would send to the creator of the Pod.
    fn warnings(&self) -> String {
        let of_one = |Verdict {
                          place, warnings, ..
                      }: &Verdict| {
            let line = |warning| shown(&format!("warning: {}: {warning}", place.label)) + "\n";
            warnings.iter().map(line).collect::<String>()
        };
        self.results.iter().map(of_one).collect()
    }

    /// Returns the platforms that images lack, why other images are unknown, and the images that are not looked up.
    fn notes(&self) -> [String; 3] {
        let blockers = self.results.iter().flat_map(|verdict| &verdict.blockers);
        let (lacking, unknown): (Vec<&BlockingImage>, Vec<_>) =
            blockers.partition(|blocker| !blocker.lacks.is_empty());
        let lacking = lacking
            .iter()
            .map(|blocker| format!("{} lacks {}", blocker.image, blocker.lacks));
        let causes = self.results.iter();
        let causes = causes
            .filter_map(|verdict| Some((verdict.image.as_deref()?, verdict.cause.as_deref()?)));
        let meanings = unknown
            .iter()
            .filter_map(|one| Some((&*one.image, placeholder(&one.image)?)));
        let causes = causes
            .chain(meanings)
            .map(|(image, cause)| format!("{image}: {cause}"));
        let unseen = self
            .contents
            .unseen_images
            .iter()
            .map(|UnseenImage { place, image }| {
                format!(
                    "not looked at: {}/{}{} is {image}",
                    place.kind, place.name, place.path
                )
            });
        [
            lines(lacking, usize::MAX),
            lines(causes, MOST),
            lines(unseen, MOST),
        ]
    }

    /// Returns hints on why the webhook may decide otherwise, or how an image would become known.
    pub(super) fn hints(&self) -> Vec<String> {
        let lacking = self
            .results
            .iter()
            .filter(|verdict| verdict.lacks_pull_secrets)
            .count();
        let mut hints = Vec::from_iter(unread_pull_secrets(lacking, "them"));
        let changed = |verdict: &&Verdict| verdict.decision != "unchanged";
        let excluded = |verdict: &&Verdict| EXCLUDED.contains(&verdict.place.namespace.as_str());
        let excluded = self.results.iter().filter(changed).filter(excluded).count();
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

    /// Prints one patch a line to standard output, for other programs, and the object of each to standard error.
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
                tell(&format!("# {}/{name}{namespace}", kind.to_lowercase()));
                print(&document(patch.get()))?;
            }
        }
        self.warnings().lines().for_each(tell);
        tell(&format!("# {}", self.footer().trim_end()));
        Ok(())
    }
}

/// Joins untrusted texts as lines: each once, and `most` at most.
fn lines(all: impl Iterator<Item = String>, most: usize) -> String {
    let all: BTreeSet<String> = all.map(|line| shown(&line) + "\n").collect();
    let rest = rest(all.len(), most);
    all.into_iter().take(most).chain(rest).collect()
}

/// Formats counts: `3 checked (1 daemonset, 2 tolerated)`.
fn counted(what: &str, counts: &BTreeMap<String, usize>) -> String {
    let all: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{count} {}", shown(name)))
        .collect();
    let list = if all.is_empty() {
        String::new()
    } else {
        format!(" ({})", all.join(", "))
    };
    format!("{} {what}{list}", counts.values().sum::<usize>())
}
