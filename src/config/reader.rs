//! Reads YAML, environment and flags into values, and records the locations of faults and values. It is independent of the
//! keys of the configuration.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::shape::{Content, Description, Entries, NameRules, Value, join};
use tolerarch_text::yaml::{self, Data, Dialect, Key, Node};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of keys: `pools[0].platforms`; empty for the whole document.
    pub path: String,
    pub location: Location,
    pub message: String,
}

/// Source of a value, in the order of precedence: a later one overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// Line of the file, from 1.
    Line(usize),
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Location::Variable(name) if *name == self.path => write!(f, "{name}: {}", self.message),
            location if self.path.is_empty() => {
                write!(f, "the document ({location}): {}", self.message)
            }
            location => write!(f, "{} ({location}): {}", self.path, self.message),
        }
    }
}

/// State of a reading: the current path, the faults and warnings, and the locations of values.
#[derive(Debug, Default)]
pub(super) struct Reader {
    path: String,
    pub(super) faults: Vec<FieldError>,
    pub(super) warnings: Vec<FieldError>,
    /// Locations of sections, lists and values, by their paths.
    pub(super) locations: BTreeMap<String, Location>,
}

impl Reader {
    /// Reads the only document of a file into the described values, which hold the defaults; returns the document.
    pub(super) fn document(&mut self, text: &str, description: Description<'_>) -> Option<Node> {
        match yaml::read(text, Dialect::Text) {
            Err(error) => self.fault(Location::Line(error.line), error.message),
            Ok(documents) => match &*documents {
                [_, second, ..] => {
                    self.fault(
                        location(second),
                        "a second document: a configuration has only one",
                    );
                }
                [document] if !is_null(document) => {
                    self.fill(document, description);
                    return documents.into_iter().next();
                }
                _ => {}
            },
        }
        None
    }

    pub(super) fn fill(&mut self, node: &Node, description: Description<'_>) {
        self.locations.insert(self.path.clone(), location(node));
        match description.content {
            Content::Section(keys) => self.section(node, keys),
            Content::Value(value) => self.value(node, value),
            Content::Entries(None, entries) => self.list(node, entries),
            Content::Entries(Some(names), entries) => self.named(node, &names, entries),
        }
    }

    fn section(&mut self, node: &Node, mut keys: Vec<Description<'_>>) {
        let names: Vec<_> = keys.iter().map(|key| key.name.clone()).collect();
        let Data::Map(members) = &node.data else {
            return self.unexpected(node, &format!("a section with {}", names.join(", ")));
        };
        for (name, value) in self.distinct(members) {
            let at = keys.iter().position(|key| key.name == name.text);
            self.within(&step(&name.text), |reader| match at {
                // A key without a value keeps its default.
                Some(_) if is_null(value) => {}
                Some(at) => reader.fill(value, keys.swap_remove(at)),
                None => {
                    let hint = nearest(&name.text, names.iter().map(|name| &**name));
                    reader.fault(Location::Line(name.line), format!("unknown key; {hint}"));
                }
            });
        }
    }

    fn list(&mut self, node: &Node, entries: &mut dyn Entries) {
        let Data::List(items) = &node.data else {
            return self.unexpected(node, "a list");
        };
        entries.clear();
        for (at, item) in items.iter().enumerate() {
            self.within(&format!("[{at}]"), |reader| {
                // An item of a list has no name that could be invalid.
                let _ = entries.add(String::new(), &mut |description| {
                    reader.fill(item, description);
                });
            });
        }
    }

