//! Tree of a document, with the line of every key and value.

use serde_json::{Number, Value};

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
    /// The key as JSON has it.
    pub text: String,
    pub kind: KeyKind,
}

/// What a key is. Keys of two kinds are two keys, though JSON has one text for both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyKind {
    Text,
    Bool,
    Integer,
    /// The number, of which the text may have fewer digits.
    Float(f64),
}

#[derive(Clone, Debug)]
pub enum Data {
    Null,
    Bool(bool),
    /// A float is one even if it is whole.
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
            Data::List(items) => Value::Array(items.iter().map(Self::value).collect()),
            Data::Map(members) => members
                .iter()
                .map(|(key, member)| (key.text.clone(), member.value()))
                .collect(),
        }
    }

    /// Returns what sigs.k8s.io/yaml decodes into a Go string: numbers and booleans as texts, and null as an empty one;
    /// `None` for a list or a mapping.
    pub fn into_text(self) -> Option<String> {
        match self.data {
            Data::Null => Some(String::new()),
            Data::Bool(flag) => Some(flag.to_string()),
            Data::Number(number) => Some(number::as_text(&number)),
            Data::Text(text) => Some(text),
            Data::List(_) | Data::Map(_) => None,
        }
    }

    /// Returns the member of this name, unless it is null.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Data::Map(members) = &self.data else {
            return None;
        };
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
    pub(super) fn measure(&self) -> (usize, usize) {
        let (text, parts): (usize, Vec<&Self>) = match &self.data {
            Data::Null | Data::Bool(_) | Data::Number(_) => (0, Vec::new()),
            Data::Text(text) => (text.len(), Vec::new()),
            Data::List(items) => (0, items.iter().collect()),
            Data::Map(members) => {
                let keys = members.iter().map(|(key, _)| key.text.len());
                (
                    keys.sum(),
                    members.iter().map(|(_, member)| member).collect(),
                )
            }
        };
        let parts = parts.into_iter().map(Self::measure);
        parts.fold(
            (size_of::<Self>() + text, 1),
            |(all, deepest), (bytes, depth)| (all + bytes, deepest.max(depth + 1)),
        )
    }
}
