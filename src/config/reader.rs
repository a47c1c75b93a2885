//! From YAML, the environment and flags to values, with the place of everything that is wrong and of everything that
//! was said. Knows no key of the configuration.

use std::collections::BTreeMap;
use std::fmt;

use saphyr::{MarkedYaml, Scalar, YamlData, YamlLoader};
use saphyr_parser::Parser;

use super::duplicates::{Duplicate, duplicates};
use super::quote::{may_be_secret, quoted};
use super::shape::{Shape, Slot};

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, as a path of keys: `pools[0].platforms`. Empty for the whole document.
    pub path: String,
    /// Where it is said.
    pub place: Place,
    /// What, and how to mend it.
    pub message: String,
}

/// Where something is said. In the order of their precedence: the last one holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On this line of the file, from 1.
    Line(usize),
    /// In this variable of the environment.
    Variable(String),
    /// By this flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Variable(name) if *name == self.path => write!(f, "{name}: {}", self.message),
            place if self.path.is_empty() => write!(f, "the document ({place}): {}", self.message),
            place => write!(f, "{} ({place}): {}", self.path, self.message),
        }
    }
}

/// Where the reading is, what was found wrong, and where what was found right is said.
#[derive(Debug, Default)]
pub(super) struct Reader {
    path: String,
    faults: Vec<Fault>,
    /// The places of sections, lists and values, by their path.
    pub(super) places: BTreeMap<String, Place>,
}

impl Reader {
    /// Reads the one document of a file into `slot`, which holds the defaults.
    pub(super) fn document(&mut self, text: &str, slot: &mut dyn Slot) {
        let mut whole = |line, message| {
            self.faults.push(Fault { path: String::new(), place: Place::Line(line), message });
        };
        let mut loader = YamlLoader::<MarkedYaml<'_>>::default();
        // They are found apart, so that they hide nothing else.
        loader.allow_duplicate_keys(true);
        let parsed = Parser::new_from_str(text).load(&mut loader, true);
        if let Some(error) = parsed.err().as_ref().or(loader.error()) {
            let column = error.marker().col() + 1;
            return whole(error.marker().line(), format!("not YAML: {} at column {column}", error.info()));
        }
        for Duplicate { path, line, first } in duplicates(text) {
            let message = format!("it is there already, on line {first}; remove one of the two");
            self.fault_at(&path, Place::Line(line), message);
        }
        let mut whole = |line, message| self.fault_at("", Place::Line(line), message);
        let documents = loader.into_documents();
        match documents.as_slice() {
            [] => {}
            [document] if is_null(document) => {}
            [document] => self.fill(document, slot),
            [_, second, ..] => {
                whole(second.span.start.line(), "a second document: a configuration is one".to_owned());
            }
        }
    }

    /// Takes over what the node says.
    fn fill(&mut self, node: &MarkedYaml<'_>, slot: &mut dyn Slot) {
        self.places.insert(self.path.clone(), place(node));
        match (slot.shape(), &node.data) {
            (Shape::Section(keys), YamlData::Mapping(members)) => {
                let mut keys = keys;
                for (name, value) in members {
                    let text = scalar(name).unwrap_or_default();
                    match keys.iter_mut().find(|known| known.name == text) {
                        // A key without a value keeps its default.
                        Some(_) if is_null(value) => {}
                        Some(known) => self.within(known.name, |reader| reader.fill(value, &mut *known.slot)),
                        None => {
                            let hint = nearest(&text, keys.iter().map(|known| known.name));
                            let message = format!("unknown key; {hint}");
                            let shown = if may_be_secret(&text) { quoted(&text) } else { text };
                            self.within(&shown, |reader| reader.fault(place(name), message));
                        }
                    }
                }
            }
            (Shape::Section(keys), _) => {
                let names: Vec<_> = keys.iter().map(|key| key.name).collect();
                self.wrong(node, &format!("a section with {}", names.join(", ")));
            }
            (Shape::Value(value), _) => {
                if !scalar(node).is_some_and(|text| value.read(&text)) {
                    self.wrong(node, &value.expected());
                }
            }
            (Shape::Values(values), YamlData::Sequence(items)) => {
                values.clear();
                for (at, item) in items.iter().enumerate() {
                    if !scalar(item).is_some_and(|text| values.add(&text)) {
                        let expected = values.blank().expected();
                        self.within(&format!("[{at}]"), |reader| reader.wrong(item, &expected));
                    }
                }
            }
            (Shape::List(list), YamlData::Sequence(items)) => {
                list.clear();
                for (at, item) in items.iter().enumerate() {
                    self.within(&format!("[{at}]"), |reader| {
                        list.add(&mut |slot| reader.fill(item, slot));
                    });
                }
            }
            (Shape::Values(_) | Shape::List(_), _) => self.wrong(node, "a list"),
            (Shape::Map(map), YamlData::Mapping(members)) => {
                for (name, value) in members {
                    let text = scalar(name).unwrap_or_default();
                    self.within(&format!("[{}]", quoted(&map.normal(&text))), |reader| {
                        let added = map.add(&text, &mut |slot| {
                            if !is_null(value) {
                                reader.fill(value, slot);
                            }
                        });
                        if let Err(message) = added {
                            reader.fault(place(name), message);
                        }
                    });
                }
            }
            (Shape::Map(map), _) => {
                let (what, example) = map.key();
                self.wrong(node, &format!("a section with a key for each {what}, such as {example:?}"));
            }
        }
    }

