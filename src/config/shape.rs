//! What can stand in a configuration: sections, values, and entries of one kind. Each describes itself once, where its keys
//! or texts are; the reading, the JSON schema, the names of the environment and what is printed all come from that.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map as Object, Value as Json, json};

/// Something of the configuration that can be filled and shown.
pub(super) trait Slot {
    fn shape(&mut self) -> Shape<'_>;
}

/// What a slot consists of, and what is to be said of it as it stands.
pub(super) struct Shape<'a> {
    pub(super) content: Content<'a>,
    /// What is wrong with it as a whole, although each of its parts is right.
    pub(super) faults: Vec<String>,
    /// What is valid, and probably not what was meant.
    pub(super) warnings: Vec<String>,
}

pub(super) enum Content<'a> {
    Section(Vec<Key<'a>>),
    Value(Value<'a>),
    Entries(&'a mut dyn Entries),
}

pub(super) struct Key<'a> {
    pub(super) name: &'static str,
    /// What it means, in one line: in the schema, and in docs/configuration.md.
    pub(super) doc: &'static str,
    /// Whether a change takes effect only at the next start.
    pub(super) at_start: bool,
    pub(super) shape: Shape<'a>,
}

/// A key of a slot, or of a shape where the slot's own type does not say all.
pub(super) fn key<'a>(name: &'static str, shape: impl Into<Shape<'a>>) -> Key<'a> {
    Key { name, doc: "", at_start: false, shape: shape.into() }
}

/// A section of which it is said where its key stands what it consists of.
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

    /// The same, where no change takes effect before the next start.
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

/// What the texts of a value may be.
pub(super) struct Domain {
    /// In words that follow "expected".
    pub(super) expected: String,
    pub(super) schema: Json,
    /// What a text that it may not be was probably meant as.
    pub(super) hint: fn(&str) -> Option<String>,
    /// Whether each names a file or directory whose content belongs to the configuration.
    pub(super) names_file: bool,
    /// Whether there may be any number of them.
    pub(super) is_list: bool,
    /// The one that may also stand there alone, without a list.
    pub(super) word: Option<&'static str>,
}

impl Domain {
    /// What it may be, and what this text was probably meant as.
    pub(super) fn expected(&self, found: Option<&str>) -> String {
        let hint = found.and_then(|text| (self.hint)(text));
        format!("{}{}", self.expected, hint.map_or_else(String::new, |hint| format!("; {hint}")))
    }
}

/// Lets a value hold these texts, one or those of a list; gives the places of those that it may not be, as what is no text.
pub(super) type Take<'a> = Box<dyn FnMut(&[Option<&str>]) -> Vec<usize> + 'a>;

/// A scalar of the configuration, or a list of them.
pub(super) struct Value<'a> {
    pub(super) domain: Domain,
    /// What it holds, as it would stand in the file: a scalar, a list, or null where nothing would.
    pub(super) written: Json,
    pub(super) take: Take<'a>,
}

impl Value<'_> {
    /// Takes over what another one of its kind has written.
    pub(super) fn set(&mut self, written: &Json) {
        let texts = texts(written);
        (self.take)(&texts.iter().map(|text| Some(&**text)).collect::<Vec<_>>());
    }

    /// The files and directories that it names, and whose content belongs to the configuration.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let named =
            texts(&self.written).into_iter().filter(|text| self.domain.names_file && !text.is_empty());
        named.map(PathBuf::from).collect()
    }
}

/// What a value has written, as a file or a variable would say it.
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

    /// The same with these faults, of which those count that hold.
    pub(super) fn faulty<T: Into<String>>(mut self, all: impl IntoIterator<Item = (bool, T)>) -> Self {
        self.faults.extend(holding(all));
        self
    }

    /// The same with these warnings, of which those count that hold.
    pub(super) fn doubtful<T: Into<String>>(mut self, all: impl IntoIterator<Item = (bool, T)>) -> Self {
        self.warnings.extend(holding(all));
        self
    }

    /// What it holds, as the file would say it, without the entries to which the user gives names.
    pub(super) fn written(self) -> Json {
        match self.content {
            Content::Value(value) => value.written,
            Content::Section(keys) => {
                let members = keys.into_iter().map(|key| (key.name.to_owned(), key.shape.written()));
                members.filter(|(_, value)| !value.is_null()).collect::<Object<_, _>>().into()
            }
            Content::Entries(entries) if entries.names().is_some() => Json::Null,
            Content::Entries(entries) => {
                let mut items = Vec::new();
                entries.each(&mut |_, item| items.push(item.written()));
                items.into()
            }
        }
    }

    /// Shows this and all below it in the same way: with its path, and whether a change takes effect only at the next start.
    pub(super) fn walk(
        mut self,
        path: &str,
        at_start: bool,
        visit: &mut dyn FnMut(&str, bool, &mut Content<'_>),
    ) {
        visit(path, at_start, &mut self.content);
        match self.content {
            Content::Value(_) => {}
            Content::Section(keys) => {
                for key in keys {
                    key.shape.walk(&join(path, key.name), key.at_start, visit);
                }
            }
            Content::Entries(entries) => {
                entries.each(&mut |step, shape| shape.walk(&format!("{path}[{step}]"), at_start, visit));
            }
        }
    }

    /// Shows all values, those of entries included.
    pub(super) fn values(self, visit: &mut dyn FnMut(&str, bool, &mut Value<'_>)) {
        self.walk("", false, &mut |path, at_start, content| {
            if let Content::Value(value) = content {
                visit(path, at_start, value);
            }
        });
    }
}

fn holding<T: Into<String>>(all: impl IntoIterator<Item = (bool, T)>) -> impl Iterator<Item = String> {
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.into())
}

pub(super) fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

pub(super) type Visit<'v> = &'v mut dyn FnMut(Shape<'_>);

/// Entries of one kind: a list of sections, or what the user gives names.
pub(super) trait Entries {
    /// What their names are; none in a list.
    fn names(&self) -> Option<Names> {
        None
    }
    /// Shows a new entry, which is not among them.
    fn blank(&self, visit: Visit<'_>);
    fn clear(&mut self) {}
    /// Adds an entry as `fill` leaves it, or says why there can be none.
    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String>;
    /// Shows each, with what stands between the brackets of its path: its place in a list, else its name in quotes.
    fn each(&mut self, visit: &mut dyn FnMut(&str, Shape<'_>));
}

/// A list of sections that are as the file has them.
impl<T: Slot + Default> Entries for Vec<T> {
    fn blank(&self, visit: Visit<'_>) {
        visit(T::default().shape());
    }

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

/// Names that the user gives.
pub(super) struct Names {
    /// What has such a name, in one word.
    pub(super) what: &'static str,
    pub(super) example: &'static str,
    /// The name by which an entry is known that the user calls so, or what is wrong with it.
    pub(super) read: fn(&str) -> Result<String, String>,
}

/// What the user gives a name.
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

    fn blank(&self, visit: Visit<'_>) {
        visit(V::default().shape());
    }

    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String> {
        let mut value = V::default();
        fill(value.shape());
        // Docker Hub under two of its names is no contradiction, as long as they say the same.
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
