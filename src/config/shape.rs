//! What can stand in a configuration: sections, lists and values. Each describes itself once, where its keys or texts
//! are; the reading, the JSON schema, the names of the environment and what is printed all come from that.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

/// Something of the configuration that can be filled and shown.
pub(super) trait Slot {
    /// What it consists of.
    fn shape(&mut self) -> Shape<'_>;

    /// What is wrong with it as a whole, although each of its parts is right.
    fn objections(&self) -> Vec<String> {
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
    /// One scalar.
    Value(&'a mut dyn Value),
    /// A list of scalars.
    Values(&'a mut dyn Values),
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
    /// A key whose changes take effect only at the next start.
    pub(super) fn at_start(mut self) -> Self {
        self.at_start = true;
        self
    }
}

/// One scalar.
pub(super) trait Value {
    /// What it may be, in words that follow "expected".
    fn expected(&self) -> Cow<'static, str>;
    /// What a text that it may not be was probably meant as.
    fn hint(&self, _text: &str) -> Option<String> {
        None
    }
    /// What it may be, as a JSON schema.
    fn schema(&self) -> Json;
    /// Takes over a text; `false` if it is none of those that it may be.
    fn read(&mut self, text: &str) -> bool;
    /// What it holds, as it would stand in the file: a scalar, or null where nothing would.
    fn written(&self) -> Json;
    /// The file or directory that it names and whose content belongs to the configuration.
    fn file(&self) -> Option<PathBuf> {
        None
    }
}

/// A list of scalars.
pub(super) trait Values {
    /// A new item.
    fn blank(&self) -> Box<dyn Value>;
    /// Makes it empty.
    fn clear(&mut self);
    /// Adds an item; `false` if the text is none.
    fn add(&mut self, text: &str) -> bool;
    /// All items.
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
    /// Makes it empty.
    fn clear(&mut self);
    /// Adds an item as `fill` leaves it.
    fn add(&mut self, fill: Visit<'_>);
    /// Shows each item.
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
    /// Shows each entry with its name.
    fn each(&mut self, visit: &mut dyn FnMut(&str, &mut dyn Slot));
}

impl<T: Value> Slot for T {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Value(self)
    }
}

/// A slot that is borrowed.
struct Borrowed<'a>(&'a mut (dyn Slot + 'a));

impl Slot for Borrowed<'_> {
    fn shape(&mut self) -> Shape<'_> {
        self.0.shape()
    }

    fn objections(&self) -> Vec<String> {
        self.0.objections()
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

impl<T: Value + Default + 'static> Slot for Vec<T> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Values(self)
    }
}

impl<T: Value + Default + 'static> Values for Vec<T> {
    fn blank(&self) -> Box<dyn Value> {
        Box::new(T::default())
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, text: &str) -> bool {
        let mut item = T::default();
        let read = item.read(text);
        if read {
            self.push(item);
        }
        read
    }

    fn written(&self) -> Vec<Json> {
        self.iter().map(Value::written).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.iter().filter_map(Value::file).collect()
    }
}

/// A list of texts of which each is checked, and written down, as a `V`; each once.
struct Texts<'a, V>(&'a mut Vec<String>, PhantomData<V>);

/// A slot for texts that are checked as a `V`.
pub(super) fn texts<V: Value + Default + Into<String> + 'static>(texts: &mut Vec<String>) -> impl Slot {
    Texts(texts, PhantomData::<V>)
}

impl<V: Value + Default + Into<String> + 'static> Slot for Texts<'_, V> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Values(self)
    }
}

impl<V: Value + Default + Into<String> + 'static> Values for Texts<'_, V> {
    fn blank(&self) -> Box<dyn Value> {
        Box::new(V::default())
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn add(&mut self, text: &str) -> bool {
        let mut item = V::default();
        let read = item.read(text);
        let text = item.into();
        if read && !self.0.contains(&text) {
            self.0.push(text);
        }
        read
    }

    fn written(&self) -> Vec<Json> {
        self.0.iter().map(|text| json!(text)).collect()
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
