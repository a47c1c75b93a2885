//! YAML as `kubectl` reads it (sigs.k8s.io/yaml, which is YAML 1.1 where that matters), with the line of each node.
//!
//! Built from events instead of a loader's tree, as files may come from strangers: aliases are expanded up to a bound,
//! and nesting has one.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

/// Nesting; serde_json's own limit is about the same.
const DEPTH: usize = 100;
/// Nodes of one document that come from aliases.
const ALIASED: usize = 100_000;
/// Bytes that the copies of one file may take, its texts among them: they all are in memory at a time.
pub(super) const COPIES: usize = 64 << 20;
/// Nodes of one document in all: some hundred MB.
const NODES: usize = 5_000_000;

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// From 1.
    pub(super) line: usize,
    pub(super) data: Data,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Why a text is no YAML that is read.
#[derive(Debug)]
pub(super) struct Fault {
    /// Within the text, from 1.
    pub(super) line: usize,
    pub(super) message: String,
}

impl Node {
    /// The value, without lines.
    pub(super) fn value(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(flag) => Value::Bool(*flag),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Self::value).collect()),
            Data::Map(members) => Value::Object(
                members.iter().map(|(key, member)| (key.clone(), member.value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The member of this name, unless it is null.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Data::Map(members) = &self.data else { return None };
        let (_, member) = members.iter().rev().find(|(key, _)| key == name)?;
        (!matches!(member.data, Data::Null)).then_some(member)
    }

    /// What these names lead to.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    /// The text of a member; empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        match self.get(name).map(|member| &member.data) {
            Some(Data::Text(text)) => text,
            _ => "",
        }
    }

    fn measure(&self) -> Size {
        let mut size = Size { nodes: 1, bytes: size_of::<Self>(), depth: 1 };
        match &self.data {
            Data::Text(text) => size.bytes += text.len(),
            Data::List(items) => items.iter().for_each(|item| size.hold(item)),
            Data::Map(members) => {
                for (key, member) in members {
                    size.bytes += key.len();
                    size.hold(member);
                }
            }
            Data::Null | Data::Bool(_) | Data::Number(_) => {}
        }
        size
    }
}

/// How much a node is, with all that is in it.
struct Size {
    nodes: usize,
    bytes: usize,
    /// How deep it is nested.
    depth: usize,
}

impl Size {
    fn hold(&mut self, node: &Node) {
        let Self { nodes, bytes, depth } = node.measure();
        self.nodes += nodes;
        self.bytes += bytes;
        self.depth = self.depth.max(depth + 1);
    }
}

/// The documents of a text. `copies` is how many bytes aliases may take yet, and less afterwards.
pub(super) fn read(text: &str, copies: &mut usize) -> Result<Vec<Node>, Fault> {
    let mut builder = Builder { copies: *copies, ..Builder::default() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(broken)?;
        let line = span.start.line();
        builder.take(event, line).map_err(|message| Fault { line, message: message.to_owned() })?;
    }
    *copies = builder.copies;
    Ok(builder.documents)
}

fn broken(error: ScanError) -> Fault {
    Fault { line: error.marker().line(), message: format!("not YAML: {}", error.info()) }
}

/// Puts nodes together.
#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    /// Collections that have begun, the outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    aliased: usize,
    /// Bytes that copies may take yet.
    copies: usize,
}

struct Open {
    node: Node,
    anchor: usize,
    /// The key whose value comes next.
    key: Option<String>,
    /// What `<<` brought in; members of the mapping's own beat it.
    merged: Vec<(String, Node)>,
}

/// What `<<` is as a key: a plain scalar, told apart from the same text in quotes.
const MERGE: &str = "\0<<";

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart(_) => {
                self.anchors.clear();
                (self.nodes, self.aliased) = (0, 0);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_key = self.open.last().is_some_and(|open| open.key.is_none() && open.is_map());
                let data = if is_key && style == ScalarStyle::Plain && text == "<<" {
                    Data::Text(MERGE.to_owned())
                } else {
                    scalar(&text, style, tag.as_deref())
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
                let node = self.anchors.get(&anchor).ok_or("an alias within its own anchor")?;
                let size = node.measure();
                if self.open.len() + size.depth > DEPTH {
                    return Err("nested deeper than is read");
                }
                // Before there is a copy.
                charge(&mut self.aliased, &mut self.copies, &size)?;
                let node = Node { line, data: node.data.clone() };
                return self.close(node, 0);
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn begin(&mut self, data: Data, anchor: usize, line: usize) -> Result<(), &'static str> {
        if self.open.len() >= DEPTH {
            return Err("nested deeper than is read");
        }
        self.open.push(Open { node: Node { line, data }, anchor, key: None, merged: Vec::new() });
        Ok(())
    }

    /// A node is complete: it is an item, a key, a value or a document.
    fn close(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err("more nodes than are read");
        }
        if anchor > 0 {
            // A copy that somebody asked for, like that of an alias.
            charge(&mut self.aliased, &mut self.copies, &node.measure())?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut open.node.data, open.key.take()) {
            (Data::List(items), _) => items.push(node),
            (Data::Map(_), None) => open.key = Some(key(node)?),
            (Data::Map(_), Some(key)) if key == MERGE => open.merge(node)?,
            (Data::Map(members), Some(key)) => members.push((key, node)),
            _ => {}
        }
        Ok(())
    }
}

/// Takes a copy from what may be copied yet.
fn charge(aliased: &mut usize, copies: &mut usize, size: &Size) -> Result<(), &'static str> {
    const TOO_MUCH: &str = "anchors and aliases that expand to more than is read";
    *aliased += size.nodes;
    if *aliased > ALIASED {
        return Err(TOO_MUCH);
    }
    *copies = copies.checked_sub(size.bytes).ok_or(TOO_MUCH)?;
    Ok(())
}

impl Open {
    fn is_map(&self) -> bool {
        matches!(self.node.data, Data::Map(_))
    }

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

    /// The last of equal keys counts; so what was merged in goes first, its own first one last.
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

fn key(node: Node) -> Result<String, &'static str> {
    match node.data {
        Data::Text(text) => Ok(text),
        Data::Null => Ok("null".to_owned()),
        Data::Bool(flag) => Ok(flag.to_string()),
        Data::Number(number) => Ok(number.to_string()),
        Data::List(_) | Data::Map(_) => Err("a key that is no scalar"),
    }
}

/// What a scalar means: only plain ones can be anything but text.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Data {
    let core = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
    if core == Some("str") || tag.is_none() && style != ScalarStyle::Plain {
        return Data::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Data::Null,
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
