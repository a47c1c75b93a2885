//! Report as an HTML page: one file that loads nothing and is readable without its script.
//!
//! All names are untrusted input. They are escaped and occur only in text: in no attribute, style or script. The page's
//! Content-Security-Policy allows one script and one style sheet by their hashes, so that even an unescaped name could
//! not run a script.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::super::output::sanitized;
use super::bars::{Bar, Part};
use super::contents::Report;
use super::section::{Cell, Section};

const SCRIPT: &str = include_str!("html/page.js");
const STYLE: &str = include_str!("html/page.css");

impl Report<'_> {
    pub(super) fn html(&self) -> String {
        let mut contents = String::new();
        let mut sections = String::new();
        for (index, section) in self.sections_below_bars().iter().enumerate() {
            let id = format!("s{index}");
            contents += &link(&id, &section.title);
            sections += &rendered(&id, section);
        }
        let mut notes = String::new();
        if !self.notes.is_empty() {
            contents += &link("notes", "Notes");
            notes += "<section>\n<h2 id=\"notes\">Notes</h2>\n<ul class=\"notes\">\n";
            for note in &self.notes {
                notes += &format!("<li>{}</li>\n", escaped(note));
            }
            notes += "</ul>\n</section>\n";
        }
        format!(
            include_str!("html/page.html"),
            script_hash = hash(SCRIPT),
            style_hash = hash(STYLE),
            style = STYLE,
            of = escaped(&self.scope),
            contents = contents,
            bars = bars(&self.bars()),
            sections = sections,
            notes = notes,
            version = env!("CARGO_PKG_VERSION"),
            script = SCRIPT,
        )
    }
}

/// Returns the source expression by which a Content-Security-Policy allows this element.
fn hash(content: &str) -> String {
    let digest = digest(&SHA256, content.as_bytes());
    format!("sha256-{}", BASE64_STANDARD.encode(digest))
}

/// Renders an entry of the table of contents: the title up to the first colon or comma.
fn link(id: &str, title: &str) -> String {
    let short = title.split([':', ',']).next().unwrap_or(title);
    format!("<li><a href=\"#{id}\">{}</a></li>\n", escaped(short))
}

fn bars(bars: &[Bar]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let bars: String = bars.iter().map(bar).collect();
    format!("<div class=\"bars\">\n{bars}</div>\n")
}

/// Renders a bar as an image, and its parts as a list that screen readers can read.
fn bar(bar: &Bar) -> String {
    let mut rects = String::new();
    let mut legend = String::new();
    let mut start = 0.0;
    for Part {
        label,
        class,
        share,
        text,
    } in &bar.parts
    {
        let x = start * 100.0;
        let width = share * 100.0;
        let at = format!("x=\"{x:.3}%\" width=\"{width:.3}%\" height=\"100%\"");
        rects += &format!("<rect class=\"{class}\" {at}/><rect class=\"pattern\" {at}/>");
        legend += &format!(
            "<li>{} <b>{}</b> <span>{}</span></li>\n",
            key(class),
            escaped(label),
            escaped(text)
        );
        start += share;
    }
    format!(
        "<figure>\n<figcaption>{} <span>{}</span></figcaption>\n\
         <svg class=\"bar\" aria-hidden=\"true\">{rects}</svg>\n<ul class=\"legend\">\n{legend}</ul>\n</figure>\n",
        bar.title,
        escaped(&bar.whole)
    )
}

/// Renders a sample of a part's colour and pattern.
fn key(class: &str) -> String {
    let size = "width=\"100%\" height=\"100%\"";
    format!(
        "<svg class=\"key\" aria-hidden=\"true\"><rect class=\"{class}\" {size}/><rect class=\"pattern\" {size}/></svg>"
    )
}

