//! Descriptions of the parts of a configuration: sections, values, and entries of one kind. Each part is described once,
//! with its keys or accepted texts. Reading, JSON schema, names of variables and printing follow from the description.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value as Json, json};

/// Part of the configuration that has a description, by which it is read and printed.
pub(super) trait Describe {
    fn describe(&mut self) -> Description<'_>;
}

/// Description of a part, with access to its values: the whole configuration, a key of a section, or an entry.
pub(super) struct Description<'a> {
    /// Name of a key, or the index or the quoted name of an entry in brackets; empty for the whole configuration.
    pub(super) name: Cow<'static, str>,
    /// Meaning of a key in one line, for the schema and docs/configuration.md.
    pub(super) doc: &'static str,
    /// True if a change of the key takes effect only at the next start.
    pub(super) at_start: bool,
    pub(super) content: Content<'a>,
    /// Faults of the part as a whole, such as a contradiction between its keys.
    pub(super) faults: Vec<String>,
    /// Warnings about valid values that are probably not what the user meant.
    pub(super) warnings: Vec<String>,
}

pub(super) enum Content<'a> {
    Section(Vec<Description<'a>>),
    Value(Value<'a>),
    /// Entries that the user names by these rules, or entries of a list.
    Entries(Option<NameRules>, &'a mut dyn Entries),
}

/// Returns the description of a key. `description` may be a part that has one by its type.
pub(super) fn key<'a>(
    name: &'static str,
    description: impl Into<Description<'a>>,
) -> Description<'a> {
    description.into().named(name)
}

/// Returns a section for which there is no type. [`Description::with_keys`] or [`Description::with_keys_at_start`] adds the
/// keys.
pub(super) fn section<'a>(name: &'static str, doc: &'static str) -> Description<'a> {
    key(name, Description::section(Vec::new())).means(doc)
}

/// Texts that a value accepts.
pub(super) struct AcceptedTexts {
    /// Words that follow "expected" in a fault.
    pub(super) expected: String,
    pub(super) schema: Json,
    /// Returns a hint at the probable meaning of a refused text.
    pub(super) hint: fn(&str) -> Option<String>,
    /// True if each text names a file or directory whose content belongs to the configuration.
    pub(super) names_file: bool,
    /// True for a list of any length.
    pub(super) is_list: bool,
    /// Text that is also accepted in place of a list.
    pub(super) word: Option<&'static str>,
}

impl AcceptedTexts {
    /// Describes the accepted texts, and the probable meaning of the refused one.
    pub(super) fn expected(&self, refused: Option<&str>) -> String {
        match refused.and_then(self.hint) {
            Some(hint) => format!("{}; {hint}", self.expected),
            None => self.expected.clone(),
        }
    }
}

/// Sets a value to one text or a list of texts. Returns the indices of refused texts. `None` is always refused.
pub(super) type SetTexts<'a> = Box<dyn FnMut(&[Option<&str>]) -> Vec<usize> + 'a>;

/// Scalar of the configuration, or a list of scalars.
pub(super) struct Value<'a> {
    pub(super) accepted: AcceptedTexts,
    /// Current value in the form of the file: a scalar, a list, or null if it is not written.
    pub(super) written: Json,
    pub(super) set_texts: SetTexts<'a>,
}

impl Value<'_> {
    /// Sets the value to the written form of another value of its kind.
    pub(super) fn set(&mut self, written: &Json) {
        let texts = texts(written);
        (self.set_texts)(&texts.iter().map(|text| Some(&**text)).collect::<Vec<_>>());
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        if !self.accepted.names_file {
            return Vec::new();
        }
        let mut named = texts(&self.written);
        named.retain(|text| !text.is_empty());
        named.into_iter().map(PathBuf::from).collect()
    }
}

/// Returns the texts of a written value, as in a file or a variable.
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

impl<'a> From<Content<'a>> for Description<'a> {
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

impl<'a, S: Describe> From<&'a mut S> for Description<'a> {
    fn from(slot: &'a mut S) -> Self {
        slot.describe()
    }
}

impl<'a> Description<'a> {
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

    pub(super) fn with_keys(self, keys: Vec<Self>) -> Self {
        Self {
            content: Content::Section(keys),
            ..self
        }
    }

