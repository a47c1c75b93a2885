//! Parses the `WWW-Authenticate` header (RFC 9110 section 11.6.1) leniently, because registries write several
//! challenges in one header, unquoted values, and no commas. Pure.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Bearer {
        /// Realm as the registry wrote it: absolute or relative, of any host, untrusted.
        realm: String,
        service: Option<String>,
    },
    Basic,
}

/// Returns the challenges of all `WWW-Authenticate` headers, except those of unknown schemes.
pub(super) fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    for header in headers.get_all(WWW_AUTHENTICATE) {
        // A description in another encoding than UTF-8 does not invalidate the realm beside it.
        let text = String::from_utf8_lossy(header.as_bytes());
        challenges.extend(parse(&text));
    }
    challenges
}

fn parse(header: &str) -> Vec<Challenge> {
    let mut challenges: Vec<(&str, BTreeMap<String, String>)> = Vec::new();
    let mut rest = header.trim_start_matches(is_separator);
    while !rest.is_empty() {
        let (word, after) = token(rest);
        if word.is_empty() {
            // Neither a scheme nor a parameter, so the meaning of the rest is uncertain.
            break;
        }
        rest = match after.trim_start().strip_prefix('=') {
            // A word before '=' is a parameter of the current challenge, also in `Negotiate abc==`.
            Some(value) => {
                let (value, after) = parameter_value(value.trim_start());
                if let Some((_, parameters)) = challenges.last_mut() {
                    parameters.entry(word.to_ascii_lowercase()).or_insert(value);
                }
                after
            }
            None => {
                challenges.push((word, BTreeMap::new()));
                after
            }
        };
        rest = rest.trim_start_matches(is_separator);
    }
    challenges
        .into_iter()
        .filter_map(|(scheme, parameters)| challenge(scheme, parameters))
        .collect()
}

fn challenge(scheme: &str, mut parameters: BTreeMap<String, String>) -> Option<Challenge> {
    match &*scheme.to_ascii_lowercase() {
        "basic" => Some(Challenge::Basic),
        "bearer" => {
            let realm = parameters.remove("realm")?;
            if realm.is_empty() {
                return None;
            }
            let service = parameters.remove("service");
            Some(Challenge::Bearer { realm, service })
        }
        _ => None,
    }
}

fn is_separator(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

/// Splits off a token of RFC 9110, which here may also have the characters of token68.
fn token(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/:".contains(c)))
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Splits off a quoted string, or everything up to the next separator.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(is_separator).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[index + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests;
