//! A reader of YAML into a tree with the line of every key and value, within bounds on nesting, size and aliases. It reads
//! events itself: a loader would expand aliases without a bound, and the meaning of a scalar depends on the [`Dialect`].

mod events;
mod node;
mod number;
mod scalar;

use std::collections::HashMap;

use events::{Event, Events, Refusal, Scalar};

pub use events::{Fault, hide_parser_panics};
pub use node::{Data, Key, KeyKind, Node};

/// Maximum nesting, similar to that of serde_json. Trees are walked by recursion.
const DEPTH: usize = 100;
/// Maximum number of nodes of one document: some hundred MB.
const NODES: usize = 5_000_000;
/// Maximum bytes of copies of aliased nodes, in all documents of a file, which are in memory at the same time.
const COPIES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// YAML as `kubectl` and kubelet read it (sigs.k8s.io/yaml): YAML 1.1, in which `off` is a boolean and `<<` merges.
    Kubernetes,
    /// Every scalar except null is a text as written; the type of the configuration key decides.
    Text,
}

/// Reads the documents of a file.
pub fn read(text: &str, dialect: Dialect) -> Result<Vec<Node>, Fault> {
    Reader::new(dialect).read(0, text)
}

/// Reads the first document of a file, as go-yaml does. After the document, only the next token is read.
pub fn read_first(text: &str, dialect: Dialect) -> Result<Option<Node>, Fault> {
    let mut reader = Reader::new(dialect);
    let mut events = Events::new(text);
    while reader.documents.is_empty()
        && let Some((line, event)) = events.next()?
    {
        reader.take(event, line)?;
    }
    let document = reader.documents.pop();
    if document.is_some() {
        events.end_document()?;
    }
    Ok(document)
}

/// Reader of the texts of one file.
pub struct Reader {
    dialect: Dialect,
    documents: Vec<Node>,
    /// Collections that have begun, the outermost first.
    open: Vec<Open>,
    /// Complete nodes of the document with an anchor, by its name.
    anchors: HashMap<String, Node>,
    nodes: usize,
    /// Remaining bytes of [`COPIES`].
    copies: usize,
}

struct Open {
    node: Node,
    anchor: Option<String>,
    /// The key of the next value.
    key: Option<KeyNode>,
}

enum KeyNode {
    Key(Key),
    /// A plain `<<`, whose value is merged. A quoted `<<` is a normal key.
    Merge,
}

const TOO_DEEP: Refusal = Refusal::Unsupported("nested more than 100 levels deep");

