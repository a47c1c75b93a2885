//! The configuration as YAML: a valid file again, with a comment behind each value.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Config;
use super::reader::Location;
use super::shape::{ConfigKey, Content, Entries, Shape, Slot, Step, join};

/// Where comments begin, if there is room.
const COLUMN: usize = 44;

pub(super) fn effective(config: &Config, file: &str, places: &BTreeMap<String, Location>) -> String {
    print(config.clone(), Some((file, places)))
}

pub fn explained() -> String {
    print(Config::default(), None)
}

fn print(mut config: Config, places: Option<(&str, &BTreeMap<String, Location>)>) -> String {
    let mut printer = Printer { places, text: String::new() };
    printer.section(config.shape(), "", "", "");
    printer.text
}

struct Printer<'a> {
    /// The file's name, and where it and others say what; without them, keys are explained.
    places: Option<(&'a str, &'a BTreeMap<String, Location>)>,
    text: String,
}

impl Printer<'_> {
    /// All keys of a section, the first one behind `first`, the others behind as many spaces as that is long.
    fn section(&mut self, shape: Shape<'_>, indent: &str, first: &str, path: &str) {
        let Content::Section(keys) = shape.content else { return };
        let mut before = format!("{indent}{first}");
        let indent = " ".repeat(before.len());
        for key in keys {
            let path = join(path, key.name);
            if self.key(key, &before, &indent, &path) {
                before.clone_from(&indent);
            }
        }
    }

    /// One key with what it holds; `false` where nothing would be written.
    fn key(&mut self, key: ConfigKey<'_>, before: &str, indent: &str, path: &str) -> bool {
        let comment = match self.places {
            None if key.at_start => format!("{} (restart)", key.doc),
            None => key.doc.to_owned(),
            Some((file, places)) => origin(file, places, path),
        };
        let heading = if self.places.is_some() { String::new() } else { comment.clone() };
        let name = format!("{before}{}:", key.name);
        let deeper = format!("{indent}  ");
        match key.shape.content {
            content @ Content::Section(_) => {
                self.line(&name, &heading);
                self.section(content.into(), &deeper, "", path);
            }
            Content::Value(value) => {
                let written = value.written();
                if written.is_null() {
                    return false;
                }
                self.line(&format!("{name} {}", shown(&written)), &comment);
            }
            Content::Entries(entries) => self.entries(entries, &name, &deeper, path, &comment),
        }
        true
    }

    fn entries(&mut self, entries: &mut dyn Entries, name: &str, indent: &str, path: &str, comment: &str) {
        let start = self.text.len();
        self.line(name, if self.places.is_some() { "" } else { comment });
        let mut is_empty = true;
        match (self.places, entries.key()) {
            (None, Some((_, example))) => {
                entries
                    .blank(&mut |shape| is_empty &= !self.entry(Step::Named(example), shape, indent, path));
            }
            _ => entries.each(&mut |step, shape| is_empty &= !self.entry(step, shape, indent, path)),
        }
        if is_empty {
            self.text.truncate(start);
            let empty = if entries.key().is_some() { "{}" } else { "[]" };
            self.line(&format!("{name} {empty}"), comment);
        }
    }

    /// One entry; `false` where nothing would be written.
    fn entry(&mut self, step: Step<'_>, shape: Shape<'_>, indent: &str, path: &str) -> bool {
        let path = format!("{path}{step}");
        let Step::Named(name) = step else {
            self.section(shape, indent, "- ", &path);
            return true;
        };
        let name = format!("{indent}{}:", Json::from(name));
        match shape.content {
            Content::Value(value) => {
                // A new one has no value that could be shown.
                let Some((file, places)) = self.places else { return false };
                self.line(&format!("{name} {}", shown(&value.written())), &origin(file, places, &path));
            }
            content => {
                self.line(&name, "");
                self.section(content.into(), &format!("{indent}  "), "", &path);
            }
        }
        true
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
            let preset = places.contains_key(&format!("{pool}.preset"));
            if preset { "preset".to_owned() } else { "default".to_owned() }
        }
    }
}

/// Without quotes where that cannot be taken for anything else. JSON's strings are YAML's.
fn shown(value: &Json) -> String {
    if let Some(items) = value.as_array() {
        return format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    let plain = |text: &&str| {
        let body = |b: u8| b.is_ascii_alphanumeric() || b"/._-".contains(&b);
        text.bytes().all(body)
            && text.bytes().any(|b| b.is_ascii_alphabetic() || b == b'/')
            && text.starts_with(|c: char| c == '/' || c.is_ascii_alphanumeric())
            && !is_special(text)
    };
    value.as_str().filter(plain).map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether YAML, in any of its versions, reads this as something other than a text.
fn is_special(text: &str) -> bool {
    const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || text.parse::<f64>().is_ok()
        || text.starts_with("0x")
        || text.starts_with("0o")
}
