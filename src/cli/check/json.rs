//! JSON with the line of each value. A decoder does not tell lines; but it hands values over in the order of the text, so
//! they are found by walking along.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use tolerarch_text::yaml::{Data, Key, Node};

/// A place in a text of JSON documents.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    /// From 1.
    line: usize,
    /// Brackets that are open.
    depth: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning of a text that begins on this line.
    pub(super) fn new(text: &'a str, line: usize) -> Self {
        Self { rest: text.as_bytes(), line, depth: 0 }
    }

    /// Reads the next document, unless there is none: its line, and what it says.
    pub(super) fn read(&mut self) -> Option<(usize, serde_json::Result<Node>)> {
        let line = self.next();
        if self.rest.is_empty() {
            return None;
        }
        let mut decoder = serde_json::Deserializer::from_slice(self.rest);
        let mut place = *self;
        let read = Seed(&mut place).deserialize(&mut decoder);
        if read.is_ok() {
            place.next();
            *self = place;
        }
        Some((line, read))
    }

    /// Goes on to the next line that begins with a bracket, if there is one.
    pub(super) fn skip(&mut self) -> bool {
        let found = self.rest.windows(2).position(|pair| pair == b"\n{");
        let (before, rest) = self.rest.split_at(found.map_or(self.rest.len(), |at| at + 1));
        self.line += before.iter().filter(|&&byte| byte == b'\n').count();
        self.rest = rest;
        found.is_some()
    }

    /// Goes on to the next value or key, and tells its line; after the last one, to the next document.
    fn next(&mut self) -> usize {
        while let Some((byte, rest)) = self.rest.split_first() {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                b',' | b':' if self.depth > 0 => {}
                b']' | b'}' if self.depth > 0 => self.depth -= 1,
                _ => break,
            }
            self.rest = rest;
        }
        self.line
    }

    /// Goes over a key or a scalar, or into a list or an object.
    fn step(&mut self) {
        let length = match self.rest.first() {
            Some(b'{' | b'[') => {
                self.depth += 1;
                1
            }
            Some(b'"') => {
                let mut escaped = false;
                let ends = |&byte: &u8| {
                    let ends = byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    ends
                };
                self.rest.iter().skip(1).position(ends).map_or(self.rest.len(), |at| at + 2)
            }
            _ => {
                let ends = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
                self.rest.iter().position(ends).unwrap_or(self.rest.len())
            }
        };
        self.rest = &self.rest[length..];
    }
}

/// What is read next stands here.
struct Seed<'p, 'a>(&'p mut Cursor<'a>);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Node, D::Error> {
        let line = self.0.next();
        self.0.step();
        Ok(Node { line, data: decoder.deserialize_any(self)? })
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Data, E> {
        Ok(Data::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Data, E> {
        Ok(Data::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Data, E> {
        Ok(Data::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Data, E> {
        Ok(Data::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Data, E> {
        Ok(Number::from_f64(number).map_or(Data::Null, Data::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Data, E> {
        Ok(Data::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Data, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Seed(&mut *self.0))? {
            items.push(item);
        }
        Ok(Data::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Data, A::Error> {
        let mut members = Vec::new();
        while let Some(text) = map.next_key()? {
            let line = self.0.next();
            self.0.step();
            members.push((Key { line, text }, map.next_value_seed(Seed(&mut *self.0))?));
        }
        Ok(Data::Map(members))
    }
}

#[cfg(test)]
mod tests;
