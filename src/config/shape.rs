//! What can stand in a configuration: sections, values, and entries of one kind. Each describes itself once, where its keys
//! or texts are; the reading, the JSON schema, the names of the environment and what is printed all come from that.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde_json::Value as Json;

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
    Section(Vec<ConfigKey<'a>>),
    Value(Box<dyn Value + 'a>),
    Entries(&'a mut dyn Entries),
}

impl<'a> Shape<'a> {
    pub(super) fn section(keys: Vec<ConfigKey<'a>>) -> Self {
        Content::Section(keys).into()
    }

    pub(super) fn value(value: impl Value + 'a) -> Self {
        Content::Value(Box::new(value)).into()
    }

    pub(super) fn entries(entries: &'a mut dyn Entries) -> Self {
        Content::Entries(entries).into()
    }

    pub(super) fn faulty(self, faults: Vec<String>) -> Self {
        Self { faults, ..self }
    }
}

impl<'a> From<Content<'a>> for Shape<'a> {
    fn from(content: Content<'a>) -> Self {
        Self { content, faults: Vec::new(), warnings: Vec::new() }
    }
}

pub(super) struct ConfigKey<'a> {
    pub(super) name: &'static str,
    /// What it means, in one line: in the schema, and in docs/configuration.md.
    pub(super) doc: &'static str,
    /// Whether a change takes effect only at the next start.
    pub(super) at_start: bool,
    pub(super) shape: Shape<'a>,
}

pub(super) struct Unexplained<'a>(&'static str, Shape<'a>);

/// A key whose changes take effect while the program runs.
pub(super) fn key<'a>(name: &'static str, slot: &'a mut impl Slot) -> Unexplained<'a> {
    key_as(name, slot.shape())
}

/// A key that shows something as what it is not by itself: a section, a choice, a checked text.
pub(super) fn key_as<'a>(name: &'static str, shape: Shape<'a>) -> Unexplained<'a> {
    Unexplained(name, shape)
}

impl<'a> Unexplained<'a> {
    pub(super) fn means(self, doc: &'static str) -> ConfigKey<'a> {
        ConfigKey { name: self.0, doc, at_start: false, shape: self.1 }
    }
}

pub(super) fn at_start(keys: Vec<ConfigKey<'_>>) -> Vec<ConfigKey<'_>> {
    keys.into_iter().map(ConfigKey::at_start).collect()
}

impl ConfigKey<'_> {
    pub(super) fn at_start(mut self) -> Self {
        self.at_start = true;
        self
    }
}

/// What the texts of a value may be.
#[derive(Clone)]
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

pub(super) trait Value {
    fn domain(&self) -> Domain;
    fn clear(&mut self) {}
    /// Takes over a text, in a list as a further item; `false` if it is none of those that it may be.
    fn add(&mut self, text: &str) -> bool;
    /// What it holds, as it would stand in the file: a scalar, a list, or null where nothing would.
    fn written(&self) -> Json;

    /// Takes over what another one of its kind has written.
    fn set(&mut self, written: &Json) {
        self.clear();
        for text in texts(written) {
            self.add(&text);
        }
    }

    /// The files and directories that it names, and whose content belongs to the configuration.
    fn files(&self) -> Vec<PathBuf> {
        let named = texts(&self.written()).into_iter().filter(|text| !text.is_empty());
        if self.domain().names_file { named.map(PathBuf::from).collect() } else { Vec::new() }
    }
}

/// What a value has written, as a file or a variable would say it.
pub(super) fn texts(written: &Json) -> Vec<String> {
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match written {
        Json::Null => Vec::new(),
        Json::Array(items) => items.iter().map(text).collect(),
        scalar => vec![text(scalar)],
    }
}

pub(super) type Visit<'v> = &'v mut dyn FnMut(Shape<'_>);

/// Entries of one kind: a list of sections, or what the user gives names.
pub(super) trait Entries {
    /// What such a name is, in words and by an example; none in a list.
    fn key(&self) -> Option<(&'static str, &'static str)> {
        None
    }
    /// The name by which the entry is known that the user calls `name`.
    fn normal(&self, name: &str) -> String {
        name.to_owned()
    }
    /// Shows a new entry, which is not among them.
    fn blank(&self, visit: Visit<'_>);
    fn clear(&mut self) {}
    /// Adds an entry as `fill` leaves it.
    fn add(&mut self, name: &str, fill: Visit<'_>) -> Result<(), String>;
    fn each(&mut self, visit: VisitEach<'_>);
}

pub(super) type VisitEach<'v> = &'v mut dyn FnMut(Step<'_>, Shape<'_>);

/// The step of a path that leads to an entry.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    At(usize),
    Named(&'a str),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(place) => write!(f, "[{place}]"),
            Self::Named(name) => write!(f, "[{name:?}]"),
        }
    }
}

/// Shows what is no section, with its path and whether a change takes effect only at the next start.
pub(super) fn leaves(
    shape: Shape<'_>,
    path: &str,
    at_start: bool,
    visit: &mut dyn FnMut(&str, bool, Content<'_>),
) {
    match shape.content {
        Content::Section(keys) => {
            for key in keys {
                leaves(key.shape, &join(path, key.name), key.at_start, visit);
            }
        }
        content => visit(path, at_start, content),
    }
}

pub(super) fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// Shows every value in the same way, those of entries included.
pub(super) fn values(shape: Shape<'_>, path: &str, visit: &mut dyn FnMut(&str, bool, &mut (dyn Value + '_))) {
    leaves(shape, path, false, &mut |path, at_start, content| match content {
        Content::Section(_) => {}
        Content::Value(mut value) => visit(path, at_start, &mut *value),
        Content::Entries(entries) => {
            entries.each(&mut |step, shape| values(shape, &format!("{path}{step}"), visit));
        }
    });
}

/// A list of sections that are as the file has them.
impl<T: Slot + Default> Entries for Vec<T> {
    fn blank(&self, visit: Visit<'_>) {
        visit(T::default().shape());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, _: &str, fill: Visit<'_>) -> Result<(), String> {
        let mut item = T::default();
        fill(item.shape());
        self.push(item);
        Ok(())
    }

    fn each(&mut self, visit: VisitEach<'_>) {
        self.iter_mut().enumerate().for_each(|(at, item)| visit(Step::At(at), item.shape()));
    }
}

/// What the user gives a name.
pub(super) trait Named: Slot + Default + PartialEq {
    /// What such a name is, in words and by an example.
    const KEY: (&'static str, &'static str);

    fn normal(name: &str) -> String {
        name.to_owned()
    }

    /// # Errors
    /// What is wrong with the name.
    fn check(name: &str) -> Result<(), String>;
}

impl<V: Named> Slot for BTreeMap<String, V> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::entries(self)
    }
}

impl<V: Named> Entries for BTreeMap<String, V> {
    fn key(&self) -> Option<(&'static str, &'static str)> {
        Some(V::KEY)
    }

    fn normal(&self, name: &str) -> String {
        V::normal(name)
    }

    fn blank(&self, visit: Visit<'_>) {
        visit(V::default().shape());
    }

    fn add(&mut self, name: &str, fill: Visit<'_>) -> Result<(), String> {
        V::check(name)?;
        let mut value = V::default();
        fill(value.shape());
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

    fn each(&mut self, visit: VisitEach<'_>) {
        self.iter_mut().for_each(|(name, value)| visit(Step::Named(name), value.shape()));
    }
}

pub(super) fn holding<const N: usize>(all: [(bool, &str); N]) -> Vec<String> {
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_owned()).collect()
}
