//! Invariants that hold for every manifest, index and config.

use super::{Content, EntryKind, Manifest, read, read_config};
use tolerarch_core::image::{PlatformSet, Preference, is_digest};

/// Reads the first line as `Content-Type`, and the rest as body. Checks that the result does not depend on blanks in
/// the JSON, names other documents only by digests, and gives each node at most one entry of an index.
pub fn manifest(data: &[u8]) -> bool {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let (Some(content_type), Some(body)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Ok(content_type) = std::str::from_utf8(content_type) else {
        return false;
    };
    let manifest = read(content_type, body);
    let config = read_config(body);
    if let Ok(text) = std::str::from_utf8(body) {
        let rewritten = with_blanks(text);
        if manifest.is_ok() {
            let again = read(content_type, rewritten.as_bytes());
            assert_eq!(again, manifest, "{rewritten}");
        }
        if config.is_ok() {
            let again = read_config(rewritten.as_bytes());
            assert_eq!(again, config, "{rewritten}");
        }
    }
    let Ok(Manifest { content, .. }) = manifest else {
        return false;
    };
    match content {
        Content::Artifact => {}
        Content::Image { config } => assert!(is_digest(&config), "{config}"),
        Content::Index(entries) => {
            assert!(entries.len() <= super::ENTRIES, "{}", entries.len());
            for entry in &entries {
                let digest = &entry.info.digest;
                let may_lack_one =
                    matches!(entry.kind, EntryKind::Runs { .. } | EntryKind::Skipped(_));
                assert!(
                    may_lack_one && digest.is_empty() || is_digest(digest),
                    "{digest}"
                );
            }
            let preferences: Vec<Preference> =
                entries.iter().map(|entry| entry.preference).collect();
            let mut served = PlatformSet::EMPTY;
            for nodes in Preference::choose(&preferences, PlatformSet::ALL) {
                let served_twice = nodes.intersection(served);
                assert!(served_twice.is_empty(), "two entries for {served_twice}");
                served = served.union(nodes);
            }
        }
    }
    true
}

/// Writes blanks around all punctuation outside of strings.
fn with_blanks(json: &str) -> String {
    let mut text = String::new();
    let mut in_string = false;
    let mut is_escaped = false;
    for letter in json.chars() {
        if !in_string && ",:{}[]".contains(letter) {
            text.extend([' ', '\n', letter, '\t']);
        } else {
            text.push(letter);
        }
        in_string ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
    }
    text
}
