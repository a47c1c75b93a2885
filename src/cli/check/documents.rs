//! From the bytes of a file to its documents: YAML or JSON, many in one stream, each read for itself, so that one that
//! is broken costs no other.

use super::json::Documents;
use tolerarch_text::yaml::{self, Copies, Dialect, Node};

/// Bytes of a file that are read. All Pods of a large cluster have some ten MB.
pub(super) const FILE: u64 = 256 << 20;

pub struct Document {
    /// Its place among those that are not empty, from 1.
    pub number: usize,
    /// Where it begins, or what is wrong with it; from 1.
    pub line: usize,
    pub content: Result<Node, String>,
}

/// The documents of a file, empty ones left out.
pub fn read(bytes: &[u8]) -> Vec<Document> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut all = Vec::new();
    let mut copies = Copies::default();
    let mut add = |line: usize, content: Result<Node, String>| {
        all.push(Document { number: all.len() + 1, line, content });
    };
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = bytes {
        add(1, Err("it is UTF-16; what is read is UTF-8".to_owned()));
        return all;
    }
    if bytes.iter().take(1024).any(|&byte| byte == 0) {
        add(1, Err("it is binary, neither YAML nor JSON".to_owned()));
        return all;
    }
    for (before, chunk) in chunks(bytes) {
        let text = match std::str::from_utf8(chunk) {
            Ok(text) => text,
            Err(error) => {
                let line = before + 1 + newlines(chunk, error.valid_up_to());
                add(line, Err("it is not UTF-8".to_owned()));
                continue;
            }
        };
        if is_empty(text) {
            continue;
        }
        if text.trim_start().starts_with(['{', '[']) && json(text, before, &mut add) {
            continue;
        }
        match yaml::read_behind(before, text, Dialect::Kubernetes, &mut copies) {
            Ok(nodes) => {
                let nodes = nodes.into_iter().filter(|node| !matches!(node.data, yaml::Data::Null));
                nodes.for_each(|node| add(node.line, Ok(node)));
            }
            Err(error) => add(error.line, Err(error.message)),
        }
    }
    all
}

/// What stands between lines that begin with `---`, as kubectl splits a stream, each with the number of lines before it.
fn chunks(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut chunks = Vec::new();
    let (mut begin, mut before, mut offset) = (0, 0, 0);
    for (place, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if let Some(rest) = line.strip_prefix(b"---")
            && rest.first().is_none_or(u8::is_ascii_whitespace)
        {
            chunks.push((before, &bytes[begin..offset]));
            // What follows the dashes on their line belongs to the document.
            (begin, before) = (offset + 3, place);
        }
        offset += line.len();
    }
    chunks.push((before, &bytes[begin..]));
    chunks
}

/// Nothing but space, comments, directives and ends of documents.
fn is_empty(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with(['#', '%']) || line == "...")
}

/// Reads JSON documents; `false` where it is no JSON from the beginning, but perhaps YAML.
fn json(text: &str, before: usize, add: &mut impl FnMut(usize, Result<Node, String>)) -> bool {
    for (place, read) in Documents::of(text, before).enumerate() {
        match read {
            Ok(node) => add(node.line, Ok(node)),
            Err(_) if place == 0 && yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).is_ok() => {
                return false;
            }
            Err((line, message)) => add(line, Err(message)),
        }
    }
    true
}

fn newlines(bytes: &[u8], until: usize) -> usize {
    bytes[..until.min(bytes.len())].iter().filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests;
