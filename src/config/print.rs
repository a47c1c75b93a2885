//! The configuration as YAML: a valid file again, with a comment behind each value.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Config;
use super::reader::Location;
use super::shape::{ConfigKey, Map, Shape, Slot};

/// Where comments begin, if there is room.
const COLUMN: usize = 44;

/// The configuration with where each value comes from.
pub(super) fn effective(slot: &mut dyn Slot, file: &str, places: &BTreeMap<String, Location>) -> String {
    let mut printer = Printer { places: Some((file, places)), text: String::new() };
    printer.section(slot.shape(), "", "", "");
    printer.text
}

/// Every key with its default and what it means, as a file.
pub fn explained() -> String {
    let mut printer = Printer { places: None, text: String::new() };
    printer.section(Config::default().shape(), "", "", "");
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
        let Shape::Section(keys) = shape else { return };
        let mut before = format!("{indent}{first}");
        let indent = " ".repeat(before.len());
        for mut key in keys {
            let path = key.path(path);
            if self.key(&mut key, &before, &indent, &path) {
                before.clone_from(&indent);
            }
        }
    }

    /// One key with what it holds; `false` where nothing would be written.
    fn key(&mut self, key: &mut ConfigKey<'_>, before: &str, indent: &str, path: &str) -> bool {
        let comment = match self.places {
            None if key.at_start => format!("{} (restart)", key.doc),
            None => key.doc.to_owned(),
            Some((file, places)) => origin(file, places, path),
        };
        let heading = if self.places.is_some() { String::new() } else { comment.clone() };
        let name = format!("{before}{}:", key.name);
        let deeper = format!("{indent}  ");
        match key.slot.shape() {
            shape @ Shape::Section(_) => {
                self.line(&name, &heading);
                self.section(shape, &deeper, "", path);
            }
            Shape::Value(value) => {
                let written = value.written();
                if written.is_null() {
                    return false;
                }
                self.line(&format!("{name} {}", scalar(&written)), &comment);
            }
            Shape::Values(values) => {
                let items: Vec<String> = values.written().iter().map(scalar).collect();
                self.line(&format!("{name} [{}]", items.join(", ")), &comment);
            }
            Shape::List(list) => {
                let (start, mut at) = (self.text.len(), 0);
                self.line(&name, &heading);
                list.each(&mut |slot| {
                    self.section(slot.shape(), &deeper, "- ", &format!("{path}[{at}]"));
                    at += 1;
                });
                if at == 0 {
                    self.text.truncate(start);
                    self.line(&format!("{name} []"), &comment);
                }
            }
            Shape::Map(map) => self.map(map, &name, &deeper, path, &comment),
        }
        true
    }

    fn map(&mut self, map: &mut dyn Map, name: &str, indent: &str, path: &str, comment: &str) {
        let mut entries = 0;
        let start = self.text.len();
        self.line(name, if self.places.is_some() { "" } else { comment });
        let mut entry = |printer: &mut Self, key: &str, slot: &mut dyn Slot| {
            let name = format!("{indent}{}:", Json::from(key));
            let path = format!("{path}[{key:?}]");
            match slot.shape() {
                Shape::Value(value) => {
                    // A new one has no value that could be shown.
                    let Some((file, places)) = printer.places else { return };
                    printer
                        .line(&format!("{name} {}", scalar(&value.written())), &origin(file, places, &path));
                }
                shape => {
                    printer.line(&name, "");
                    printer.section(shape, &format!("{indent}  "), "", &path);
                }
            }
            entries += 1;
        };
        match self.places {
            Some(_) => map.each(&mut |key, slot| entry(self, key, slot)),
            None => {
                let (_, example) = map.key();
                map.blank(&mut |slot| entry(self, example, slot));
            }
        }
        if entries == 0 {
            self.text.truncate(start);
            self.line(&format!("{name} {{}}"), comment);
        }
    }

    fn line(&mut self, text: &str, comment: &str) {
        let line = if comment.is_empty() { text.to_owned() } else { format!("{text:<COLUMN$} # {comment}") };
        self.text += &line;
        self.text.push('\n');
    }
}

/// Where a value comes from.
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
fn scalar(value: &Json) -> String {
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
