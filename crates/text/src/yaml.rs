//! Reads YAML into a tree with the line of every key and value, within bounds on nesting, size and aliases. Built from
//! events: a loader would expand aliases without a bound, and what a scalar means depends on the [`Dialect`].

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Number, Value};

/// Maximum nesting, about that of serde_json; trees are walked by recursion.
const DEPTH: usize = 100;
/// Maximal number of nodes of one document: some hundred MB.
const NODES: usize = 5_000_000;
/// Maximal bytes of copies of aliased nodes, in all documents of a file: they are in memory together.
const COPIES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// YAML of `kubectl` and kubelet (sigs.k8s.io/yaml): YAML 1.1, in which `off` is a boolean and `<<` merges.
    Kubernetes,
    /// Scalars as they are written: every scalar but null is text, and the type of the key decides.
    Text,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// Counted from 1.
    pub line: usize,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub struct Key {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
}

#[derive(Clone, Debug)]
pub enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct Fault {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

impl Node {
    /// Returns the value, without lines.
    pub fn value(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(flag) => Value::Bool(*flag),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Self::value).collect()),
            Data::Map(members) => {
                members.iter().map(|(key, member)| (key.text.clone(), member.value())).collect()
            }
        }
    }

    /// Returns the member of this name, unless it is null.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Data::Map(members) = &self.data else { return None };
        let (_, member) = members.iter().rev().find(|(key, _)| key.text == name)?;
        (!matches!(member.data, Data::Null)).then_some(member)
    }

    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    /// Returns the text of a member; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name).map(|member| &member.data) {
            Some(Data::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns the bytes that a copy takes, and a lower bound of its levels.
    fn measure(&self) -> (usize, usize) {
        let (text, parts): (usize, Vec<&Self>) = match &self.data {
            Data::Null | Data::Bool(_) | Data::Number(_) => (0, Vec::new()),
            Data::Text(text) => (text.len(), Vec::new()),
            Data::List(items) => (0, items.iter().collect()),
            Data::Map(members) => {
                let keys = members.iter().map(|(key, _)| key.text.len());
                (keys.sum(), members.iter().map(|(_, member)| member).collect())
            }
        };
        let parts = parts.into_iter().map(Self::measure);
        parts.fold((size_of::<Self>() + text, 1), |(all, deepest), (bytes, depth)| {
            (all + bytes, deepest.max(depth + 1))
        })
    }
}

/// Reads the documents of a file.
pub fn read(text: &str, dialect: Dialect) -> Result<Vec<Node>, Fault> {
    Reader::new(dialect).read(0, text)
}

/// Reader of the texts of one file.
pub struct Reader {
    dialect: Dialect,
    documents: Vec<Node>,
    /// Collections that have begun, the outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// Bytes that are left of [`COPIES`].
    copies: usize,
}

struct Open {
    node: Node,
    anchor: usize,
    /// The key of the next value.
    key: Option<Key>,
    /// Members merged by `<<`, backwards: each takes precedence over those behind it, the mapping's own over all.
    merged: Vec<(Key, Node)>,
}

const TOO_DEEP: &str = "nested deeper than is read";

/// Text of a plain `<<` as a key; in quotes it is a key like any other.
const MERGE: &str = "\0<<";

impl Reader {
    pub fn new(dialect: Dialect) -> Self {
        let (documents, open, anchors) = Default::default();
        Self { dialect, documents, open, anchors, nodes: 0, copies: COPIES }
    }

