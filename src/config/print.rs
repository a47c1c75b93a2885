//! Configuration as YAML: a valid file, with a comment after each value.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Config;
use super::reader::Location;
use super::shape::{Content, Describe, Description, NameRules, join};
use super::values::matches;
use tolerarch_text::yaml::{self, Data, Dialect, Node};

/// Column at which comments begin, unless the value is longer.
const COLUMN: usize = 44;

/// Form of texts that may need no quotes. They have a letter or a slash: otherwise YAML reads a number.
const PLAIN: &str = r"^([0-9][0-9._-]*)?[A-Za-z/][A-Za-z0-9/._-]*$";

/// Name of the file, and the source of each value.
pub(super) type Origins<'a> = (&'a str, &'a BTreeMap<String, Location>);

/// Returns every key with its default and its meaning.
pub fn explained() -> String {
    let mut config = Config::default();
    config.describe().walk("", &mut |_, description| {
        if let Content::Entries(Some(NameRules { example, .. }), entries) = &mut description.content
        {
            // The default has no named entries, so any name is accepted.
            let _ = entries.add(example.to_owned(), &mut |_| {});
        }
    });
    print(config, None)
}

/// Renders all values, each with its source or, without origins, with its meaning.
pub(super) fn print(mut config: Config, origins: Option<Origins<'_>>) -> String {
    let mut printer = Printer {
        origins,
        text: String::new(),
    };
    printer.keys(config.describe().content, 0, "");
    printer.text
}

struct Printer<'a> {
    origins: Option<Origins<'a>>,
    text: String,
}

impl Printer<'_> {
    fn keys(&mut self, section: Content<'_>, indent: usize, path: &str) {
        let Content::Section(keys) = section else {
            return;
        };
        for key in keys {
            self.entry(key, indent, path);
        }
    }

    /// Writes a name and its content; nothing if the content is null.
    fn entry(&mut self, description: Description<'_>, indent: usize, above: &str) {
        let path = join(above, &description.name);
        let name = format!(
            "{:indent$}{}:",
            "",
            description.name.trim_matches(['[', ']'])
        );
        let doc = format!(
            "{}{}",
            description.doc,
            if description.at_start {
                " (restart)"
            } else {
                ""
            }
        );
        let (heading, comment) = match self.origins {
            Some((file, locations)) => (String::new(), origin(file, locations, &path)),
            None => (doc.clone(), doc),
        };
        match description.content {
            Content::Value(value) if value.written.is_null() => {}
            Content::Value(value) => {
                self.line(&format!("{name} {}", rendered(&value.written)), &comment);
            }
            section @ Content::Section(_) => {
                self.line(&name, &heading);
                self.keys(section, indent + 2, &path);
            }
            Content::Entries(names, entries) => {
                let is_list = names.is_none();
                let start = self.text.len();
                self.line(&name, &heading);
                let inside = self.text.len();
                entries.each(&mut |entry| match is_list {
                    true => self.item(entry, indent + 2, &path),
                    false => self.entry(entry, indent + 2, &path),
                });
                if self.text.len() == inside {
                    self.text.truncate(start);
                    self.line(
                        &format!("{name} {}", if is_list { "[]" } else { "{}" }),
                        &comment,
                    );
                }
            }
        }
    }

    /// Writes an item of a list, with a dash before its first key.
    fn item(&mut self, item: Description<'_>, indent: usize, above: &str) {
        let start = self.text.len();
        let path = join(above, &item.name);
        self.keys(item.content, indent + 2, &path);
        let keys = self.text.split_off(start);
        self.text += &keys.replacen(&" ".repeat(indent + 2), &format!("{:indent$}- ", ""), 1);
    }

    fn line(&mut self, text: &str, comment: &str) {
        let line = if comment.is_empty() {
            text.to_owned()
        } else {
            format!("{text:<COLUMN$} # {comment}")
        };
        self.text += &line;
        self.text.push('\n');
    }
}

fn origin(file: &str, locations: &BTreeMap<String, Location>, path: &str) -> String {
    match locations.get(path) {
        Some(Location::Line(line)) => format!("{file}:{line}"),
        Some(location) => location.to_string(),
        None => {
            let pool = path.split_inclusive(']').next().unwrap_or_default();
            let is_preset = locations.contains_key(&format!("{pool}.preset"));
            if is_preset { "preset" } else { "default" }.to_owned()
        }
    }
}

/// Renders a value. A text has no quotes if YAML reads it as a string without them. JSON strings are valid YAML.
pub(super) fn rendered(value: &Json) -> String {
    if let Some(items) = value.as_array() {
        return format!(
            "[{}]",
            items.iter().map(rendered).collect::<Vec<_>>().join(", ")
        );
    }
    let is_plain = |text: &str| {
        let read = yaml::read(text, Dialect::Kubernetes);
        matches(PLAIN, text)
            && matches!(
                read.as_deref(),
                Ok([Node {
                    data: Data::Text(_),
                    ..
                }])
            )
    };
    match value.as_str() {
        Some(text) if is_plain(text) => text.to_owned(),
        _ => value.to_string(),
    }
}
