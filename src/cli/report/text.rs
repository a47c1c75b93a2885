//! Report for a terminal.

use super::super::output::{Colour, MAX_ITEMS, Row, paragraphs, rest, sanitized, table, wrapped};
use super::contents::{Ranking, Report};
use super::section::{Cell, Section};
use tolerarch_engine::census::Coverage;

impl Report<'_> {
    pub(super) fn text(&self, by: Ranking, width: Option<usize>) -> String {
        let sections = self.sections(&[by]);
        let notes = self
            .notes
            .iter()
            .map(|note| wrapped(&format!("note: {note}"), "  ", width));
        paragraphs(
            sections
                .iter()
                .map(|section| lines(section, width))
                .chain([notes.collect()]),
        )
    }
}

fn lines(section: &Section, width: Option<usize>) -> String {
    let Section {
        title,
        columns,
        rows,
        ..
    } = section;
    let limited_rows = &rows[..rows.len().min(MAX_ITEMS)];
    // Sentences are printed below the table, because they would make it too wide.
    let sentences = columns
        .iter()
        .position(|name| matches!(*name, "Do" | "Cause" | "Note"));
    let table_columns = sentences.unwrap_or(columns.len());
    let mut header = Vec::new();
    for name in &columns[..table_columns] {
        header.push(name.to_uppercase());
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table_rows = Vec::new();
    // A single column only names the subjects of the sentences.
    if table_columns > 1 {
        for cells in limited_rows {
            table_rows.push(row(&cells[..table_columns]));
        }
    }
    let table = table(&header, table_rows, "  ", width);
    let below = match sentences {
        Some(column) => sentences_below(limited_rows, subject_of(columns), column, width),
        None => String::new(),
    };
    let mut text = paragraphs([format!("{}\n", sanitized(title)), table, below]);
    if let Some(rest) = rest(rows.len(), MAX_ITEMS) {
        text += &format!("  {rest}");
    }
    text
}

/// Returns the column with the subject of the sentences: the image if they are notes, otherwise the first column.
fn subject_of(columns: &[&str]) -> usize {
    if columns.last() != Some(&"Note") {
        return 0;
    }
    let image = columns.iter().position(|name| *name == "Image");
    image.unwrap_or(0)
}

/// Returns a row in the colour of its coverage, if it has one.
fn row(cells: &[Cell]) -> Row {
    let mut colour = Colour::Plain;
    for cell in cells {
        if let Cell::Coverage(coverage) = cell {
            colour = match coverage {
                Coverage::All => Colour::Green,
                Coverage::Partial => Colour::Red,
                Coverage::Unknown => Colour::Yellow,
                Coverage::Skipped => Colour::Faint,
            };
        }
    }
    Row {
        colour,
        cells: cells.iter().map(|cell| cell.text().to_owned()).collect(),
    }
}

/// Renders the sentences of a column, each after its subject. Equal sentences of numbered rows are rendered once.
fn sentences_below(
    rows: &[Vec<Cell>],
    subject: usize,
    column: usize,
    width: Option<usize>,
) -> String {
    let mut sentences: Vec<(String, &Cell)> = Vec::new();
    for cells in rows {
        let label = cells[subject].text();
        let sentence = &cells[column];
        if sentence.text().is_empty() {
            continue;
        }
        let same = sentences
            .iter_mut()
            .find(|(_, other)| other.text() == sentence.text());
        match (&cells[subject], same) {
            (Cell::Number(..), Some((labels, _))) => *labels += &format!(", {label}"),
            _ => sentences.push((label.to_owned(), sentence)),
        }
    }
    let mut text = String::new();
    for (label, sentence) in sentences {
        // A shell would take the lines of a wrapped command for several commands.
        let width = width.filter(|_| !matches!(sentence, Cell::Command(_)));
        let line = format!("  {label}: {}", sentence.text());
        text += &wrapped(&line, "    ", width);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::tests::plain;
    use tolerarch_core::image::{LookupError, PlatformSet};
    use tolerarch_core::policy::Cause;
    use tolerarch_core::reason::Reason;
    use tolerarch_engine::census::{Amount, Basis, IndexedPod, PlacedPod, Summary, Workload};
    use tolerarch_engine::decide::{BlockingImage, Examined, ImageState, PoolState};

    #[test]
    fn sentences_are_wrapped_and_merged_but_commands_are_not() {
        let row = |number, cell| vec![Cell::number(number), Cell::name("object"), cell];
        let advice = || Cell::Text("words that are wrapped at some place".to_owned());
        let command = "kubectl --namespace shop rollout restart deployment/web";
        let section = Section {
            title: "Steps".to_owned(),
            intro: String::new(),
            columns: vec!["#", "Object", "Do"],
            rows: vec![
                row(1, advice()),
                row(2, Cell::Command(command.to_owned())),
                row(3, advice()),
            ],
        };
        let text = plain(&lines(&section, Some(30)));
        let expected =
            format!("  1, 3: words that are wrapped\n    at some place\n  2: {command}\n");
        assert!(text.ends_with(&expected), "{text}");
    }

    #[test]
    fn terminal_of_80_columns_shows_every_reason() {
        let long = |name: &str| format!("{}-{name}", "very-long".repeat(6));
        let image = format!("registry.example.com/{}:v1", long("image"));
        let mut pods = Vec::new();
        for (number, error) in [LookupError::AddressNotAllowed, LookupError::NotAllowed]
            .into_iter()
            .enumerate()
        {
            let blockers = vec![BlockingImage {
                image: image.clone(),
                cause: Cause::Unknown(error),
            }];
            let amd64 = Some("linux/amd64".parse().unwrap());
            let state = ImageState {
                image: image.clone(),
                platforms: amd64,
                ..ImageState::default()
            };
            let pool = PoolState {
                name: "multi-arch".into(),
                platforms: PlatformSet::AMD64_AND_ARM64,
                is_open: true,
                is_tolerated: false,
                lacks: None,
            };
            let examined = Examined {
                pools: vec![pool],
                images: vec![state],
                blockers,
                skipped: None,
                ..Examined::skipped(Reason::Tolerated)
            };
            let name = long(&number.to_string());
            let workload = Workload {
                namespace: long("namespace").into(),
                kind: "Deployment".into(),
                name: name.as_str().into(),
            };
            let requests = Amount {
                cpu_millis: 1234,
                memory_bytes: 5 << 30,
                pods: 1,
            };
            let pod = IndexedPod {
                name: name.as_str().into(),
                between: None,
                workload: workload.into(),
                shape: None,
                requests,
                node: Some(name.as_str().into()),
                created: None,
                is_called: true,
            };
            pods.push((pod, examined));
        }
        let platform = Some("linux/arm64".parse().unwrap());
        let pods = pods.iter().map(|(pod, examined)| PlacedPod {
            pod,
            node: platform,
            examined,
            selected: PlatformSet::ALL,
        });
        let summary = Summary::of(&Basis::default(), pods);
        let report = Report {
            summary,
            ..Report::default()
        };
        for by in [Ranking::Image, Ranking::Workload, Ranking::Namespace] {
            let text = plain(&report.text(by, Some(80)));
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
            for reason in ["address-not-allowed", "registry-not-allowed"] {
                assert!(text.contains(&format!(" {reason} ")), "{reason} in\n{text}");
            }
        }
    }
}
