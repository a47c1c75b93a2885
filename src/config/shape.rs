//! Parts of a configuration: sections, values, and entries of one kind. Each is described once, with its keys or texts;
//! reading, JSON schema, names of variables and printing follow from that.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

/// Part of the configuration that can be filled and printed.
pub(super) trait Slot {
    fn shape(&mut self) -> Shape<'_>;
}

/// Content of a slot, with faults and warnings about its current value.
pub(super) struct Shape<'a> {
    pub(super) content: Content<'a>,
    /// Faults of the slot as a whole, although each of its parts is right.
    pub(super) faults: Vec<String>,
    /// Warnings about valid values that are probably not what the user meant.
    pub(super) warnings: Vec<String>,
}

pub(super) enum Content<'a> {
    Section(Vec<Key<'a>>),
    Value(Value<'a>),
    Entries(&'a mut dyn Entries),
}

pub(super) struct Key<'a> {
    pub(super) name: &'static str,
    /// Meaning of the key, in one line: in the schema, and in docs/configuration.md.
    pub(super) doc: &'static str,
    /// True if a change takes effect only at the next start.
    pub(super) at_start: bool,
    pub(super) shape: Shape<'a>,
}

/// Returns a key of a slot, or of a shape if the slot's type alone does not determine the shape.
pub(super) fn key<'a>(name: &'static str, shape: impl Into<Shape<'a>>) -> Key<'a> {
    Key { name, doc: "", at_start: false, shape: shape.into() }
}

/// Returns a section without a type of its own: [`Key::of`] or [`Key::fixed`] gives the keys.
pub(super) fn section<'a>(name: &'static str, doc: &'static str) -> Key<'a> {
    key(name, Shape::section(Vec::new())).means(doc)
}

pub(super) fn at_start(keys: Vec<Key<'_>>) -> Vec<Key<'_>> {
    keys.into_iter().map(Key::at_start).collect()
}

impl<'a> Key<'a> {
    pub(super) fn of(self, keys: Vec<Self>) -> Self {
        Self { shape: Shape::section(keys), ..self }
    }

    /// Gives a section its keys, whose changes take effect only at the next start.
    pub(super) fn fixed(self, keys: Vec<Self>) -> Self {
        self.of(at_start(keys))
    }

    pub(super) fn means(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    pub(super) fn at_start(self) -> Self {
        Self { at_start: true, ..self }
    }
}

/// Texts that a value accepts.
pub(super) struct Domain {
    /// Words that follow "expected" in a fault.
    pub(super) expected: String,
    pub(super) schema: Json,
    /// Function that hints at the probable meaning of a refused text.
    pub(super) hint: fn(&str) -> Option<String>,
    /// True if each text names a file or directory whose content belongs to the configuration.
    pub(super) names_file: bool,
    /// True for a list of any length.
    pub(super) is_list: bool,
    /// Text that is also accepted alone, without a list.
    pub(super) word: Option<&'static str>,
}

impl Domain {
    /// Returns the accepted texts in words, and the probable meaning of this text.
    pub(super) fn expected(&self, found: Option<&str>) -> String {
        let hint = found.and_then(|text| (self.hint)(text));
        format!("{}{}", self.expected, hint.map_or_else(String::new, |hint| format!("; {hint}")))
    }
}

/// Sets a value to these texts, one or a list; returns the indices of refused texts, `None` among them.
pub(super) type Take<'a> = Box<dyn FnMut(&[Option<&str>]) -> Vec<usize> + 'a>;

/// Scalar of the configuration, or a list of scalars.
pub(super) struct Value<'a> {
    pub(super) domain: Domain,
    /// Current value in the form of the file: a scalar, a list, or null for nothing.
    pub(super) written: Json,
    pub(super) take: Take<'a>,
}

impl Value<'_> {
    /// Sets the value to the written form of another value of its kind.
    pub(super) fn set(&mut self, written: &Json) {
        let texts = texts(written);
        (self.take)(&texts.iter().map(|text| Some(&**text)).collect::<Vec<_>>());
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        let named =
            texts(&self.written).into_iter().filter(|text| self.domain.names_file && !text.is_empty());
        named.map(PathBuf::from).collect()
    }
}

/// Returns the texts of a written value, in the form of a file or a variable.
fn texts(written: &Json) -> Vec<String> {
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match written {
        Json::Null => Vec::new(),
        Json::Array(items) => items.iter().map(text).collect(),
        scalar => vec![text(scalar)],
    }
}

pub(super) fn is_empty(written: &Json) -> bool {
    written.is_null() || *written == "" || *written == json!([])
}

impl<'a> From<Content<'a>> for Shape<'a> {
    fn from(content: Content<'a>) -> Self {
        Self { content, faults: Vec::new(), warnings: Vec::new() }
    }
}

