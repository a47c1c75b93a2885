//! Keys that a file says twice in one section. The loader would refuse the whole file for one, and hide all else that is
//! wrong with it.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};

use super::quote::quoted;

/// A key that is there already.
pub(super) struct Duplicate {
    /// Where, as a path of keys.
    pub(super) path: String,
    /// From 1.
    pub(super) line: usize,
    /// On which line it is first.
    pub(super) first: usize,
}

/// A section or list that has begun.
enum Open {
    Section {
        lines: HashMap<String, usize>,
        /// The key whose value comes next.
        key: Option<String>,
    },
    List(usize),
}

/// All of a text, as far as it is YAML.
pub(super) fn duplicates(text: &str) -> Vec<Duplicate> {
    let (mut open, mut found): (Vec<Open>, _) = (Vec::new(), Vec::new());
    let mut parser = Parser::new_from_str(text);
    while let Some(Ok((event, span))) = parser.next_event() {
        match event {
            Event::MappingStart(..) => open.push(Open::Section { lines: HashMap::new(), key: None }),
            Event::SequenceStart(..) => open.push(Open::List(0)),
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                // A section as a key has no name.
                ended(&mut open, String::new());
            }
            Event::Scalar(text, ..) => {
                let line = span.start.line();
                if let Some(Open::Section { lines, key: None }) = open.last_mut()
                    && let Some(&first) = lines.get(&*text)
                {
                    let path = path(&open, &text);
                    found.push(Duplicate { path, line, first });
                } else if let Some(Open::Section { lines, key: None }) = open.last_mut() {
                    lines.insert(text.to_string(), line);
                }
                ended(&mut open, text.into_owned());
            }
            Event::Alias(_) => ended(&mut open, String::new()),
            _ => {}
        }
    }
    found
}

/// A node is complete: a key, or a value.
fn ended(open: &mut [Open], text: String) {
    match open.last_mut() {
        Some(Open::Section { key, .. }) => *key = if key.is_none() { Some(text) } else { None },
        Some(Open::List(at)) => *at += 1,
        None => {}
    }
}

fn path(open: &[Open], last: &str) -> String {
    let mut path = String::new();
    let names = open.iter().map(|open| match open {
        Open::Section { key, .. } => Err(key.as_deref().unwrap_or(last)),
        Open::List(at) => Ok(at),
    });
    for name in names {
        match name {
            Ok(at) => path += &format!("[{at}]"),
            Err(name) if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                path += &format!("[{}]", quoted(name));
            }
            Err(name) => path += &format!("{}{name}", if path.is_empty() { "" } else { "." }),
        }
    }
    path
}
