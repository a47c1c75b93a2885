//! From YAML, the environment and flags to values, with the place of everything that is wrong and of everything that
//! was said. Knows no key of the configuration.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::quote::quoted;
use super::shape::{Domain, Shape, Slot};
use tolerarch_text::yaml::{self, Copies, Data, Dialect, Key, Node};

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where, as a path of keys: `pools[0].platforms`. Empty for the whole document.
    pub path: String,
    /// Where it is said.
    pub place: Location,
    pub message: String,
}

/// Where something is said. In the order of their precedence: the last one holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// On this line of the file, from 1.
    Line(usize),
    /// In this variable of the environment.
    Variable(String),
    /// By this flag of the command line.
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
        match &self.place {
            Location::Variable(name) if *name == self.path => write!(f, "{name}: {}", self.message),
            place if self.path.is_empty() => write!(f, "the document ({place}): {}", self.message),
            place => write!(f, "{} ({place}): {}", self.path, self.message),
        }
    }
}

/// Where the reading is, what was found wrong, and where what was found right is said.
#[derive(Debug, Default)]
pub(super) struct Reader {
    path: String,
    faults: Vec<FieldError>,
    /// What is valid, and probably not what was meant.
    pub(super) warnings: Vec<FieldError>,
    /// The places of sections, lists and values, by their path.
    pub(super) places: BTreeMap<String, Location>,
}

impl Reader {
    /// Reads the one document of a file into `slot`, which holds the defaults.
    pub(super) fn document(&mut self, text: &str, slot: &mut dyn Slot) {
        match yaml::read(text, Dialect::Text, &mut Copies::default()).as_deref() {
            Err(error) => self.fault(Location::Line(error.line), error.message.clone()),
            Ok([_, second, ..]) => self.fault(place(second), "a second document: a configuration is one"),
            Ok([document]) if !is_null(document) => self.fill(document, slot),
            Ok(_) => {}
        }
    }

    /// Takes over what the node says.
    fn fill(&mut self, node: &Node, slot: &mut dyn Slot) {
        self.places.insert(self.path.clone(), place(node));
        match (slot.shape(), &node.data) {
            (Shape::Section(mut keys), Data::Map(members)) => {
                for (name, value) in self.distinct(members) {
                    let text = name.text.as_str();
                    match keys.iter_mut().find(|known| known.name == text) {
                        // A key without a value keeps its default.
                        Some(_) if is_null(value) => {}
                        Some(known) => self.within(known.name, |reader| reader.fill(value, &mut *known.slot)),
                        None => {
                            let hint = nearest(text, keys.iter().map(|known| known.name));
                            let message = format!("unknown key; {hint}");
                            self.within(&step(text), |reader| {
                                reader.fault(Location::Line(name.line), message);
                            });
                        }
                    }
                }
            }
            (Shape::Section(keys), _) => {
                let names: Vec<_> = keys.iter().map(|key| key.name).collect();
                self.wrong(node, &format!("a section with {}", names.join(", ")));
            }
            (Shape::Value(mut value), _) => {
                if !scalar(node).is_some_and(|text| value.read(text)) {
                    self.wrong(node, &expected(value.domain(), scalar(node)));
                }
            }
            (Shape::Values(mut values), Data::List(items)) => {
                values.clear();
                for (at, item) in items.iter().enumerate() {
                    if !scalar(item).is_some_and(|text| values.add(text)) {
                        let expected = expected(&values.domain(), scalar(item));
                        self.within(&format!("[{at}]"), |reader| reader.wrong(item, &expected));
                    }
                }
            }
            (Shape::List(list), Data::List(items)) => {
                list.clear();
                for (at, item) in items.iter().enumerate() {
                    self.within(&format!("[{at}]"), |reader| {
                        list.add(&mut |slot| reader.fill(item, slot));
                    });
                }
            }
            (Shape::Values(mut values), _)
                if values.word().is_some_and(|word| scalar(node) == Some(word)) =>
            {
                values.clear();
                values.add(scalar(node).unwrap_or_default());
            }
            (Shape::Values(values), _) => {
                let hint = scalar(node).and_then(|text| (values.domain().hint)(text));
                self.wrong(node, &hint.map_or_else(|| "a list".to_owned(), |hint| format!("a list; {hint}")));
            }
            (Shape::List(_), _) => self.wrong(node, "a list"),
            (Shape::Map(map), Data::Map(members)) => {
                for (name, value) in self.distinct(members) {
                    let text = name.text.as_str();
                    self.within(&format!("[{}]", quoted(&map.normal(text))), |reader| {
                        let added = map.add(text, &mut |slot| {
                            if !is_null(value) {
                                reader.fill(value, slot);
                            }
                        });
                        if let Err(message) = added {
                            reader.fault(Location::Line(name.line), message);
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

    /// The members without those whose key comes again; a key that has been there is a fault.
    fn distinct<'n>(&mut self, members: &'n [(Key, Node)]) -> Vec<&'n (Key, Node)> {
        let mut first = HashMap::new();
        let mut distinct = Vec::with_capacity(members.len());
        for member in members {
            let Key { line, text } = &member.0;
            match first.entry(text) {
                Entry::Vacant(entry) => {
                    entry.insert((line, distinct.len()));
                    distinct.push(member);
                }
                Entry::Occupied(entry) => {
                    let (first, at) = *entry.get();
                    distinct[at] = member;
                    let message = format!("it is there already, on line {first}; remove one of the two");
                    self.within(&step(text), |reader| reader.fault(Location::Line(*line), message));
                }
            }
        }
        distinct
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

    fn fault(&mut self, place: Location, message: impl Into<String>) {
        self.faults.push(FieldError { path: self.path.clone(), place, message: message.into() });
    }

    /// A fault that is not where the reading is.
    pub(super) fn fault_at(&mut self, path: &str, place: Location, message: String) {
        self.faults.push(FieldError { path: path.to_owned(), place, message });
    }

    /// Whether anything is wrong.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    fn wrong(&mut self, node: &Node, expected: &str) {
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
            for objection in slot.validate() {
                self.fault(place.clone(), objection);
            }
            for message in slot.warnings() {
                self.warnings.push(FieldError { path: self.path.clone(), place: place.clone(), message });
            }
        }
    }

    /// What is wrong: in the order of the file, then what the environment and the flags say.
    pub(super) fn faults(mut self) -> Vec<FieldError> {
        self.faults.sort_by(|one, other| one.place.cmp(&other.place));
        self.faults
    }

    /// Whether a path is that of the reader or leads further.
    fn has(&self, path: &str) -> bool {
        path.strip_prefix(&self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// What a value may be, and what this text was probably meant as.
pub(super) fn expected(domain: &Domain, found: Option<&str>) -> String {
    let hint =
        found.and_then(|text| (domain.hint)(text)).map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{}{hint}", domain.expected)
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

/// A key as a step of a path.
fn step(key: &str) -> String {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if plain { key.to_owned() } else { format!("[{}]", quoted(key)) }
}

fn place(node: &Node) -> Location {
    Location::Line(node.line)
}

fn is_null(node: &Node) -> bool {
    matches!(node.data, Data::Null)
}

/// A scalar as text: `8443` and `"8443"` are the same here.
fn scalar(node: &Node) -> Option<&str> {
    if let Data::Text(text) = &node.data { Some(text) } else { None }
}

fn shown(node: &Node) -> String {
    match &node.data {
        Data::List(_) => "a list".into(),
        Data::Map(_) => "a section".into(),
        _ => scalar(node).map_or("nothing".into(), quoted),
    }
}
