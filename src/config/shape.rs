//! Parts of a configuration: sections, values, and entries of one kind. Each is described once, with its keys or texts;
//! reading, JSON schema, names of variables and printing follow from that.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value as Json, json};

/// Part of the configuration that can be filled and printed.
pub(super) trait Slot {
    fn shape(&mut self) -> Shape<'_>;
}

/// Description of a slot: the whole configuration, a key of a section, or an entry.
pub(super) struct Shape<'a> {
    /// Name of a key, or the index or the quoted name of an entry in brackets; empty for the whole configuration.
    pub(super) name: Cow<'static, str>,
    /// Meaning of a key, in one line: in the schema, and in docs/configuration.md.
    pub(super) doc: &'static str,
    /// True if a change of the key takes effect only at the next start.
    pub(super) at_start: bool,
    pub(super) content: Content<'a>,
    /// Faults of the slot as a whole, although each of its parts is right.
    pub(super) faults: Vec<String>,
    /// Warnings about valid values that are probably not what the user meant.
    pub(super) warnings: Vec<String>,
}

pub(super) enum Content<'a> {
    Section(Vec<Shape<'a>>),
    Value(Value<'a>),
    /// Entries to which the user gives names by these rules, or of a list.
    Entries(Option<Names>, &'a mut dyn Entries),
}

/// Returns a key of a slot, or of a shape if the slot's type alone does not determine the shape.
pub(super) fn key<'a>(name: &'static str, shape: impl Into<Shape<'a>>) -> Shape<'a> {
    shape.into().named(name)
}

/// Returns a section without a type of its own: [`Shape::of`] or [`Shape::fixed`] gives the keys.
pub(super) fn section<'a>(name: &'static str, doc: &'static str) -> Shape<'a> {
    key(name, Shape::section(Vec::new())).means(doc)
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
        match found.and_then(self.hint) {
            Some(hint) => format!("{}; {hint}", self.expected),
            None => self.expected.clone(),
        }
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
        if !self.domain.names_file {
            return Vec::new();
        }
        let mut named = texts(&self.written);
        named.retain(|text| !text.is_empty());
        named.into_iter().map(PathBuf::from).collect()
    }
}

/// Returns the texts of a written value, in the form of a file or a variable.
fn texts(written: &Json) -> Vec<String> {
    let text = |value: &Json| match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
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
        Self {
            name: "".into(),
            doc: "",
            at_start: false,
            content,
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl<'a, S: Slot> From<&'a mut S> for Shape<'a> {
    fn from(slot: &'a mut S) -> Self {
        slot.shape()
    }
}

impl<'a> Shape<'a> {
    pub(super) fn section(keys: Vec<Self>) -> Self {
        Content::Section(keys).into()
    }

    pub(super) fn list(entries: &'a mut dyn Entries) -> Self {
        Content::Entries(None, entries).into()
    }

    fn named(self, name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Names an item of a list.
    pub(super) fn item(self, at: usize) -> Self {
        self.named(format!("[{at}]"))
    }

    pub(super) fn of(self, keys: Vec<Self>) -> Self {
        Self {
            content: Content::Section(keys),
            ..self
        }
    }

    /// Gives a section its keys, whose changes take effect only at the next start.
    pub(super) fn fixed(self, keys: Vec<Self>) -> Self {
        self.of(keys.into_iter().map(Self::at_start).collect())
    }

    pub(super) fn means(self, doc: &'static str) -> Self {
        Self { doc, ..self }
    }

    pub(super) fn at_start(self) -> Self {
        Self {
            at_start: true,
            ..self
        }
    }

    /// Adds the faults whose condition holds.
    pub(super) fn faulty<T: Into<String>>(
        mut self,
        all: impl IntoIterator<Item = (bool, T)>,
    ) -> Self {
        self.faults.extend(holding(all));
        self
    }

    pub(super) fn doubtful<T: Into<String>>(
        mut self,
        all: impl IntoIterator<Item = (bool, T)>,
    ) -> Self {
        self.warnings.extend(holding(all));
        self
    }

    /// Visits all below this shape, then the shape, each with its path.
    pub(super) fn walk(mut self, above: &str, visit: &mut dyn FnMut(&str, &mut Shape<'_>)) {
        let path = join(above, &self.name);
        match &mut self.content {
            Content::Value(_) => {}
            Content::Section(keys) => keys.drain(..).for_each(|key| key.walk(&path, visit)),
            Content::Entries(_, entries) => entries.each(&mut |entry| entry.walk(&path, visit)),
        }
        visit(&path, &mut self);
    }

    /// Visits all values, those of entries included: the path, and whether a change takes effect only at the next start.
    pub(super) fn values(self, visit: &mut dyn FnMut(&str, bool, &mut Value<'_>)) {
        self.walk("", &mut |path,
                            Shape {
                                at_start, content, ..
                            }| {
            if let Content::Value(value) = content {
                visit(path, *at_start, value);
            }
        });
    }
}

/// Returns the items whose key is that of an item before them.
pub(super) fn repeated<T, K: Ord>(items: &[T], key: impl Fn(&T) -> K) -> Vec<&T> {
    let mut known = BTreeSet::new();
    items
        .iter()
        .filter(|item| !known.insert(key(item)))
        .collect()
}

fn holding<T: Into<String>>(
    all: impl IntoIterator<Item = (bool, T)>,
) -> impl Iterator<Item = String> {
    all.into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, text)| text.into())
}

/// Returns the path of a key, of an index or name in brackets, or with an empty step the path itself.
pub(super) fn join(path: &str, step: &str) -> String {
    let is_key = !path.is_empty() && !step.is_empty() && !step.starts_with('[');
    format!("{path}{}{step}", if is_key { "." } else { "" })
}

pub(super) type Visit<'v> = &'v mut dyn FnMut(Shape<'_>);

/// Entries of one kind: a list of sections, or sections to which the user gives names.
pub(super) trait Entries {
    fn clear(&mut self) {}
    /// Adds a new entry that `fill` sets, or returns why there can be none.
    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String>;
    fn each(&mut self, visit: Visit<'_>);
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

    fn each(&mut self, visit: Visit<'_>) {
        for (at, item) in self.iter_mut().enumerate() {
            visit(item.shape().item(at));
        }
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
        Content::Entries(Some(V::NAMES), self).into()
    }
}

impl<V: Named> Entries for BTreeMap<String, V> {
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

    fn each(&mut self, visit: Visit<'_>) {
        for (name, value) in self {
            visit(value.shape().named(format!("[{name:?}]")));
        }
    }
}