    /// Runs `read` one step deeper.
    fn within(&mut self, step: &str, read: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !self.path.is_empty() && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        read(self);
        self.path.truncate(length);
    }

    fn fault(&mut self, place: Place, message: impl Into<String>) {
        self.faults.push(Fault { path: self.path.clone(), place, message: message.into() });
    }

    /// A fault that is not where the reading is.
    pub(super) fn fault_at(&mut self, path: &str, place: Place, message: String) {
        self.faults.push(Fault { path: path.to_owned(), place, message });
    }

    /// Whether anything is wrong.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    fn wrong(&mut self, node: &MarkedYaml<'_>, expected: &str) {
        self.fault(place(node), format!("found {}, expected {expected}", shown(node)));
    }

    /// Collects what is wrong with sections and lists as a whole, once all has been read. A section of which a part is
    /// wrong already is not judged.
    pub(super) fn object(&mut self, slot: &mut dyn Slot) {
        let before = self.faults.len();
        let mut is_list = false;
        match slot.shape() {
            Shape::Section(keys) => {
                for mut key in keys {
                    self.within(key.name, |reader| reader.object(&mut *key.slot));
                }
            }
            Shape::List(list) => {
                is_list = true;
                let mut at = 0;
                list.each(&mut |slot| {
                    self.within(&format!("[{at}]"), |reader| reader.object(slot));
                    at += 1;
                });
            }
            Shape::Map(map) => map.each(&mut |name, slot| {
                self.within(&format!("[{name:?}]"), |reader| reader.object(slot));
            }),
            Shape::Value(_) | Shape::Values(_) => {}
        }
        let spoilt = self.faults.len() > before || self.faults.iter().any(|fault| self.has(&fault.path));
        if let Some(place) = self.places.get(&self.path).cloned().filter(|_| is_list || !spoilt) {
            for objection in slot.objections() {
                self.fault(place.clone(), objection);
            }
        }
    }

    /// What is wrong: in the order of the file, then what the environment and the flags say.
    pub(super) fn faults(mut self) -> Vec<Fault> {
        self.faults.sort_by(|one, other| one.place.cmp(&other.place));
        self.faults
    }

    /// Whether a path is that of the reader or leads further.
    fn has(&self, path: &str) -> bool {
        path.strip_prefix(&self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// The nearest of the known names, if one is near, else all of them.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    let nearest = known.iter().map(|known| (strsim::damerau_levenshtein(known, name), *known)).min();
    match nearest {
        Some((distance, known)) if distance * 2 <= known.len() => format!("did you mean {known}?"),
        _ => format!("known are {}", known.join(", ")),
    }
}

fn place(node: &MarkedYaml<'_>) -> Place {
    Place::Line(node.span.start.line())
}

fn is_null(node: &MarkedYaml<'_>) -> bool {
    matches!(node.data, YamlData::Value(Scalar::Null))
}

/// A scalar as text: `8443` and `"8443"` are the same here.
fn scalar(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
        YamlData::Value(Scalar::Boolean(flag)) => Some(flag.to_string()),
        YamlData::Value(Scalar::FloatingPoint(number)) => Some(number.to_string()),
        _ => None,
    }
}

fn shown(node: &MarkedYaml<'_>) -> String {
    match &node.data {
        YamlData::Sequence(_) => "a list".into(),
        YamlData::Mapping(_) => "a section".into(),
        _ if is_null(node) => "nothing".into(),
        _ => scalar(node).map_or("something else".into(), |text| quoted(&text)),
    }
}
