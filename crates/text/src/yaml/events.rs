//! Events of YAML from libyaml's scanner, which go-yaml has as well. Unlike the specification, the scanner ignores
//! indentation within flow collections and quoted texts, and accepts tabs as white space.
//!
//! Three forms that go-yaml reads are refused:
//!
//! - a plain text in a flow collection that ends in a colon (`[a:, b]`),
//! - a tag directly before a bracket or a comma (`[!!str, b]`),
//! - the escape `\'` in a double-quoted text.

use std::io::{BufReader, Chain, Read};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};

use libyaml_safer::{Encoding, EventData, MappingStyle, Parser, ScalarStyle, SequenceStyle};

/// Bytes that are decoded at once, into four bytes for each character.
const DECODED: usize = 16 << 10;

/// A byte order mark, which go-yaml ignores at the beginning of a text.
const MARK: char = '\u{feff}';

/// Problem that libyaml reports for a colon in a plain text of a flow collection, which go-yaml may accept.
const COLON: &str = "found unexpected ':'";
/// Part of the contexts that libyaml reports for tags.
const TAG: &str = "a tag";

/// Characters that end a line.
const BREAKS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Wraps the panic hook, so that nothing is printed or counted for the parser's panics, which are returned as faults.
pub fn hide_parser_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !is_of_parser(panic) {
            report(panic);
        }
    }));
}

fn is_of_parser(panic: &PanicHookInfo<'_>) -> bool {
    let location = panic.location();
    location.is_some_and(|location| location.file().contains("libyaml-safer"))
}

#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Fault {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
    is_unsupported: bool,
}

impl Fault {
    /// Makes a fault for which [`Fault::is_unsupported`] is false.
    pub fn new(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            is_unsupported: false,
        }
    }

    /// Makes a fault of a text that this reader does not support, and go-yaml may read.
    pub(super) fn unsupported(line: usize, message: &str) -> Self {
        Self {
            is_unsupported: true,
            ..Self::new(line, message)
        }
    }

    /// Returns whether this reader alone refuses the text, so that go-yaml may read it: for one of the forms above, for
    /// a key or a number that JSON lacks, or for a bound.
    pub fn is_unsupported(&self) -> bool {
        self.is_unsupported
    }

    /// Returns the fault in a text that begins after this number of lines of the file.
    pub(super) fn behind(mut self, lines: usize) -> Self {
        self.line += lines;
        self
    }
}

/// Reason why a node is refused.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// go-yaml refuses the node as well.
    Invalid(&'static str),
    /// go-yaml may read the node.
    Unsupported(&'static str),
}

impl Refusal {
    /// Returns the fault of a node on a line.
    pub(super) fn at(self, line: usize) -> Fault {
        match self {
            Self::Invalid(message) => Fault::new(line, message),
            Self::Unsupported(message) => Fault::unsupported(line, message),
        }
    }
}

pub(super) enum Event {
    /// A document begins.
    Document,
    Scalar(Scalar),
    List {
        anchor: Option<String>,
    },
    Map {
        anchor: Option<String>,
    },
    /// The list or mapping that began last ends.
    End,
    Alias(String),
}

pub(super) struct Scalar {
    pub text: String,
    /// Whether the scalar is neither quoted nor a block.
    pub is_plain: bool,
    /// The full tag: `tag:yaml.org,2002:str` for `!!str`.
    pub tag: Option<String>,
    pub anchor: Option<String>,
    /// Whether go-yaml, whose scanner is older, refuses the scalar: a plain text with a `?` in a flow collection, or the
    /// escape `\/`.
    pub is_beyond_go: bool,
}

type Input<'t> = BufReader<Chain<&'t [u8], &'t [u8]>>;

pub(super) struct Events<'t> {
    text: &'t str,
    parser: Parser<Input<'t>>,
    has_ended: bool,
    /// Flow collections that have begun.
    flow: usize,
}

