//! Report as Markdown for pull requests and wikis of GitHub and GitLab.
//!
//! All names are untrusted input. They are rendered as code spans, in which nothing is a link, a mention, a reference or
//! HTML. Texts of this program are escaped.

use super::super::output::{MAX_ITEMS, paragraphs, rest, sanitized};
use super::bars::Bar;
use super::contents::Report;
use super::section::{Cell, Section};

impl Report<'_> {
    pub(super) fn markdown(&self) -> String {
        let mut blocks = vec![
            "# What could run on every platform\n".to_owned(),
            escaped(&self.scope) + "\n",
            self.bars().iter().map(bar).collect(),
        ];
        blocks.extend(self.sections_below_bars().iter().map(rendered));
        if !self.notes.is_empty() {
            blocks.push("## Notes\n".to_owned());
            // Notes quote untrusted texts of the cluster and of registries.
            let notes = self.notes.iter().map(|note| format!("- {}\n", code(note)));
            blocks.push(notes.collect());
        }
        paragraphs(blocks)
    }
}

/// Renders a bar as one item of a list.
fn bar(bar: &Bar) -> String {
    let mut parts = Vec::new();
    for part in &bar.parts {
        parts.push(format!("{} {}", part.label, part.text));
    }
    format!(
        "- **{}**, {}: {}\n",
        escaped(bar.title),
        escaped(&bar.whole),
        escaped(&parts.join("; "))
    )
}

fn rendered(section: &Section) -> String {
    let Section {
        title,
        intro,
        columns,
        rows,
    } = section;
    let mut table = String::from("|");
    for column in columns {
        table += &format!(" {} |", escaped(column));
    }
    table += "\n|";
    for index in 0..columns.len() {
        let first = rows.first().and_then(|row| row.get(index));
        let is_number = matches!(first, Some(Cell::Number(..)));
        table += if is_number { " ---: |" } else { " --- |" };
    }
    table.push('\n');
    for row in rows.iter().take(MAX_ITEMS) {
        table.push('|');
        for one in row {
            table += &format!(" {} |", cell(one));
        }
        table.push('\n');
    }
    let mut intro = escaped(intro);
    if !intro.is_empty() {
        intro.push('\n');
    }
    paragraphs([
        format!("## {}\n", escaped(title)),
        intro,
        table,
        rest(rows.len(), MAX_ITEMS).unwrap_or_default(),
    ])
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Name(text) | Cell::Command(text) => code(text),
        Cell::Text(text) | Cell::Number(text, _) => escaped(text),
        Cell::Coverage(coverage) => coverage.as_str().to_owned(),
    }
}

/// Renders untrusted text as a code span that fits in a cell; nothing for an empty text, which has no span.
///
/// Renderers differ in what ends a cell or a span: in some `\\|` does, and they read delimiters of several backticks in
/// different ways. No valid name has a pipe or a backtick, so both are escaped like other unsafe characters.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut code = sanitized(text);
    for (c, escape) in [('|', "\\u{7c}"), ('`', "\\u{60}")] {
        code = code.replace(c, escape);
    }
    format!("`{code}`")
}

/// Escapes a text of this program, and makes control characters visible.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in sanitized(text).chars() {
        if "\\`*_{}[]<>#|~&!$".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_cannot_leave_its_code_span() {
        for (text, expected) in [
            ("", ""),
            ("web", "`web`"),
            ("a|b", r"`a\u{7c}b`"),
            (r"a\|b", r"`a\\u{7c}b`"),
            ("``a`", r"`\u{60}\u{60}a\u{60}`"),
            ("@user #1 <b>", "`@user #1 <b>`"),
            ("a\nb\u{202e}", r"`a\nb\u{202e}`"),
        ] {
            assert_eq!(code(text), expected);
        }
    }

    #[test]
    fn markup_in_texts_is_escaped() {
        assert_eq!(escaped("<1% | *a* `b` [c]"), r"\<1% \| \*a\* \`b\` \[c\]");
    }

    #[test]
    fn table_is_cut_after_twenty_rows() {
        let row = |number| {
            vec![
                Cell::number(number),
                Cell::Name(format!("app-{number}")),
                Cell::Text(String::new()),
            ]
        };
        let section = Section {
            title: "Workloads".to_owned(),
            intro: String::new(),
            columns: vec!["Pods", "Object", "Do"],
            rows: (0..23).map(row).collect(),
        };
        let markdown = rendered(&section);
        let begin = "## Workloads\n\n| Pods | Object | Do |\n| ---: | --- | --- |\n| 0 | `app-0` |  |\n| 1 |";
        assert!(markdown.starts_with(begin), "{markdown}");
        let end = "| 19 | `app-19` |  |\n\nand 3 more; -o json has them all\n";
        assert!(markdown.ends_with(end), "{markdown}");
    }
}
