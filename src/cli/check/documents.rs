//! Splits a file into YAML or JSON documents and parses each separately, so that a broken one does not affect the others.

use std::collections::BTreeMap;

use serde_json::Deserializer;
use serde_json::value::RawValue;

use tolerarch_text::yaml::{self, Data, Dialect, Fault, Key, KeyKind, Node, Reader};

/// Maximum size of a file in bytes. A list of all Pods of a large cluster takes tens of megabytes.
pub(super) const FILE: u64 = 256 << 20;

/// Maximum depth of a JSON document: serde_json's own limit, which does not apply to raw values.
const DEPTH: usize = 128;

/// Returns the documents that are not empty, in the order of the file.
pub fn read(bytes: &[u8]) -> Vec<Result<Node, Fault>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] = bytes {
        return vec![Err(Fault::new(1, "it is UTF-16; only UTF-8 is read"))];
    }
    if bytes.iter().take(1024).any(|&byte| byte == 0) {
        return vec![Err(Fault::new(1, "it is binary, neither YAML nor JSON"))];
    }
    let mut all = Vec::new();
    let mut reader = Reader::new(Dialect::Kubernetes);
    for (before, chunk) in chunks(bytes) {
        let text = match std::str::from_utf8(chunk) {
            Ok(text) => text,
            Err(error) => {
                let valid = chunk[..error.valid_up_to()].iter();
                let line = before + 1 + valid.filter(|&&byte| byte == b'\n').count();
                all.push(Err(Fault::new(line, "it is not UTF-8")));
                continue;
            }
        };
        let may_be_json = text.trim_start().starts_with(['{', '[']);
        if is_empty(text) || may_be_json && json(text, before, &mut all) {
            continue;
        }
        match reader.read(before, text) {
            Ok(mut nodes) => {
                nodes.retain(|node| !matches!(node.data, Data::Null));
                all.extend(nodes.into_iter().map(Ok));
            }
            Err(error) => all.push(Err(error)),
        }
    }
    all
}

/// Splits a file at lines that begin with `---`, as kubectl does. Returns each chunk with the number of lines before it.
fn chunks(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut chunks = Vec::new();
    let mut begin = 0;
    let mut before = 0;
    let mut offset = 0;
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        if let Some(rest) = line.strip_prefix(b"---")
            && rest.first().is_none_or(u8::is_ascii_whitespace)
        {
            chunks.push((before, &bytes[begin..offset]));
            // Text after the dashes on the same line belongs to the document.
            let is_bare = rest.trim_ascii().is_empty();
            begin = if is_bare { offset + line.len() } else { offset };
            before = if is_bare { index + 1 } else { index };
        }
        offset += line.len();
    }
    chunks.push((before, &bytes[begin..]));
    chunks
}

/// Returns whether a text has nothing but blank lines, comments, directives and document ends (`...`).
fn is_empty(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with(['#', '%']) || line == "...")
}

/// Reads JSON documents into `all`. Returns `false` if the first is not JSON and the text as a whole is YAML.
fn json(text: &str, before: usize, all: &mut Vec<Result<Node, Fault>>) -> bool {
    let newlines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    // Every part borrows from the text, so its address gives its offset.
    let line = |part: &str| {
        let offset = part.as_ptr().addr() - text.as_ptr().addr();
        before + 1 + newlines.partition_point(|newline| *newline < offset)
    };
    let mut rest = text;
    loop {
        let mut stream = Deserializer::from_str(rest).into_iter::<&RawValue>();
        let (read, length) = match stream.next() {
            None => return true,
            Some(Ok(raw)) => (node(raw, &line, DEPTH), stream.byte_offset()),
            Some(Err(error)) => {
                // A broken document ends before the next line that begins with a brace.
                let begin = rest.len() - rest.trim_start().len();
                let length = match rest[begin..].find("\n{") {
                    Some(at) => begin + at + 1,
                    None => rest.len(),
                };
                let fault = not_json(line(rest) + error.line().max(1) - 1, &error);
                (Err(fault), length)
            }
        };
        let is_yaml = || yaml::read(text, Dialect::Kubernetes).is_ok();
        if read.is_err() && rest.len() == text.len() && is_yaml() {
            return false;
        }
        all.push(read);
        rest = &rest[length..];
    }
}

fn node(raw: &RawValue, line_of: &impl Fn(&str) -> usize, depth: usize) -> Result<Node, Fault> {
    let text = raw.get();
    let line = line_of(text);
    let fault = |error: serde_json::Error| not_json(line, &error);
    let data = match text.as_bytes().first() {
        Some(b'{' | b'[') if depth == 0 => {
            return Err(Fault::new(
                line,
                format!("nested more than {DEPTH} levels deep"),
            ));
        }
        Some(b'{') => {
            let mut raw: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(fault)?;
            // Managed fields may be nested as deeply as the API server allows, and have no effect on decisions.
            raw.remove("managedFields");
            let mut members = Vec::with_capacity(raw.len());
            for (text, raw) in raw {
                let member = node(raw, line_of, depth - 1)?;
                let key = Key {
                    line: member.line,
                    text,
                    kind: KeyKind::Text,
                };
                members.push((key, member));
            }
            Data::Map(members)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(fault)?;
            let items = items.into_iter().map(|raw| node(raw, line_of, depth - 1));
            Data::List(items.collect::<Result<_, _>>()?)
        }
        Some(b'"') => Data::Text(serde_json::from_str(text).map_err(fault)?),
        Some(b't' | b'f') => Data::Bool(serde_json::from_str(text).map_err(fault)?),
        Some(b'n') => Data::Null,
        _ => Data::Number(serde_json::from_str(text).map_err(fault)?),
    };
    Ok(Node { line, data })
}

/// Returns a fault at `line` with the error's message, without the error's own position, which is relative to a part.
fn not_json(line: usize, error: &serde_json::Error) -> Fault {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    Fault::new(line, format!("not JSON: {what}"))
}

#[cfg(test)]
mod tests;
