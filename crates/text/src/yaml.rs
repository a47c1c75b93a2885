//! The one reader of YAML: a tree with the line of every key and value, within bounds on nesting, size and aliases.
//!
//! Built from the parser's events, because a loader would expand aliases without a bound, and because what a scalar means
//! depends on who else reads the file, see [`Dialect`].

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

/// Maximum nesting, about that of serde_json; trees are walked by recursion.
const DEPTH: usize = 100;
/// Nodes of one document in all: some hundred MB.
const NODES: usize = 5_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// As `kubectl` and kubelet read them (sigs.k8s.io/yaml): YAML 1.1, in which `off` is a boolean and `<<` merges.
    Kubernetes,
    /// As they are written: every scalar but null is text, and the type of the key decides.
    Text,
}

/// Bytes that copies made for aliases may still take, in all documents of a file: they are in memory together.
#[derive(Debug)]
pub struct Copies(usize);

impl Default for Copies {
    fn default() -> Self {
        Self(64 << 20)
    }
}

impl Copies {
    fn charge(&mut self, size: &Size) -> Result<(), &'static str> {
        const TOO_MUCH: &str = "anchors and aliases that expand to more than is read";
        self.0 = self.0.checked_sub(size.bytes).ok_or(TOO_MUCH)?;
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    /// From 1.
    pub line: usize,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub struct Key {
    /// From 1.
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
pub struct YamlError {
    /// From 1.
    pub line: usize,
    pub message: String,
}

impl Node {
    /// The value, without lines.
    pub fn value(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(flag) => Value::Bool(*flag),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Self::value).collect()),
            Data::Map(members) => Value::Object(
                members.iter().map(|(key, member)| (key.text.clone(), member.value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The member of this name, unless it is null.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Data::Map(members) = &self.data else { return None };
        let (_, member) = members.iter().rev().find(|(key, _)| key.text == name)?;
        (!matches!(member.data, Data::Null)).then_some(member)
    }

    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    /// The text of a member; empty where there is none.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name).map(|member| &member.data) {
            Some(Data::Text(text)) => text,
            _ => "",
        }
    }

    fn measure(&self) -> Size {
        let mut size = Size { bytes: size_of::<Self>(), depth: 1 };
        match &self.data {
            Data::Text(text) => size.bytes += text.len(),
            Data::List(items) => items.iter().for_each(|item| size.hold(item)),
            Data::Map(members) => {
                for (key, member) in members {
                    size.bytes += key.text.len();
                    size.hold(member);
                }
            }
            Data::Null | Data::Bool(_) | Data::Number(_) => {}
        }
        size
    }
}

struct Size {
    bytes: usize,
    /// Levels below and including this one.
    depth: usize,
}

impl Size {
    fn hold(&mut self, node: &Node) {
        let Self { bytes, depth } = node.measure();
        self.bytes += bytes;
        self.depth = self.depth.max(depth + 1);
    }
}

pub fn read(text: &str, dialect: Dialect, copies: &mut Copies) -> Result<Vec<Node>, YamlError> {
    read_behind(0, text, dialect, copies)
}

/// The same of a text that stands behind so many lines of a file.
pub fn read_behind(
    lines: usize,
    text: &str,
    dialect: Dialect,
    copies: &mut Copies,
) -> Result<Vec<Node>, YamlError> {
    let (documents, open, anchors) = (Vec::new(), Vec::new(), HashMap::new());
    let mut builder = Builder { dialect, documents, open, anchors, nodes: 0, copies };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| broken(lines, &error))?;
        let line = lines + span.start.line();
        builder.take(event, line).map_err(|message| YamlError { line, message: message.to_owned() })?;
    }
    Ok(builder.documents)
}

fn broken(lines: usize, error: &ScanError) -> YamlError {
    let (line, column) = (lines + error.marker().line().max(1), error.marker().col() + 1);
    YamlError { line, message: format!("not YAML: {} at column {column}", error.info()) }
}

struct Builder<'c> {
    dialect: Dialect,
    documents: Vec<Node>,
    /// Collections that have begun, the outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    copies: &'c mut Copies,
}

struct Open {
    node: Node,
    anchor: usize,
    /// The key whose value comes next.
    key: Option<Key>,
    /// Members brought in by `<<`; the mapping's own take precedence.
    merged: Vec<(Key, Node)>,
}

const TOO_DEEP: &str = "nested deeper than is read";

/// A plain `<<` as a key; in quotes it is a key like any other.
const MERGE: &str = "\0<<";

impl Builder<'_> {
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
                if let Some(open) = self.open.pop() {
                    let (node, anchor) = open.finish();
                    return self.close(node, anchor);
                }
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).ok_or("an alias inside its own anchor")?;
                let size = node.measure();
                if self.open.len() + size.depth > DEPTH {
                    return Err(TOO_DEEP);
                }
                // Before the copy is made.
                self.copies.charge(&size)?;
                let node = Node { line, data: node.data.clone() };
                return self.close(node, 0);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Whether the next node is the key of a mapping.
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

    /// Adds a complete node to what it belongs to: it is an item, a key, a value or a document.
    fn close(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err("more nodes than are read");
        }
        if anchor > 0 {
            // Kept as a copy, which counts like those of aliases.
            self.copies.charge(&node.measure())?;
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
    fn merge(&mut self, node: Node) -> Result<(), &'static str> {
        const WRONG: &str = "<< merges mappings only";
        match node.data {
            Data::Map(members) => self.merged.extend(members.into_iter().rev()),
            Data::List(nodes) => {
                for node in nodes {
                    let Data::Map(members) = node.data else { return Err(WRONG) };
                    self.merged.extend(members.into_iter().rev());
                }
            }
            _ => return Err(WRONG),
        }
        Ok(())
    }

    /// The last of equal keys counts, so merged members go first, in reverse order.
    fn finish(mut self) -> (Node, usize) {
        if let Data::Map(members) = &mut self.node.data
            && !self.merged.is_empty()
        {
            let own = std::mem::take(members);
            members.extend(self.merged.into_iter().rev());
            members.extend(own);
        }
        (self.node, self.anchor)
    }
}

fn key(Node { line, data }: Node) -> Result<Key, &'static str> {
    let text = match data {
        Data::Text(text) => text,
        Data::Null => "null".to_owned(),
        Data::Bool(flag) => flag.to_string(),
        Data::Number(number) => number.to_string(),
        Data::List(_) | Data::Map(_) => return Err("a key that is a list or a mapping"),
    };
    Ok(Key { line, text })
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// What a scalar means in YAML 1.1; only plain ones can be anything but text.
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
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let plain = digits.replace('_', "");
    let whole = |digits: &str, radix| i64::from_str_radix(&format!("{sign}{digits}"), radix).ok();
    let whole = match plain.as_bytes() {
        [b'0', b'x' | b'X', ..] => whole(&plain[2..], 16),
        [b'0', b'o' | b'O', ..] => whole(&plain[2..], 8),
        [b'0', b'b' | b'B', ..] => whole(&plain[2..], 2),
        [b'0', _, ..] if plain.bytes().all(|b| b.is_ascii_digit()) => whole(&plain[1..], 8),
        _ => whole(&plain, 10),
    };
    if let Some(whole) = whole {
        return Some(whole.into());
    }
    let float = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    if !plain.bytes().all(float) || !plain.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    Number::from_f64(format!("{sign}{plain}").parse().ok()?)
}

#[cfg(test)]
mod tests;
