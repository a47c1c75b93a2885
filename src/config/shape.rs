//! What can stand in a configuration: sections, lists and values. Each describes itself once, where its keys or texts
//! are; the reading, the JSON schema, the names of the environment and what is printed all come from that.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value as Json;

/// Something of the configuration that can be filled and shown.
pub(super) trait Slot {
    /// What it consists of.
    fn shape(&mut self) -> Shape<'_>;

    /// What is wrong with it as a whole, although each of its parts is right.
    fn validate(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is valid, and probably not what was meant.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a slot consists of.
pub(super) enum Shape<'a> {
    /// Keys, and no others.
    Section(Vec<ConfigKey<'a>>),
    Value(Box<dyn Value + 'a>),
    Values(Box<dyn Values + 'a>),
    /// A list of sections.
    List(&'a mut dyn List),
    /// A section whose keys are names that the user chooses.
    Map(&'a mut dyn Map),
}

/// One key of a section.
pub(super) struct ConfigKey<'a> {
    pub(super) name: &'static str,
    /// What it means, in one line: in the schema, and in docs/configuration.md.
    pub(super) doc: &'static str,
    /// Whether a change takes effect only at the next start.
    pub(super) at_start: bool,
    pub(super) slot: Box<dyn Slot + 'a>,
}

/// A key whose changes take effect while the program runs.
pub(super) fn key<'a>(name: &'static str, doc: &'static str, slot: &'a mut (dyn Slot + 'a)) -> ConfigKey<'a> {
    key_as(name, doc, Borrowed(slot))
}

/// A key that shows something as the slot it is not by itself: a [`Section`], a choice, a checked text.
pub(super) fn key_as<'a>(name: &'static str, doc: &'static str, slot: impl Slot + 'a) -> ConfigKey<'a> {
    ConfigKey { name, doc, at_start: false, slot: Box::new(slot) }
}

impl ConfigKey<'_> {
    /// Its path below that of the section.
    pub(super) fn path(&self, section: &str) -> String {
        if section.is_empty() { self.name.to_owned() } else { format!("{section}.{}", self.name) }
    }

    /// A key whose changes take effect only at the next start.
    pub(super) fn at_start(mut self) -> Self {
        self.at_start = true;
        self
    }
}

/// What the texts of a kind may be.
#[derive(Clone)]
pub(super) struct Domain {
    /// In words that follow "expected".
    pub(super) expected: String,
    pub(super) schema: Json,
    /// What a text that it may not be was probably meant as.
    pub(super) hint: fn(&str) -> Option<String>,
}

pub(super) trait Value {
    fn domain(&self) -> &Domain;
    /// Takes over a text; `false` if it is none of those that it may be.
    fn read(&mut self, text: &str) -> bool;
    /// What it holds, as it would stand in the file: a scalar, or null where nothing would.
    fn written(&self) -> Json;
    /// The file or directory that it names and whose content belongs to the configuration.
    fn file(&self) -> Option<PathBuf>;
}

pub(super) trait Values {
    /// Of its items.
    fn domain(&self) -> Domain;
    fn clear(&mut self);
    /// Adds an item; `false` if the text is none.
    fn add(&mut self, text: &str) -> bool;
    fn written(&self) -> Vec<Json>;
    /// An item that may also stand there alone, without a list.
    fn word(&self) -> Option<&'static str> {
        None
    }
    /// See [`Value::file`].
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// What is done with the slot of an item.
pub(super) type Visit<'v> = &'v mut dyn FnMut(&mut dyn Slot);

/// A list of sections.
pub(super) trait List {
    /// Shows a new item, which is not in the list.
    fn blank(&self, visit: Visit<'_>);
    fn clear(&mut self);
    /// Adds an item as `fill` leaves it.
    fn add(&mut self, fill: Visit<'_>);
    fn each(&mut self, visit: Visit<'_>);
}

/// Sections by names that the user chooses.
pub(super) trait Map {
    /// What such a name is, in words and by an example.
    fn key(&self) -> (&'static str, &'static str);
    /// The name by which the map knows what the user calls `name`.
    fn normal(&self, name: &str) -> String;
    /// Shows a new entry, which is not in the map.
    fn blank(&self, visit: Visit<'_>);
    /// Adds an entry as `fill` leaves it.
    ///
    /// # Errors
    /// What is wrong with the name.
    fn add(&mut self, name: &str, fill: Visit<'_>) -> Result<(), String>;
    fn each(&mut self, visit: &mut dyn FnMut(&str, &mut dyn Slot));
}

struct Borrowed<'a>(&'a mut (dyn Slot + 'a));

impl Slot for Borrowed<'_> {
    fn shape(&mut self) -> Shape<'_> {
        self.0.shape()
    }

    fn validate(&self) -> Vec<String> {
        self.0.validate()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

/// A list of sections that are as the file has them.
impl<T: Slot + Default> List for Vec<T> {
    fn blank(&self, visit: Visit<'_>) {
        visit(&mut T::default());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, fill: Visit<'_>) {
        let mut item = T::default();
        fill(&mut item);
        self.push(item);
    }

    fn each(&mut self, visit: Visit<'_>) {
        for item in self {
            visit(item);
        }
    }
}

/// A slot for a list of sections with which, as a whole, nothing can be wrong.
pub(super) struct Sections<'a, T>(pub(super) &'a mut Vec<T>);

impl<T: Slot + Default> Slot for Sections<'_, T> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self.0)
    }
}

/// What the user gives a name.
pub(super) trait Named: Default + PartialEq {
    /// What such a name is, in words and by an example.
    const KEY: (&'static str, &'static str);

    /// The name by which it is known.
    fn normal(name: &str) -> String {
        name.to_owned()
    }

    /// # Errors
    /// What is wrong with the name.
    fn check(name: &str) -> Result<(), String>;

    fn show(&mut self, visit: Visit<'_>);
}

impl<V: Named> Slot for BTreeMap<String, V> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Map(self)
    }
}

impl<V: Named> Map for BTreeMap<String, V> {
    fn key(&self) -> (&'static str, &'static str) {
        V::KEY
    }

    fn normal(&self, name: &str) -> String {
        V::normal(name)
    }

    fn blank(&self, visit: Visit<'_>) {
        V::default().show(visit);
    }

    fn add(&mut self, name: &str, fill: Visit<'_>) -> Result<(), String> {
        V::check(name)?;
        let mut value = V::default();
        value.show(fill);
        let name = V::normal(name);
        // Docker Hub under two of its names is no contradiction, as long as they say the same.
        if self.get(&name).is_some_and(|known| *known != value) {
            return Err(format!(
                "{name} is there already under another name, with other settings; keep one of the two"
            ));
        }
        self.insert(name, value);
        Ok(())
    }

    fn each(&mut self, visit: &mut dyn FnMut(&str, &mut dyn Slot)) {
        for (name, value) in self {
            value.show(&mut |slot| visit(name, slot));
        }
    }
}

/// The texts that hold, for [`Slot::validate`] and [`Slot::warnings`].
pub(super) fn holding<const N: usize>(all: [(bool, &str); N]) -> Vec<String> {
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_owned()).collect()
}

/// A section that is no type of its own.
pub(super) struct Section<'a>(pub(super) Vec<ConfigKey<'a>>);

impl Slot for Section<'_> {
    fn shape(&mut self) -> Shape<'_> {
        let keys = self.0.iter_mut().map(|ConfigKey { name, doc, at_start, slot }| ConfigKey {
            name,
            doc,
            at_start: *at_start,
            slot: Box::new(Borrowed(&mut **slot)),
        });
        Shape::Section(keys.collect())
    }
}
