//! Output for terminals and pipes: tables, colours, progress, and the end of a pipe.

use std::io::{self, IsTerminal, Write};
use std::iter::{once, repeat_n};
use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;

use tolerarch_support::logging::{self, Format, Level};
use tolerarch_support::sync::Mutex;
use tolerarch_text::escape::{escape_json, is_unsafe, last_chars};

const GAP: &str = "  ";
/// Escape sequence that clears the current line of a terminal.
const CLEAR: &str = "\r\x1b[K";

/// Writes a text to standard output, in colour only on a terminal that supports it. It is no error if the reader of a
/// pipe closes it early.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line to standard error, with untrusted texts escaped. Drops the line if standard error is closed.
pub(super) fn print_error(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", sanitized(line));
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    #[default]
    Table,
    Json,
}

/// Returns the number of columns of the terminal; `None` without a terminal, where no line is cut.
pub(super) fn columns() -> Option<usize> {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map(|(terminal_size::Width(width), _)| usize::from(width))
}

/// Colour, with the number of its escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Plain = 0,
    Faint = 2,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Colour {
    pub(super) fn paint(self, text: &str) -> String {
        if self == Self::Plain {
            text.to_owned()
        } else {
            format!("\x1b[{}m{text}\x1b[0m", self as u8)
        }
    }
}

pub(super) struct Row {
    pub(super) colour: Colour,
    /// Texts, which may be untrusted.
    pub(super) cells: Vec<String>,
}

/// Columns that are never cut: without them a line is useless.
const UNCUT_COLUMNS: &[&str] = &["REASON", "DECISION"];
/// Maximum number of items of a list in a text; JSON has all items.
pub(super) const MAX_ITEMS: usize = 20;
/// Minimum width of all other columns.
const MIN_WIDTH: usize = 4;

/// Renders aligned columns; nothing if there are no rows. On a narrow terminal the widest columns are cut. They keep the
/// ends of their texts, because images differ at the end.
pub(super) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Row>,
    indent: &str,
    width: Option<usize>,
) -> String {
    let top = Row {
        colour: Colour::Plain,
        cells: header.iter().map(ToString::to_string).collect(),
    };
    let mut rows: Vec<Row> = once(top).chain(rows).collect();
    if rows.len() == 1 {
        return String::new();
    }
    let mut widths = vec![0; header.len()];
    for row in &mut rows {
        for (width, cell) in widths.iter_mut().zip(&mut row.cells) {
            *cell = sanitized(cell);
            *width = cell.chars().count().max(*width);
        }
    }
    if let Some(width) = width {
        let gaps = GAP.len() * header.len().saturating_sub(1) + indent.len();
        narrow(header, &mut widths, width.saturating_sub(gaps));
    }
    let mut text = String::new();
    for Row { colour, cells } in &rows {
        let cells = cells.iter().zip(&widths);
        let cells = cells.map(|(cell, &width)| padded(cut(cell, width), width));
        let line = format!("{indent}{}", cells.collect::<Vec<_>>().join(GAP));
        text += &colour.paint(line.trim_end());
        text.push('\n');
    }
    text
}

/// Narrows the widest columns until all columns fit into `total`, as far as they may be cut.
fn narrow(header: &[&str], widths: &mut [usize], total: usize) {
    while widths.iter().sum::<usize>() > total {
        let columns = widths.iter_mut().zip(header);
        let may_be_cut =
            columns.filter(|(width, name)| **width > MIN_WIDTH && !UNCUT_COLUMNS.contains(name));
        let Some((widest, _)) = may_be_cut.max_by_key(|(width, _)| **width) else {
            return;
        };
        *widest -= 1;
    }
}

/// Pads a cell with spaces. Rust's own padding panics at a width above 65535, which texts from files may have.
fn padded(mut cell: String, width: usize) -> String {
    let missing = width.saturating_sub(cell.chars().count());
    cell.extend(repeat_n(' ', missing));
    cell
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    format!("…{}", last_chars(cell, width - 1))
}

/// Returns a line that counts the items of a list after the first `printed`; `None` if there are none.
pub(super) fn rest(all: usize, printed: usize) -> Option<String> {
    match all.saturating_sub(printed) {
        0 => None,
        more => Some(format!("and {more} more; -o json has them all\n")),
    }
}

/// Joins the texts that are not empty, with an empty line between them.
pub(super) fn paragraphs(texts: impl IntoIterator<Item = String>) -> String {
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

/// Wraps a sentence, which may be untrusted, between words at the width of the terminal. All lines but the first begin
/// with `indent`.
pub(super) fn wrapped(text: &str, indent: &str, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let mut wrapped = String::new();
    let mut column = 0;
    for word in sanitized(text).split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if column + length > width && column > indent.len() {
            wrapped.truncate(wrapped.trim_end().len());
            wrapped += "\n";
            wrapped += indent;
            column = indent.len();
        }
        wrapped += word;
        column += word.chars().count();
    }
    wrapped + "\n"
}

/// Formats a number with its noun: `1 Pod`, `3 Pods`.
pub(super) fn count(number: u64, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

/// Escapes the characters of an untrusted text that would control a terminal.
pub(super) fn sanitized(text: &str) -> String {
    escaped(text, |escaped, c| escaped.extend(c.escape_default()))
}

/// Escapes a JSON document for standard output, which may be a terminal. Characters that would control the terminal occur
/// only in strings, where JSON has escapes for them: everything else is ASCII.
pub(super) fn document(json: &str) -> String {
    let escape = |document: &mut String, c| match c {
        '\n' => document.push(c),
        // Writing to a `String` does not fail.
        _ => escape_json(document, c).unwrap_or_default(),
    };
    escaped(json, escape) + "\n"
}

fn escaped(text: &str, escape: impl Fn(&mut String, char)) -> String {
    let mut escaped = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_unsafe(c) {
            escape(&mut escaped, c);
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns a JSON document with sorted members.
pub(super) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(document(&format!("{:#}", serde_json::to_value(value)?)))
}

/// Progress of a command, in one line on standard error that is rewritten. Prints nothing unless that is a terminal.
#[derive(Clone, Default)]
pub(super) struct Progress(Arc<Mutex<String>>);

impl Progress {
    /// Starts logging to standard error, with the progress line below the log lines.
    pub(super) fn start(level: Option<Level>, format: Option<Format>) -> Self {
        let progress = Self::default();
        let below = progress.clone();
        logging::start_for_people(level, format.unwrap_or(Format::Text), move || below.clone());
        progress
    }

    /// Replaces the progress line; an empty text removes the line.
    pub(super) fn show(&self, text: &str) {
        if io::stderr().is_terminal() {
            let mut line = self.0.lock();
            let _ = write!(io::stderr().lock(), "{CLEAR}{text}");
            text.clone_into(&mut line);
        }
    }
}

/// Writes log lines above the progress line, which is cleared and written again below them.
impl Write for Progress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = self.0.lock();
        let mut err = io::stderr().lock();
        if !line.is_empty() {
            err.write_all(CLEAR.as_bytes())?;
        }
        err.write_all(bytes)?;
        err.write_all(line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

#[cfg(test)]
pub(super) mod tests;