impl Reader {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            documents: Vec::new(),
            open: Vec::new(),
            anchors: HashMap::new(),
            nodes: 0,
            copies: COPIES,
        }
    }

    /// Reads a text that begins after this number of lines of the file.
    pub fn read(&mut self, lines: usize, text: &str) -> Result<Vec<Node>, Fault> {
        // An earlier text with a fault may have left nodes.
        self.documents.clear();
        self.open.clear();
        let mut events = Events::new(text);
        loop {
            let next = match events.next() {
                Ok(next) => next,
                Err(fault) => return Err(fault.behind(lines)),
            };
            let Some((line, event)) = next else {
                return Ok(std::mem::take(&mut self.documents));
            };
            self.take(event, lines + line)?;
        }
    }

    fn take(&mut self, event: Event, line: usize) -> Result<(), Fault> {
        match self.add(event, line) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(refusal.at(line)),
        }
    }

    fn add(&mut self, event: Event, line: usize) -> Result<(), Refusal> {
        match event {
            Event::Document => {
                self.anchors.clear();
                self.nodes = 0;
                Ok(())
            }
            Event::Scalar(scalar) if self.at_key() && self.merges(&scalar) => {
                self.begin_merge(scalar, line);
                Ok(())
            }
            Event::Scalar(Scalar {
                is_beyond_go: true, ..
            }) if self.dialect == Dialect::Kubernetes => Err(Refusal::Invalid(
                "not YAML: a ? in brackets, or a \\/ in quotes",
            )),
            Event::Scalar(scalar) => {
                let data = match self.dialect {
                    Dialect::Text => scalar::as_written(scalar.text, scalar.is_plain),
                    Dialect::Kubernetes => {
                        scalar::resolve(scalar.text, scalar.is_plain, scalar.tag.as_deref())?
                    }
                };
                self.close(Node { line, data }, scalar.anchor)
            }
            Event::List { anchor } => self.begin(Data::List(Vec::new()), anchor, line),
            Event::Map { anchor } => self.begin(Data::Map(Vec::new()), anchor, line),
            Event::End => match self.open.pop() {
                Some(Open { node, anchor, .. }) => self.close(node, anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => self.copy(&anchor, line),
        }
    }

    /// Adds a copy of the node that an alias names.
    fn copy(&mut self, anchor: &str, line: usize) -> Result<(), Refusal> {
        let Some(node) = self.anchors.get(anchor) else {
            return Err(Refusal::Invalid("an alias without an anchor before it"));
        };
        let size = node.measure();
        if self.open.len() + size.depth > DEPTH {
            return Err(TOO_DEEP);
        }
        // The bytes are charged before the copy is made.
        charge(&mut self.copies, size.bytes)?;
        let data = node.data.clone();
        self.close(Node { line, data }, None)
    }

    /// Makes a plain `<<` the key of a merged value. An alias of the key is a text.
    fn begin_merge(&mut self, key: Scalar, line: usize) {
        if let Some(anchor) = key.anchor {
            let data = Data::Text(key.text);
            self.anchors.insert(anchor, Node { line, data });
        }
        if let Some(open) = self.open.last_mut() {
            open.key = Some(KeyNode::Merge);
        }
    }

    /// Returns whether the next node is the key of a mapping.
    fn at_key(&self) -> bool {
        let Some(open) = self.open.last() else {
            return false;
        };
        open.key.is_none() && matches!(open.node.data, Data::Map(_))
    }

    /// Returns whether the value of this key is merged.
    fn merges(&self, key: &Scalar) -> bool {
        let is_untagged = matches!(
            key.tag.as_deref(),
            None | Some("!" | "tag:yaml.org,2002:merge")
        );
        self.dialect == Dialect::Kubernetes && key.is_plain && key.text == "<<" && is_untagged
    }

    fn begin(&mut self, data: Data, anchor: Option<String>, line: usize) -> Result<(), Refusal> {
        if self.open.len() >= DEPTH {
            return Err(TOO_DEEP);
        }
        if let Some(anchor) = &anchor {
            // An alias within the node must not refer to an earlier node with the same anchor.
            self.anchors.remove(anchor);
        }
        self.open.push(Open {
            node: Node { line, data },
            anchor,
            key: None,
        });
        Ok(())
    }

    /// Adds a complete node to its parent: as an item, a key, a value or a document.
    fn close(&mut self, node: Node, anchor: Option<String>) -> Result<(), Refusal> {
        self.nodes += 1;
        if self.nodes > NODES {
            return Err(Refusal::Unsupported("more nodes than are read"));
        }
        if let Some(anchor) = anchor {
            // The anchor has a copy, which counts like the copies of aliases.
            charge(&mut self.copies, node.measure().bytes)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut open.node.data, open.key.take()) {
            (Data::List(items), _) => items.push(node),
            (Data::Map(_), None) => open.key = Some(KeyNode::Key(key(node)?)),
            (Data::Map(members), Some(KeyNode::Key(key))) => members.push((key, node)),
            (Data::Map(members), Some(KeyNode::Merge)) => merge(members, node)?,
            _ => {}
        }
        Ok(())
    }
}

/// Takes the bytes of a copy from those that remain for copies.
fn charge(remaining: &mut usize, bytes: usize) -> Result<(), Refusal> {
    match remaining.checked_sub(bytes) {
        Some(rest) => {
            *remaining = rest;
            Ok(())
        }
        None => Err(Refusal::Unsupported(
            "anchors and aliases that expand to more than is read",
        )),
    }
}

/// Adds the members of a mapping, or of a list of mappings, to the members before `<<`. The last of equal keys counts, as
/// for go-yaml; among the mappings of a list, the first takes precedence.
fn merge(members: &mut Vec<(Key, Node)>, node: Node) -> Result<(), Refusal> {
    let mappings = match node.data {
        Data::List(mappings) => mappings,
        _ => vec![node],
    };
    for mapping in mappings.into_iter().rev() {
        let Data::Map(merged) = mapping.data else {
            return Err(Refusal::Invalid("<< merges mappings only"));
        };
        members.extend(merged);
    }
    Ok(())
}

fn key(node: Node) -> Result<Key, Refusal> {
    let line = node.line;
    let kind = match &node.data {
        Data::Text(_) => KeyKind::Text,
        Data::Bool(_) => KeyKind::Bool,
        Data::Number(number) if number.is_i64() => KeyKind::Integer,
        Data::Number(number) if number.is_u64() => {
            return Err(Refusal::Invalid(
                "a key that is a number of more than 63 bits",
            ));
        }
        Data::Number(number) => KeyKind::Float(number.as_f64().unwrap_or_default()),
        Data::Null => return Err(Refusal::Invalid("a key that is null")),
        Data::List(_) | Data::Map(_) => {
            return Err(Refusal::Unsupported("a key that is a list or a mapping"));
        }
    };
    let text = match &*node.into_text().unwrap_or_default() {
        "+Inf" if matches!(kind, KeyKind::Float(_)) => ".inf".to_owned(),
        "-Inf" if matches!(kind, KeyKind::Float(_)) => "-.inf".to_owned(),
        text => text.to_owned(),
    };
    Ok(Key { line, text, kind })
}

#[cfg(test)]
mod tests;
