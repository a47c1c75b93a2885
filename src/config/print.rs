//! Configuration as YAML: a valid file again, with a comment behind each value.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Config;
use super::reader::Location;
use super::shape::{Content, Entries, Names, Shape, Slot, join};
use tolerarch_text::yaml::{self, Data, Dialect, Node};

/// Column where comments begin, if there is room.
const COLUMN: usize = 44;

/// Name of the file, and the source of each value.
pub(super) type Origins<'a> = (&'a str, &'a BTreeMap<String, Location>);

/// Returns every key with its default and its meaning.
pub fn explained() -> String {
    let mut config = Config::default();
    config.shape().walk("", false, &mut |_, _, shape| {
        let Content::Entries(entries) = &mut shape.content else { return };
        if let Some(Names { example, .. }) = entries.names() {
            // A default has no entries with names, so there can be one with any name.
            let _ = entries.add(example.to_owned(), &mut |_| {});
        }
    });
    print(config, None)
}

/// Renders all values, each with its source or, without origins, with its meaning.
pub(super) fn print(mut config: Config, origins: Option<Origins<'_>>) -> String {
    let mut printer = Printer { origins, text: String::new() };
    printer.keys(config.shape(), 0, "");
    printer.text
}

struct Printer<'a> {
    origins: Option<Origins<'a>>,
    text: String,
}

impl Printer<'_> {
    fn keys(&mut self, section: Shape<'_>, indent: usize, path: &str) {
        let Content::Section(keys) = section.content else { return };
        for key in keys {
            let doc = if key.at_start { format!("{} (restart)", key.doc) } else { key.doc.to_owned() };
            self.shape(key.name, key.shape, indent, &join(path, key.name), &doc);
        }
    }

    /// Writes a name and its content; nothing if the content is null.
    fn shape(&mut self, name: &str, shape: Shape<'_>, indent: usize, path: &str, doc: &str) {
        let name = format!("{:indent$}{name}:", "");
        let comment = match self.origins {
            Some((file, places)) => origin(file, places, path),
            None => doc.to_owned(),
        };
        let heading = if self.origins.is_some() { "" } else { doc };
        match shape.content {
            Content::Value(value) if value.written.is_null() => {}
            Content::Value(value) => self.line(&format!("{name} {}", shown(&value.written)), &comment),
            content @ Content::Section(_) => {
                self.line(&name, heading);
                self.keys(content.into(), indent + 2, path);
            }
            Content::Entries(entries) => {
                let start = self.text.len();
                self.line(&name, heading);
                let inside = self.text.len();
                self.entries(entries, indent + 2, path);
                if self.text.len() == inside {
                    self.text.truncate(start);
                    let empty = if entries.names().is_some() { "{}" } else { "[]" };
                    self.line(&format!("{name} {empty}"), &comment);
                }
            }
        }
    }

    fn entries(&mut self, entries: &mut dyn Entries, indent: usize, path: &str) {
        let is_list = entries.names().is_none();
        entries.each(&mut |step, shape| {
            let (start, path) = (self.text.len(), format!("{path}[{step}]"));
            if is_list {
                self.keys(shape, indent + 2, &path);
                let item = self.text.split_off(start);
                self.text += &item.replacen(&" ".repeat(indent + 2), &format!("{:indent$}- ", ""), 1);
            } else {
                self.shape(step, shape, indent, &path, "");
            }
        });
    }

    fn line(&mut self, text: &str, comment: &str) {
        let line = if comment.is_empty() { text.to_owned() } else { format!("{text:<COLUMN$} # {comment}") };
        self.text += &line;
        self.text.push('\n');
    }
}

fn origin(file: &str, places: &BTreeMap<String, Location>, path: &str) -> String {
    match places.get(path) {
        Some(Location::Line(line)) => format!("{file}:{line}"),
        Some(place) => place.to_string(),
        None => {
            let pool = path.split_inclusive(']').next().unwrap_or_default();
            let is_preset = places.contains_key(&format!("{pool}.preset"));
            if is_preset { "preset" } else { "default" }.to_owned()
        }
    }
}

/// Formats a value, without quotes if YAML reads the text as a string. JSON's strings are YAML's, too.
pub(super) fn shown(value: &Json) -> String {
    if let Some(items) = value.as_array() {
        return format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    let plain = |text: &&str| {
        let body = |b: u8| b.is_ascii_alphanumeric() || b"/._-".contains(&b);
        text.bytes().all(body)
            && text.bytes().any(|b| b.is_ascii_alphabetic() || b == b'/')
            && text.starts_with(|c: char| c == '/' || c.is_ascii_alphanumeric())
            && matches!(
                yaml::read(text, Dialect::Kubernetes).as_deref(),
                Ok([Node { data: Data::Text(_), .. }])
            )
    };
    value.as_str().filter(plain).map_or_else(|| value.to_string(), str::to_owned)
}
