//! JSON with the line of each value: every part of a document is a part of its text, and so has a place in it.

use std::collections::BTreeMap;

use serde_json::Deserializer;
use serde_json::value::RawValue;

use tolerarch_text::yaml::{Data, Key, Node};

/// Levels of a document that are read, as many as serde_json itself does.
const DEPTH: usize = 128;

pub(super) struct Documents<'t> {
    text: &'t str,
    /// Lines of the file before it.
    before: usize,
    newlines: Vec<usize>,
    read: usize,
}

type Fault = (usize, String);

impl<'t> Documents<'t> {
    pub(super) fn of(text: &'t str, before: usize) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        Self { text, before, newlines: newlines.collect(), read: 0 }
    }

    /// The lines before what stands here.
    fn lines_before(&self, offset: usize) -> usize {
        self.before + self.newlines.partition_point(|newline| *newline < offset)
    }

    fn node(&self, raw: &RawValue, depth: usize) -> Result<Node, Fault> {
        let text = raw.get();
        let line = 1 + self.lines_before(text.as_ptr().addr() - self.text.as_ptr().addr());
        let fault = |error: serde_json::Error| (line, cause(&error));
        let data = match text.as_bytes().first() {
            Some(b'{' | b'[') if depth == 0 => return Err((line, "nested deeper than is read".to_owned())),
            Some(b'{') => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(fault)?;
                // Who set what is nested as deep as the API server allows, and decides nothing.
                let members = members.into_iter().filter(|(text, _)| text != "managedFields");
                let members = members.map(|(text, raw)| {
                    let member = self.node(raw, depth - 1)?;
                    Ok((Key { line: member.line, text }, member))
                });
                Data::Map(members.collect::<Result<_, Fault>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(fault)?;
                Data::List(items.into_iter().map(|raw| self.node(raw, depth - 1)).collect::<Result<_, _>>()?)
            }
            Some(b'"') => Data::Text(serde_json::from_str(text).map_err(fault)?),
            Some(b't' | b'f') => Data::Bool(serde_json::from_str(text).map_err(fault)?),
            Some(b'n') => Data::Null,
            _ => Data::Number(serde_json::from_str(text).map_err(fault)?),
        };
        Ok(Node { line, data })
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Node, Fault>;

    /// The next one. What is broken ends before the next line that begins with a brace.
    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.text[self.read..];
        let mut stream = Deserializer::from_str(rest).into_iter::<&RawValue>();
        let next = stream.next()?;
        let before = self.lines_before(self.read);
        match next {
            Ok(raw) => {
                self.read += stream.byte_offset();
                Some(self.node(raw, DEPTH))
            }
            Err(error) => {
                let begin = rest.len() - rest.trim_start().len();
                self.read += rest[begin..].find("\n{").map_or(rest.len(), |at| begin + at + 1);
                Some(Err((before + error.line().max(1), cause(&error))))
            }
        }
    }
}

/// The text of an error without its place, which is reported separately.
fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    format!("not JSON: {}", text.split(" at line ").next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
