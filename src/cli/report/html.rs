//! Report as HTML page: one file that loads nothing.
//!
//! All names are untrusted input. They are escaped, and occur in text only: in no attribute, no style and no script.
//! The page's Content-Security-Policy allows one script, by its hash, so that even an unescaped name would run nothing.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::super::output::shown;
use super::contents::{By, Report};
use super::section::{Cell, Section, memory, percent};
use tolerarch_engine::census::{Amount, Coverage};

const SCRIPT: &str = include_str!("html/sort.js");

impl Report<'_> {
    pub(super) fn html(&self) -> String {
        let sections = self.sections(&[By::Image, By::Workload, By::Namespace]);
        let sections: String = sections.into_iter().map(table).collect();
        let notes: String = self
            .notes
            .iter()
            .map(|note| format!("<li>{}</li>\n", escaped(note)))
            .collect();
        let list = format!("<h2>Notes</h2>\n<ul class=\"notes\">\n{notes}</ul>\n");
        format!(
            include_str!("html/page.html"),
            hash = BASE64_STANDARD.encode(digest(&SHA256, SCRIPT.as_bytes())),
            style = include_str!("html/page.css"),
            of = escaped(&self.of),
            bars = self.bars(),
            sections = sections,
            notes = if notes.is_empty() { "" } else { &list },
            version = env!("CARGO_PKG_VERSION"),
            script = SCRIPT,
        )
    }

    /// Renders two bars, of CPU and of memory, with a legend.
    fn bars(&self) -> String {
        let all = self.summary.all();
        let totals = &self.summary.totals;
        let bar = |title: &str, whole: String, of: fn(Amount) -> u64| {
            let parts = totals.iter().filter(|(_, part, _)| of(*part) > 0);
            let parts = parts.map(|(coverage, part, _)| {
                let share = of(*part) as f64 / of(all).max(1) as f64;
                format!(
                    "<i class=\"{}\" style=\"flex-grow:{share:.5}\"></i>",
                    coverage.as_str()
                )
            });
            let parts: String = parts.collect();
            format!(
                "<h3>{title} <span>{whole} requested</span></h3>\n<div class=\"bar\">{parts}</div>\n"
            )
        };
        let cpu = bar("CPU", format!("{} cores", all.cpu_cores()), |amount| {
            amount.cpu_millis
        });
        let memory = bar("Memory", memory(all), |amount| amount.memory_bytes);
        let meaning = |(coverage, part, _): &(Coverage, Amount, u64)| {
            let name = coverage.as_str();
            let share = percent(part.cpu_millis, all.cpu_millis);
            format!("<span class=\"{name}\">{name} {share}%</span>")
        };
        let legend: String = totals.iter().map(meaning).collect();
        format!("<div class=\"bars\">\n{cpu}{memory}<div class=\"legend\">{legend}</div>\n</div>\n")
    }
}

fn table(section: Section) -> String {
    let Section {
        title,
        intro,
        columns,
        rows,
    } = section;
    let class = |place: usize| match rows.first().and_then(|row| row.get(place)) {
        Some(Cell::Number(..)) => " class=\"number\"",
        _ => "",
    };
    let head = |(at, name): (usize, &&str)| format!("<th{}>{name}</th>", class(at));
    let header: String = columns.iter().enumerate().map(head).collect();
    let rows: String = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>()))
        .collect();
    format!(
        "<h2>{}</h2>\n<p>{}</p>\n<div class=\"scroll\"><table>\n<thead><tr>{header}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n",
        escaped(&title),
        escaped(&intro)
    )
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => format!("<td>{}</td>", escaped(text)),
        Cell::Name(name) => format!("<td class=\"name\">{}</td>", escaped(name)),
        Cell::Number(text, value) => format!("<td class=\"number\" data-v=\"{value}\">{text}</td>"),
        Cell::Coverage(coverage) => {
            let name = coverage.as_str();
            format!("<td><b class=\"{name}\">{name}</b></td>")
        }
    }
}

/// Escapes untrusted text for HTML, and makes control characters visible.
fn escaped(text: &str) -> String {
    // The ampersand comes first, as the entities have one.
    let entities = [
        ('&', "&amp;"),
        ('<', "&lt;"),
        ('>', "&gt;"),
        ('"', "&quot;"),
        ('\'', "&#39;"),
    ];
    let mut escaped = shown(text);
    for (c, entity) in entities {
        escaped = escaped.replace(c, entity);
    }
    escaped
}