    fn named(&mut self, node: &Node, names: &NameRules, entries: &mut dyn Entries) {
        let Data::Map(members) = &node.data else {
            let NameRules { what, example, .. } = names;
            let expected = format!("a section with a key for each {what}, such as {example:?}");
            return self.unexpected(node, &expected);
        };
        for (key, value) in self.distinct(members) {
            let name = (names.read)(&key.text);
            let step = format!("[{}]", quoted(name.as_ref().unwrap_or(&key.text)));
            self.within(&step, |reader| {
                let mut fill = |description: Description<'_>| {
                    if !is_null(value) {
                        reader.fill(value, description);
                    }
                };
                let added = match name {
                    Some(name) => entries.add(name, &mut fill),
                    None => Err(names.fault.to_owned()),
                };
                if let Err(message) = added {
                    reader.fault(Location::Line(key.line), message);
                }
            });
        }
    }

    fn value(&mut self, node: &Node, mut value: Value<'_>) {
        let is_word = || scalar(node).is_some() && scalar(node) == value.accepted.word;
        let (items, is_list) = match &node.data {
            _ if !value.accepted.is_list || is_word() => (std::slice::from_ref(node), false),
            Data::List(items) => (&**items, true),
            _ => return self.unexpected(node, "a list"),
        };
        for at in (value.set_texts)(&items.iter().map(scalar).collect::<Vec<_>>()) {
            let expected = value.accepted.expected(scalar(&items[at]));
            let step = if is_list {
                format!("[{at}]")
            } else {
                String::new()
            };
            self.within(&step, |reader| reader.unexpected(&items[at], &expected));
        }
    }

    /// Returns the members, and reports repeated keys.
    fn distinct<'n>(&mut self, members: &'n [(Key, Node)]) -> Vec<&'n (Key, Node)> {
        let mut lines = HashMap::new();
        let mut distinct = Vec::new();
        for member in members {
            let Key { line, text, .. } = &member.0;
            if let Some(first) = lines.get(text) {
                let message = format!("it is repeated: the first one is on line {first}");
                self.within(&step(text), |reader| {
                    reader.fault(Location::Line(*line), message);
                });
            } else {
                lines.insert(text, line);
                distinct.push(member);
            }
        }
        distinct
    }

    fn within(&mut self, step: &str, read: impl FnOnce(&mut Self)) {
        let path = join(&self.path, step);
        let outer = std::mem::replace(&mut self.path, path);
        read(self);
        self.path = outer;
    }

    fn fault(&mut self, location: Location, message: impl Into<String>) {
        self.faults.push(FieldError {
            path: self.path.clone(),
            location,
            message: message.into(),
        });
    }

    pub(super) fn fault_at(&mut self, path: &str, location: Location, message: String) {
        self.faults.push(FieldError {
            path: path.to_owned(),
            location,
            message,
        });
    }

    fn unexpected(&mut self, node: &Node, expected: &str) {
        self.fault(
            location(node),
            format!("found {}, expected {expected}", rendered(node)),
        );
    }

    /// Collects the faults of sections and lists as a whole. Called when everything has been read. A section with a
    /// fault in a part is left out.
    pub(super) fn check_wholes(&mut self, description: Description<'_>) {
        let mut faulty: BTreeSet<String> =
            self.faults.iter().map(|fault| fault.path.clone()).collect();
        description.walk("", &mut |path,
                                   Description {
                                       content,
                                       faults,
                                       warnings,
                                       ..
                                   }| {
            let is_list = matches!(content, Content::Entries(None, _));
            let Some(location) = self.locations.get(path) else {
                return;
            };
            if !is_list && has_within(&faulty, path) {
                return;
            }
            if !faults.is_empty() {
                faulty.insert(path.to_owned());
            }
            let of = |message| FieldError {
                path: path.to_owned(),
                location: location.clone(),
                message,
            };
            self.faults.extend(faults.drain(..).map(of));
            self.warnings.extend(warnings.drain(..).map(of));
        });
    }
}

/// Maximum number of valid names that are compared with an invalid one: there may be thousands of both.
const COMPARED: usize = 100;

/// Returns a hint at the valid name that was probably meant, otherwise at all valid names. Only the first [`COMPARED`]
/// names count.
pub(super) fn nearest<'n>(name: &str, valid: impl Iterator<Item = &'n str> + Clone) -> String {
    match near(name, valid.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => {
            let valid: Vec<&str> = valid.take(COMPARED).collect();
            format!("known are {}", valid.join(", "))
        }
    }
}

/// Returns the most similar valid name, if one is similar. Only the first [`COMPARED`] names count.
pub(super) fn near<'n>(name: &str, valid: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let compared = valid.take(COMPARED);
    let distances = compared.map(|valid| (strsim::damerau_levenshtein(valid, name), valid));
    let (distance, nearest) = distances.min()?;
    if distance * 2 <= nearest.len() {
        Some(nearest)
    } else {
        None
    }
}

/// Returns whether a text may hold a password, as `https://user:password@host` does.
pub(super) fn may_be_secret(text: &str) -> bool {
    text.contains('@')
}

/// Quotes a text for a fault unless it may hold a password: faults are printed in logs and on terminals.
pub(super) fn quoted(text: &str) -> String {
    if may_be_secret(text) {
        "a text with an @, which is not shown".to_owned()
    } else {
        format!("{text:?}")
    }
}

fn step(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain {
        key.to_owned()
    } else {
        format!("[{}]", quoted(key))
    }
}

/// Returns whether a path or one below it is among `paths`.
fn has_within(paths: &BTreeSet<String>, path: &str) -> bool {
    let has_below = |mark: char| {
        let prefix = format!("{path}{mark}");
        paths
            .range(prefix.clone()..)
            .next()
            .is_some_and(|first| first.starts_with(&prefix))
    };
    paths.contains(path) || has_below('.') || has_below('[')
}

fn location(node: &Node) -> Location {
    Location::Line(node.line)
}

fn is_null(node: &Node) -> bool {
    matches!(node.data, Data::Null)
}

/// Returns a scalar as text. `8443` and `"8443"` are the same.
fn scalar(node: &Node) -> Option<&str> {
    if let Data::Text(text) = &node.data {
        Some(text)
    } else {
        None
    }
}

fn rendered(node: &Node) -> String {
    match &node.data {
        Data::List(_) => "a list".into(),
        Data::Map(_) => "a section".into(),
        _ => scalar(node).map_or("nothing".into(), quoted),
    }
}