impl<'a, S: Slot> From<&'a mut S> for Shape<'a> {
    fn from(slot: &'a mut S) -> Self {
        slot.shape()
    }
}

impl<'a> Shape<'a> {
    pub(super) fn section(keys: Vec<Key<'a>>) -> Self {
        Content::Section(keys).into()
    }

    pub(super) fn entries(entries: &'a mut dyn Entries) -> Self {
        Content::Entries(entries).into()
    }

    /// Adds the faults whose condition holds.
    pub(super) fn faulty<T: Into<String>>(mut self, all: impl IntoIterator<Item = (bool, T)>) -> Self {
        self.faults.extend(holding(all));
        self
    }

    pub(super) fn doubtful<T: Into<String>>(mut self, all: impl IntoIterator<Item = (bool, T)>) -> Self {
        self.warnings.extend(holding(all));
        self
    }

    /// Visits all below this shape, then the shape: the path, and whether a change takes effect only at the next start.
    pub(super) fn walk(
        mut self,
        path: &str,
        at_start: bool,
        visit: &mut dyn FnMut(&str, bool, &mut Shape<'_>),
    ) {
        match &mut self.content {
            Content::Value(_) => {}
            Content::Section(keys) => {
                for key in keys.drain(..) {
                    key.shape.walk(&join(path, key.name), key.at_start, visit);
                }
            }
            Content::Entries(entries) => {
                entries
                    .each(&mut |step, shape| shape.walk(&join(path, &format!("[{step}]")), at_start, visit));
            }
        }
        visit(path, at_start, &mut self);
    }

    /// Visits all values, those of entries included.
    pub(super) fn values(self, visit: &mut dyn FnMut(&str, bool, &mut Value<'_>)) {
        self.walk("", false, &mut |path, at_start, shape| {
            if let Content::Value(value) = &mut shape.content {
                visit(path, at_start, value);
            }
        });
    }
}

fn holding<T: Into<String>>(all: impl IntoIterator<Item = (bool, T)>) -> impl Iterator<Item = String> {
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.into())
}

/// Returns the path of a key, of an index or name in brackets, or with an empty step the path itself.
pub(super) fn join(path: &str, step: &str) -> String {
    let is_key = !path.is_empty() && !step.is_empty() && !step.starts_with('[');
    format!("{path}{}{step}", if is_key { "." } else { "" })
}

pub(super) type Visit<'v> = &'v mut dyn FnMut(Shape<'_>);

/// Entries of one kind: a list of sections, or sections to which the user gives names.
pub(super) trait Entries {
    /// Returns the rules for names; `None` for a list.
    fn names(&self) -> Option<Names> {
        None
    }
    fn clear(&mut self) {}
    /// Adds a new entry that `fill` sets, or returns why there can be none.
    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String>;
    /// Visits each entry, with the text in the brackets of its path: the index in a list, else the name in quotes.
    fn each(&mut self, visit: &mut dyn FnMut(&str, Shape<'_>));
}

/// List of sections that are as the file has them.
impl<T: Slot + Default> Entries for Vec<T> {
    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, _: String, fill: Visit<'_>) -> Result<(), String> {
        let mut item = T::default();
        fill(item.shape());
        self.push(item);
        Ok(())
    }

    fn each(&mut self, visit: &mut dyn FnMut(&str, Shape<'_>)) {
        self.iter_mut().enumerate().for_each(|(at, item)| visit(&at.to_string(), item.shape()));
    }
}

/// Rules for names that the user gives.
pub(super) struct Names {
    /// Noun for an entry with such a name, in one word.
    pub(super) what: &'static str,
    pub(super) example: &'static str,
    /// Fault of a name that `read` refuses.
    pub(super) fault: &'static str,
    /// Returns the canonical form of a name.
    pub(super) read: fn(&str) -> Option<String>,
}

/// Entry to which the user gives a name.
pub(super) trait Named: Slot + Default + PartialEq {
    const NAMES: Names;
}

impl<V: Named> Slot for BTreeMap<String, V> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::entries(self)
    }
}

impl<V: Named> Entries for BTreeMap<String, V> {
    fn names(&self) -> Option<Names> {
        Some(V::NAMES)
    }

    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String> {
        let mut value = V::default();
        fill(value.shape());
        // Docker Hub under two of its names is no contradiction, if both have the same settings.
        if self.get(&name).is_some_and(|known| *known != value) {
            return Err(format!(
                "{name} is there already under another name, with other settings; keep one of the two"
            ));
        }
        self.insert(name, value);
        Ok(())
    }

    fn each(&mut self, visit: &mut dyn FnMut(&str, Shape<'_>)) {
        self.iter_mut().for_each(|(name, value)| visit(&format!("{name:?}"), value.shape()));
    }
}