impl<'t> Events<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let text = text.strip_prefix(MARK).unwrap_or(text);
        // A last line that has only spaces does not belong to a block scalar.
        let text = match text.trim_end_matches(' ') {
            complete if complete.ends_with(BREAKS) => complete,
            _ => text,
        };
        // The parser panics if the text ends within a block scalar or an escape.
        let last_break: &[u8] = if text.ends_with(BREAKS) { b"" } else { b"\n" };
        let input = text.as_bytes().chain(last_break);
        let mut parser = Parser::new();
        parser.set_encoding(Encoding::Utf8);
        parser.set_input(BufReader::with_capacity(DECODED, input));
        Self {
            text,
            parser,
            has_ended: false,
            flow: 0,
        }
    }

    /// Returns the next event with its line, counted from 1; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<(usize, Event)>, Fault> {
        while !self.has_ended {
            let event = self.parse()?;
            let line = number(event.start_mark.line) + 1;
            let read = match event.data {
                EventData::StreamStart { .. } | EventData::DocumentEnd { .. } => continue,
                EventData::StreamEnd => {
                    self.has_ended = true;
                    continue;
                }
                EventData::DocumentStart { .. } => Event::Document,
                EventData::Alias { anchor } => Event::Alias(anchor),
                EventData::SequenceStart { anchor, style, .. } => {
                    // A collection within a flow collection is a flow collection as well.
                    self.flow += usize::from(style == SequenceStyle::Flow);
                    Event::List { anchor }
                }
                EventData::MappingStart { anchor, style, .. } => {
                    self.flow += usize::from(style == MappingStyle::Flow);
                    Event::Map { anchor }
                }
                EventData::SequenceEnd | EventData::MappingEnd => {
                    self.flow = self.flow.saturating_sub(1);
                    Event::End
                }
                EventData::Scalar {
                    anchor,
                    tag,
                    mut value,
                    style,
                    ..
                } => {
                    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                    let has_added_break = number(event.end_mark.index) > self.text.len();
                    if is_block && has_added_break && value.ends_with('\n') {
                        value.pop();
                    }
                    let range = number(event.start_mark.index)..number(event.end_mark.index);
                    Event::Scalar(Scalar {
                        is_beyond_go: self.is_beyond_go(&value, style, range),
                        text: value,
                        is_plain: style == ScalarStyle::Plain,
                        tag,
                        anchor,
                    })
                }
            };
            return Ok(Some((line, read)));
        }
        Ok(None)
    }

    /// Returns whether go-yaml refuses a scalar. `range` is its range in the text.
    fn is_beyond_go(&self, value: &str, style: ScalarStyle, range: Range<usize>) -> bool {
        match style {
            ScalarStyle::Plain => self.flow > 0 && value.contains('?'),
            ScalarStyle::DoubleQuoted => {
                let written = self.text.get(range).unwrap_or_default();
                has_escaped_slash(written)
            }
            _ => false,
        }
    }

    /// Reads the end of a document whose root is complete.
    pub(super) fn end_document(&mut self) -> Result<(), Fault> {
        self.parse()?;
        Ok(())
    }

    fn parse(&mut self) -> Result<libyaml_safer::Event, Fault> {
        // The parser panics at a tag directly before a comma in a flow collection (0.3.0, `scan_tag`).
        match catch_unwind(AssertUnwindSafe(|| self.parser.parse())) {
            Ok(Ok(event)) => Ok(event),
            Ok(Err(error)) => Err(self.fault(&error)),
            Err(_) => {
                self.has_ended = true;
                let line = self.text.matches('\n').count() + 1;
                Err(Fault::unsupported(
                    line,
                    "not YAML: a tag (!) directly before a comma",
                ))
            }
        }
    }

    fn fault(&self, error: &libyaml_safer::Error) -> Fault {
        let problem = error.problem();
        let Some(mark) = error.problem_mark() else {
            // A fault without a mark is a character that YAML forbids.
            let before = self.text.split(is_forbidden).next().unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            return Fault::new(line, format!("not YAML: {problem}"));
        };
        let column = mark.column + 1;
        let mut message = format!("not YAML: {problem} at column {column}");
        let rest = self.text.get(number(mark.index)..).unwrap_or_default();
        if rest.starts_with(':') {
            message += " (in brackets, quote what begins or ends with a colon)";
        }
        let mut is_unsupported = problem.contains(COLON);
        if rest.starts_with("\\'") {
            message += " (double quotes have no \\')";
            is_unsupported = true;
        }
        if let (Some(context), Some(begin)) = (error.context(), error.context_mark()) {
            message += &format!(", {context} (line {})", begin.line + 1);
            is_unsupported |= context.contains(TAG);
        }
        Fault {
            line: number(mark.line) + 1,
            message,
            is_unsupported,
        }
    }
}

/// Returns whether a text in double quotes has the escape `\/`.
fn has_escaped_slash(written: &str) -> bool {
    let mut characters = written.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && characters.next() == Some('/') {
            return true;
        }
    }
    false
}

/// Returns whether YAML 1.1 forbids a character.
fn is_forbidden(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        _ => c.is_control(),
    }
}

fn number(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}