    /// Adds keys whose changes take effect only at the next start.
    pub(super) fn with_keys_at_start(self, keys: Vec<Self>) -> Self {
        self.with_keys(keys.into_iter().map(Self::at_start).collect())
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

    /// Adds the faults whose condition is true.
    pub(super) fn with_faults<T: Into<String>>(
        mut self,
        all: impl IntoIterator<Item = (bool, T)>,
    ) -> Self {
        self.faults.extend(applicable(all));
        self
    }

    pub(super) fn with_warnings<T: Into<String>>(
        mut self,
        all: impl IntoIterator<Item = (bool, T)>,
    ) -> Self {
        self.warnings.extend(applicable(all));
        self
    }

    /// Visits everything below this description and then the description itself, each with its path.
    pub(super) fn walk(mut self, above: &str, visit: &mut dyn FnMut(&str, &mut Description<'_>)) {
        let path = join(above, &self.name);
        match &mut self.content {
            Content::Value(_) => {}
            Content::Section(keys) => keys.drain(..).for_each(|key| key.walk(&path, visit)),
            Content::Entries(_, entries) => entries.each(&mut |entry| entry.walk(&path, visit)),
        }
        visit(&path, &mut self);
    }

    /// Visits all values including those of entries, each with its path, and with whether a change takes effect only at the
    /// next start.
    pub(super) fn values(self, visit: &mut dyn FnMut(&str, bool, &mut Value<'_>)) {
        self.walk("", &mut |path,
                            Description {
                                at_start, content, ..
                            }| {
            if let Content::Value(value) = content {
                visit(path, *at_start, value);
            }
        });
    }
}

/// Returns the items that have the same key as an earlier item.
pub(super) fn repeated<T, K: Ord>(items: &[T], key: impl Fn(&T) -> K) -> Vec<&T> {
    let mut keys = BTreeSet::new();
    let is_repeated = |item: &&T| !keys.insert(key(item));
    items.iter().filter(is_repeated).collect()
}

/// Returns the texts whose condition is true.
fn applicable<T: Into<String>>(
    all: impl IntoIterator<Item = (bool, T)>,
) -> impl Iterator<Item = String> {
    all.into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, text)| text.into())
}

/// Appends a step to a path: a key, or an index or name in brackets. An empty step changes nothing.
pub(super) fn join(path: &str, step: &str) -> String {
    let is_key = !path.is_empty() && !step.is_empty() && !step.starts_with('[');
    format!("{path}{}{step}", if is_key { "." } else { "" })
}

pub(super) type Visit<'v> = &'v mut dyn FnMut(Description<'_>);

/// Entries of one kind: a list of sections, or sections that the user names.
pub(super) trait Entries {
    fn clear(&mut self) {}
    /// Adds an entry that `fill` sets. Fails with the reason if the entry is refused.
    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String>;
    fn each(&mut self, visit: Visit<'_>);
}

/// List of sections without presets or other rules.
impl<T: Describe + Default> Entries for Vec<T> {
    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, _: String, fill: Visit<'_>) -> Result<(), String> {
        let mut item = T::default();
        fill(item.describe());
        self.push(item);
        Ok(())
    }

    fn each(&mut self, visit: Visit<'_>) {
        for (at, item) in self.iter_mut().enumerate() {
            visit(item.describe().item(at));
        }
    }
}

/// Rules for the names of entries.
pub(super) struct NameRules {
    /// Noun for such an entry, in one word.
    pub(super) what: &'static str,
    pub(super) example: &'static str,
    /// Fault of a name that `read` refuses.
    pub(super) fault: &'static str,
    /// Returns the canonical form of a name.
    pub(super) read: fn(&str) -> Option<String>,
}

/// Entry that the user names.
pub(super) trait NamedEntry: Describe + Default + PartialEq {
    const NAME_RULES: NameRules;
}

impl<V: NamedEntry> Describe for BTreeMap<String, V> {
    fn describe(&mut self) -> Description<'_> {
        Content::Entries(Some(V::NAME_RULES), self).into()
    }
}

impl<V: NamedEntry> Entries for BTreeMap<String, V> {
    fn add(&mut self, name: String, fill: Visit<'_>) -> Result<(), String> {
        let mut value = V::default();
        fill(value.describe());
        // Docker Hub may occur under two of its names if both have the same settings.
        if self.get(&name).is_some_and(|first| *first != value) {
            return Err(format!(
                "{name} is repeated under another name with other settings; keep one of the two"
            ));
        }
        self.insert(name, value);
        Ok(())
    }

    fn each(&mut self, visit: Visit<'_>) {
        for (name, value) in self {
            visit(value.describe().named(format!("[{name:?}]")));
        }
    }
}