    /// Reads a text that begins behind so many lines of the file.
    pub fn read(&mut self, lines: usize, text: &str) -> Result<Vec<Node>, Fault> {
        // What a text with a fault has left.
        (self.documents, self.open) = Default::default();
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| {
                let (line, column) = (lines + error.marker().line().max(1), error.marker().col() + 1);
                Fault { line, message: format!("not YAML: {} at column {column}", error.info()) }
            })?;
            let line = lines + span.start.line();
            self.take(event, line).map_err(|message| Fault { line, message: message.to_owned() })?;
        }
        Ok(std::mem::take(&mut self.documents))
    }

    /// Returns the bytes that a copy of so many leaves for others.
    fn left(&self, bytes: usize) -> Result<usize, &'static str> {
        self.copies.checked_sub(bytes).ok_or("anchors and aliases that expand to more than is read")
    }

    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart(_) => {
                self.anchors.clear();
                self.nodes = 0;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let data = match self.dialect {
                    Dialect::Text if style == ScalarStyle::Plain && is_null(&text) => Data::Null,
                    Dialect::Text => Data::Text(text.into_owned()),
                    Dialect::Kubernetes if style == ScalarStyle::Plain && text == "<<" && self.at_key() => {
                        Data::Text(MERGE.to_owned())
                    }
                    Dialect::Kubernetes => scalar(&text, style, tag.as_deref()),
                };
                return self.close(Node { line, data }, anchor);
            }
            Event::SequenceStart(anchor, _) => self.begin(Data::List(Vec::new()), anchor, line)?,
            Event::MappingStart(anchor, _) => self.begin(Data::Map(Vec::new()), anchor, line)?,
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { mut node, anchor, mut merged, .. }) = self.open.pop() else { return Ok(()) };
                if let Data::Map(own) = &mut node.data {
                    // The last of equal keys counts.
                    merged.reverse();
                    merged.append(own);
                    *own = merged;
                }
                return self.close(node, anchor);
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).ok_or("an alias inside its own anchor")?;
                let (bytes, depth) = node.measure();
                if self.open.len() + depth > DEPTH {
                    return Err(TOO_DEEP);
                }
                // Charged before the copy is made.
                self.copies = self.left(bytes)?;
                let node = Node { line, data: node.data.clone() };
                return self.close(node, 0);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Returns whether the next node is the key of a mapping.
    fn at_key(&self) -> bool {
        self.open.last().is_some_and(|open| open.key.is_none() && matches!(open.node.data, Data::Map(_)))
    }

    fn begin(&mut self, data: Data, anchor: usize, line: usize) -> Result<(), &'static str> {
        if self.open.len() >= DEPTH {
            return Err(TOO_DEEP);
        }
        self.open.push(Open { node: Node { line, data }, anchor, key: None, merged: Vec::new() });
        Ok(())
    }

    /// Adds a complete node to its parent: as an item, a key, a value or a document.
    fn close(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err("more nodes than are read");
        }
        if anchor > 0 {
            // The anchor keeps a copy, which counts like those of aliases.
            self.copies = self.left(node.measure().0)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut open.node.data, open.key.take()) {
            (Data::List(items), _) => items.push(node),
            (Data::Map(_), None) => open.key = Some(key(node)?),
            (Data::Map(_), Some(key)) if key.text == MERGE => open.merge(node)?,
            (Data::Map(members), Some(key)) => members.push((key, node)),
            _ => {}
        }
        Ok(())
    }
}

impl Open {
    /// Merges the members of the mapping, or of a list of mappings, of which the first takes precedence.
    fn merge(&mut self, Node { line, data }: Node) -> Result<(), &'static str> {
        let nodes = if let Data::List(nodes) = data { nodes } else { vec![Node { line, data }] };
        for node in nodes {
            let Data::Map(members) = node.data else { return Err("<< merges mappings only") };
            self.merged.extend(members.into_iter().rev());
        }
        Ok(())
    }
}

fn key(node: Node) -> Result<Key, &'static str> {
    let line = node.line;
    match node.data {
        Data::Text(text) => Ok(Key { line, text }),
        Data::List(_) | Data::Map(_) => Err("a key that is a list or a mapping"),
        Data::Null | Data::Bool(_) | Data::Number(_) => Ok(Key { line, text: node.value().to_string() }),
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Interprets a scalar by YAML 1.1; only plain ones can be anything but text.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Data {
    let core = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
    if core == Some("str") || tag.is_none() && style != ScalarStyle::Plain {
        return Data::Text(text.to_owned());
    }
    match text {
        _ if is_null(text) => Data::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => Data::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            Data::Bool(false)
        }
        _ => number(text).map_or_else(|| Data::Text(text.to_owned()), Data::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let sign = if text.starts_with('-') { "-" } else { "" };
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let digits = digits.replace('_', "");
    let (whole, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (&*digits, 10),
    };
    if whole.bytes().all(|b| b.is_ascii_alphanumeric())
        && let Ok(whole) = i64::from_str_radix(&format!("{sign}{whole}"), radix)
    {
        return Some(whole.into());
    }
    Number::from_f64(format!("{sign}{digits}").parse().ok()?)
}

#[cfg(test)]
mod tests;
