//! The report as Markdown, for issues and pages.

use super::super::output::shown;
use super::Report;
use super::sections::{Cell, Section};

/// Rows of a table: pages that show Markdown limit its length.
const ROWS: usize = 50;

impl Report {
    pub(super) fn markdown(&self) -> String {
        let mut text = String::from("# What could run on every platform\n");
        for section in self.sections() {
            text += &table(&section);
        }
        if !self.notes.is_empty() {
            text += "\n## Notes\n\n";
            text.extend(self.notes.iter().map(|note| format!("- {}\n", code(note))));
        }
        text
    }
}

fn table(section: &Section) -> String {
    let Section { title, intro, columns, rows } = section;
    let mut text = format!("\n## {title}\n\n");
    if !intro.is_empty() {
        text += &format!("{intro}\n\n");
    }
    let is_number =
        |column: usize| rows.first().is_some_and(|row| matches!(row.get(column), Some(Cell::Number(..))));
    let header: Vec<String> = columns.iter().map(|name| capitalised(name)).collect();
    let align = (0..columns.len()).map(|column| if is_number(column) { "--:" } else { "---" });
    text += &format!("| {} |\n| {} |\n", header.join(" | "), align.collect::<Vec<_>>().join(" | "));
    for row in rows.iter().take(ROWS) {
        let cells: Vec<String> = row.iter().map(cell).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    if let Some(more) = rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
        text += &format!("\nand {more} more; `-o json` has them all\n");
    }
    text
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Name(name) if !name.is_empty() => code(name),
        other => other.text().to_owned(),
    }
}

/// Untrusted text as code, where nothing means anything but the end of the code and of the cell: those are written as Rust
/// escapes them, as control characters are.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len() + 2);
    code.push('`');
    for c in shown(text).chars() {
        if matches!(c, '`' | '|') { code.extend(c.escape_unicode()) } else { code.push(c) }
    }
    code.push('`');
    code
}

/// `WORKLOADS` as `Workloads`.
pub(super) fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at(name.len().min(1));
    if name == "CPU" { name.to_owned() } else { first.to_owned() + &rest.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_stays_in_its_cell() {
        for (name, expected) in [
            ("web", "`web`"),
            ("a|b", "`a\\u{7c}b`"),
            ("a\\|b", "`a\\\\u{7c}b`"),
            ("`x` **y**", "`\\u{60}x\\u{60} **y**`"),
            ("a\n| b\r\u{2028}", "`a\\n\\u{7c} b\\r\\u{2028}`"),
            ("<img src=x>", "`<img src=x>`"),
        ] {
            assert_eq!(cell(&Cell::Name(name.to_owned())), expected);
        }
        assert_eq!(cell(&Cell::Name(String::new())), "");
    }
}