fn rendered(id: &str, section: &Section) -> String {
    let Section {
        title,
        intro,
        columns,
        rows,
    } = section;
    let header = table_header(columns, rows);
    let has_steps = columns.contains(&"Do");
    let mut body = String::new();
    for row in rows {
        body += "<tr>";
        for (index, (column, cell)) in columns.iter().zip(row).enumerate() {
            // Steps are shown as a list, without the header of the table.
            let head = if has_steps && index > 0 { column } else { "" };
            body += &rendered_cell(head, cell);
        }
        body += "</tr>\n";
    }
    let class = if has_steps { " class=\"steps\"" } else { "" };
    let intro = if intro.is_empty() {
        String::new()
    } else {
        format!("<p>{}</p>\n", escaped(intro))
    };
    format!(
        "<section>\n<h2 id=\"{id}\">{}</h2>\n{intro}\
         <div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-labelledby=\"{id}\"><table{class} aria-labelledby=\"{id}\">\n\
         <thead><tr>{header}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n</section>\n",
        escaped(title)
    )
}

fn table_header(columns: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut header = String::new();
    let mut previous = "";
    for (index, name) in columns.iter().enumerate() {
        let first = rows.first().and_then(|row| row.get(index));
        let class = match first {
            Some(Cell::Number(..)) => " class=\"number\"",
            _ => "",
        };
        // Two columns have the name %. Each gets that of the column before it.
        let prefix = if *name == "%" {
            format!("<span class=\"aside\">{previous} </span>")
        } else {
            String::new()
        };
        header += &format!("<th scope=\"col\"{class}>{prefix}{name}</th>");
        previous = *name;
    }
    header
}

/// Renders a cell. `head` is the name of the column for a list of steps; empty in a table.
fn rendered_cell(head: &str, cell: &Cell) -> String {
    match cell {
        Cell::Text(text) if head == "Do" => format!("<td class=\"do\">{}</td>", escaped(text)),
        Cell::Text(text) => format!("<td>{}</td>", escaped(text)),
        Cell::Name(name) if name.is_empty() => "<td class=\"name\"></td>".to_owned(),
        Cell::Name(name) => format!("<td class=\"name\"><span>{}</span></td>", escaped(name)),
        Cell::Command(command) => {
            let command = escaped(command);
            format!("<td class=\"do\"><code>{command}</code></td>")
        }
        Cell::Number(text, value) => {
            let head = if head.is_empty() {
                String::new()
            } else {
                format!(" data-head=\"{head}\"")
            };
            format!(
                "<td class=\"number\" data-v=\"{value}\"{head}>{}</td>",
                escaped(text)
            )
        }
        Cell::Coverage(coverage) => {
            let name = coverage.as_str();
            format!("<td class=\"support\">{}{name}</td>", key(name))
        }
    }
}

/// Escapes untrusted text for HTML, and makes control characters visible.
fn escaped(text: &str) -> String {
    // The ampersand comes first, because the entities contain one.
    let entities = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&#39;"),
    ];
    let mut escaped = sanitized(text);
    for (c, entity) in entities {
        escaped = escaped.replace(c, entity);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_engine::census::Coverage;

    #[test]
    fn parts_of_bars_have_a_colour() {
        let coverage_classes = Coverage::ALL.map(Coverage::as_str);
        let other_classes = ["here", "there", "waits", "saved", "kept", "rest"];
        for class in coverage_classes.iter().chain(&other_classes) {
            let selector = format!(".{class}");
            let has_colour = STYLE.lines().any(|line| {
                let is_selected = line.split([',', ' ']).any(|word| word == selector);
                is_selected && line.contains("{ fill: var(")
            });
            assert!(has_colour, "{class}");
        }
    }

    #[test]
    fn page_loads_nothing() {
        for text in [SCRIPT, STYLE, include_str!("html/page.html")] {
            for word in [
                "://",
                "@import",
                "url(",
                "fetch(",
                "src=",
                "innerHTML",
                "eval(",
            ] {
                let loads = text.replace("url(#", "").contains(word);
                assert!(!loads, "{word} in {text}");
            }
        }
    }
}
