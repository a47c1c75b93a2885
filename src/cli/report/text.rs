//! Report for a terminal.

use super::super::output::{Colour, Look, Row, shown, table, wrapped};
use super::Report;
use super::sections::{Cell, Section};
use tolerarch_engine::census::Coverage;

/// Maximal number of rows of a table; the other formats have more.
const ROWS: usize = 20;

impl Report {
    pub(super) fn text(&self, look: Look) -> String {
        let mut text = String::new();
        for section in &self.sections(&[self.by]) {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &lines(section, look);
        }
        if !self.notes.is_empty() {
            text.push('\n');
            text.extend(self.notes.iter().map(|note| wrapped(&format!("note: {}", shown(note)), "  ", look)));
        }
        text
    }
}

fn lines(section: &Section, look: Look) -> String {
    let Section { title, columns, rows, .. } = section;
    let row = |cells: &[Cell]| {
        let coverage = cells
            .iter()
            .find_map(|cell| if let Cell::Coverage(coverage) = cell { Some(*coverage) } else { None });
        let colour = match coverage {
            Some(Coverage::All) => Colour::Green,
            Some(Coverage::Partial) => Colour::Red,
            Some(Coverage::Unknown) => Colour::Yellow,
            Some(Coverage::Skipped) => Colour::Faint,
            None => Colour::Plain,
        };
        Row { colour, cells: cells.iter().map(|cell| shown(cell.text())).collect() }
    };
    // Sentences are below their table, as they would make it too wide.
    let sentences = columns.iter().position(|name| matches!(*name, "DO" | "CAUSE"));
    let kept = sentences.unwrap_or(columns.len());
    let mut text = format!("{title}\n\n");
    if kept > 1 {
        let rows: Vec<Row> = rows.iter().take(ROWS).map(|cells| row(&cells[..kept])).collect();
        text += &table(&columns[..kept], &rows, "  ", look);
    }
    if let Some(sentences) = sentences {
        if kept > 1 {
            text.push('\n');
        }
        for cells in rows.iter().take(ROWS) {
            let sentence = format!("  {}: {}", shown(cells[0].text()), shown(cells[sentences].text()));
            text += &wrapped(&sentence, "    ", look);
        }
    }
    if let Some(more) = rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
        text += &format!("  and {more} more; -o json has them all\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::report::By;
    use tolerarch_core::image::LookupError;
    use tolerarch_core::pod::Pod;
    use tolerarch_engine::census::{Amount, Census, Judgement, Member, Workload};

    #[test]
    fn a_terminal_of_80_columns_shows_every_reason() {
        let long = |name: &str| format!("{}-{name}", "very-long".repeat(6));
        let image = format!("registry.example.com/{}:v1", long("image"));
        let pod = serde_json::json!({"spec": {"containers": [{"image": image}]}});
        let facts = Pod::of_value(&pod).unwrap();
        let mut census = Census::default();
        for (number, error) in
            [LookupError::AddressNotAllowed, LookupError::NotAllowed].into_iter().enumerate()
        {
            let mut judgement = Judgement::not_known(&facts, error);
            judgement.nodes = vec![(image.as_str().into(), "linux/amd64".parse().unwrap())];
            judgement.usable = vec!["multi-arch".into()];
            let name = long(&number.to_string());
            let workload = Workload {
                namespace: long("namespace").into(),
                kind: "Deployment".into(),
                name: name.as_str().into(),
            };
            let requests = Amount { cpu_millis: 1234, memory_bytes: 5 << 30, pods: 1 };
            let node = Some((&*name, "linux/arm64".parse().unwrap()));
            let workload = &Arc::new(workload);
            census.add(Member { name: &name, workload, requests, node, judgement: &judgement });
        }
        let mut report = Report { summary: census.summary(), ..Report::default() };
        for by in [By::Image, By::Workload, By::Namespace] {
            report.by = by;
            let text = report.text(Look { colour: false, width: Some(80) });
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            for reason in ["address-not-allowed", "registry-not-allowed"] {
                assert!(text.contains(&format!(" {reason} ")), "{reason} in\n{text}");
            }
        }
    }
}
