//! Which images a pattern means, by kubelet's rules: `URLsMatchStr` of pkg/credentialprovider/keyring.go.
//!
//! As many dot-separated parts of the host as the image has, each a glob of Go's `filepath.Match`; the same port, or none
//! on both sides; and a path that is a mere prefix, so that `quay.io/foo` means `quay.io/foobar` as well. Other than
//! kubelet, capitals of a host make no difference: kubelet finds `Mixed.Case.com` for images that are written like it.

use std::fmt;
use std::str::FromStr;

/// Bytes of a part of a host.
const LABEL: usize = 63;
/// Characters that make a part of a host a glob.
const SPECIAL: [char; 4] = ['*', '?', '[', '\\'];

/// A pattern of images such as `*.dkr.ecr.*.amazonaws.com` or `registry.example.com:5000/team`. The default one means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePattern(Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("no host: write host, host:port or host/path, each part of the host may have *")]
    Host,
    #[error("has a scheme: leave out everything up to ://")]
    Scheme,
    /// A character that can be in no image; to kubelet a `?` begins a query.
    #[error("has a space, a control character or one of ?#@, which are in no image")]
    Character,
    #[error("a [ without its ], or a \\ at the end")]
    Glob,
}

impl ImagePattern {
    /// Whether this is one of the images meant: `host/repository` without tag and digest, or a mere host.
    pub fn matches(&self, name: &str) -> bool {
        let (own, other) = (Parts::of(&self.0), Parts::of(name));
        own.port == other.port
            && other.path.starts_with(own.path)
            && own.host.split('.').count() == other.host.split('.').count()
            && own.host.split('.').zip(other.host.split('.')).all(|(glob, part)| glob_matches(glob, part))
    }

    /// The host, if parts of it are globs: comparing may take the square of its length.
    pub(super) fn glob(&self) -> Option<&str> {
        Some(Parts::of(&self.0).host).filter(|host| host.contains(SPECIAL))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImagePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.contains("://") {
            return Err(PatternError::Scheme);
        }
        let parts = Parts::of(text);
        if parts.host.is_empty() {
            return Err(PatternError::Host);
        }
        let host_end = text.find('/').unwrap_or(text.len());
        let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '@' | '?');
        if text.contains(strange) {
            return Err(PatternError::Character);
        }
        if parts.host.split('.').any(|glob| Piece::all(glob).is_none()) {
            return Err(PatternError::Glob);
        }
        let mut text = text.to_owned();
        // As the hosts of images are (`ImageRef`): in any case they are the same registry.
        if text[..host_end].contains(['.', ':']) {
            text[..host_end].make_ascii_lowercase();
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ImagePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Host, port (empty for none) and path (with its slash) of a URL without scheme.
struct Parts<'t> {
    host: &'t str,
    port: &'t str,
    path: &'t str,
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> Self {
        let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        // As `net.SplitHostPort` does: of several colons only those of an address in brackets are no port's.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') => {
                (host.trim_start_matches('[').trim_end_matches(']'), port)
            }
            Some((host, port)) if !host.contains(':') => (host, port),
            _ => (authority, ""),
        };
        Self { host, port, path }
    }
}

/// Go's `filepath.Match` for texts without slashes.
fn glob_matches(glob: &str, text: &str) -> bool {
    if !glob.contains(SPECIAL) {
        return glob == text;
    }
    // No part of a host has more (RFC 1035), and a glob may take the square of it.
    if text.len() > LABEL {
        return false;
    }
    let Some(pieces) = Piece::all(glob) else { return false };
    let text: Vec<char> = text.chars().collect();
    // Where the last star began, and how far it has eaten.
    let (mut piece, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        match pieces.get(piece) {
            Some(Piece::Star) => {
                star = Some((piece, place));
                piece += 1;
            }
            Some(one) if one.accepts(text[place]) => {
                piece += 1;
                place += 1;
            }
            _ => {
                let Some((at, eaten)) = star else { return false };
                star = Some((at, eaten + 1));
                (piece, place) = (at + 1, eaten + 1);
            }
        }
    }
    pieces[piece..].iter().all(|rest| *rest == Piece::Star)
}

#[derive(PartialEq)]
enum Piece {
    Star,
    Any,
    Exactly(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Piece {
    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Star => false,
            Self::Any => true,
            Self::Exactly(own) => *own == c,
            Self::Class { negated, ranges } => {
                *negated != ranges.iter().any(|(from, to)| (*from..=*to).contains(&c))
            }
        }
    }

    /// `None` for what Go calls a bad pattern.
    fn all(glob: &str) -> Option<Vec<Self>> {
        let mut rest = glob.chars().peekable();
        let mut pieces = Vec::new();
        while let Some(c) = rest.next() {
            pieces.push(match c {
                '*' => Self::Star,
                '?' => Self::Any,
                '\\' => Self::Exactly(rest.next()?),
                '[' => {
                    let negated = rest.next_if_eq(&'^').is_some();
                    let mut ranges = Vec::new();
                    while ranges.is_empty() || rest.next_if_eq(&']').is_none() {
                        let from = in_class(&mut rest)?;
                        let to = if rest.next_if_eq(&'-').is_some() { in_class(&mut rest)? } else { from };
                        ranges.push((from, to));
                    }
                    Self::Class { negated, ranges }
                }
                other => Self::Exactly(other),
            });
        }
        Some(pieces)
    }
}

/// One end of a range, `getEsc` of Go's path/filepath.
fn in_class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match rest.next()? {
        '-' | ']' => None,
        '\\' => rest.next(),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
