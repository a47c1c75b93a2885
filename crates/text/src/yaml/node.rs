//! The tree of a document, with the line of every key and value.

use serde_json::{Map, Number, Value};

use super::number;

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
    /// The key as a text of JSON.
    pub text: String,
    pub kind: KeyKind,
}

/// The kind of a key. Keys of different kinds are different keys, even if their texts in JSON are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyKind {
    Text,
    Bool,
    Integer,
    /// The exact number; the text may have fewer digits.
    Float(f64),
}

#[derive(Clone, Debug)]
pub enum Data {
    Null,
    Bool(bool),
    /// A number that is written as a float is a float even if it is whole.
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

impl Node {
    /// Returns the value, without lines.
    pub fn value(&self) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(flag) => Value::Bool(*flag),
            Data::Number(number) => Value::Number(number::in_json(number)),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => {
                let values = items.iter().map(Self::value);
                Value::Array(values.collect())
            }
            Data::Map(members) => {
                let mut object = Map::new();
                for (key, member) in members {
                    object.insert(key.text.clone(), member.value());
                }
                Value::Object(object)
            }
        }
    }

    /// Returns the text that sigs.k8s.io/yaml decodes into a Go string: numbers and booleans as texts, and null as an
    /// empty one; `None` for a list or a mapping.
    pub fn into_text(self) -> Option<String> {
        match self.data {
            Data::Null => Some(String::new()),
            Data::Bool(flag) => Some(flag.to_string()),
            Data::Number(number) => Some(number::as_text(&number)),
            Data::Text(text) => Some(text),
            Data::List(_) | Data::Map(_) => None,
        }
    }

    /// Returns the last member of this name, unless it is null.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Data::Map(members) = &self.data else {
            return None;
        };
        for (key, member) in members.iter().rev() {
            if key.text != name {
                continue;
            }
            return match member.data {
                Data::Null => None,
                _ => Some(member),
            };
        }
        None
    }

    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        let mut node = self;
        for name in path {
            node = node.get(name)?;
        }
        Some(node)
    }

    /// Returns the text of a member; empty if the member is absent or no text.
    pub fn text(&self, name: &str) -> &str {
        let Some(member) = self.get(name) else {
            return "";
        };
        match &member.data {
            Data::Text(text) => text,
            _ => "",
        }
    }

    pub(super) fn measure(&self) -> Size {
        let mut size = Size {
            bytes: size_of::<Self>(),
            depth: 1,
        };
        match &self.data {
            Data::Null | Data::Bool(_) | Data::Number(_) => {}
            Data::Text(text) => size.bytes += text.len(),
            Data::List(items) => {
                for item in items {
                    size.add(item);
                }
            }
            Data::Map(members) => {
                for (key, member) in members {
                    size.bytes += key.text.len();
                    size.add(member);
                }
            }
        }
        size
    }
}

/// The size of a node, with all nodes in it.
pub(super) struct Size {
    /// Bytes that a copy takes.
    pub(super) bytes: usize,
    /// Number of levels.
    pub(super) depth: usize,
}

impl Size {
    fn add(&mut self, part: &Node) {
        let part = part.measure();
        self.bytes += part.bytes;
        self.depth = self.depth.max(part.depth + 1);
    }
}
