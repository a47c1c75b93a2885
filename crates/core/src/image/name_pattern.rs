//! Globs over normalised names of images. Pure.

use std::fmt;
use std::str::FromStr;

use super::{DOCKER_HUB, ImageRef, canonical_host, canonical_name, is_docker_hub};

/// A glob for `host/repository`: `*` stands for any run of characters within one part, and `**`, as a whole part, for any
/// number of parts. A pattern covers matching names and everything below them, so a host alone covers all its images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePattern {
    parts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePatternError {
    #[error("a pattern begins with a registry, such as docker.io/library/nginx or *.example.com")]
    Host,
    /// A part is empty, or has a character that no name has.
    #[error(
        "a pattern is host[/path] of lower-case letters, digits, '.', '_', '-', '*', without https://, tag or digest"
    )]
    Part,
}

impl FromStr for NamePattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, ParsePatternError> {
        let text = canonical_name(text);
        let mut names = text.split('/');
        let host = canonical_host(names.next().unwrap_or_default());
        if host != "localhost" && !host.contains(['.', ':', '*']) {
            return Err(ParsePatternError::Host);
        }
        if !is_part(&host, b"._-*:[]") {
            return Err(ParsePatternError::Part);
        }
        let mut parts = vec![host];
        for name in names {
            if !is_part(name, b"._-*") {
                return Err(ParsePatternError::Part);
            }
            parts.push(name.to_owned());
        }
        if let Some(last) = parts.last()
            && last != "**"
        {
            parts.push("**".to_owned());
        }
        Ok(Self { parts })
    }
}

/// Checks a part of a pattern for lower-case letters, digits and these signs.
fn is_part(part: &str, signs: &[u8]) -> bool {
    if part.is_empty() || part != "**" && part.contains("**") {
        return false;
    }
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || signs.contains(&b);
    part.bytes().all(is_allowed)
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.parts.join("/");
        f.write_str(text.strip_suffix("/**").unwrap_or(&text))
    }
}

impl NamePattern {
    /// Returns whether the pattern covers this image. Allocates nothing, as it runs for each image of each Pod.
    pub fn covers(&self, image: &ImageRef) -> bool {
        let mut host = image.host();
        host = host.strip_suffix(":443").unwrap_or(host);
        if is_docker_hub(host) {
            host = DOCKER_HUB;
        }
        let pattern = self.parts.iter().map(String::as_str);
        let name = std::iter::once(host).chain(image.repository().split('/'));
        glob_matches(pattern, name, |part| part == "**", part_matches)
    }
}

fn part_matches(pattern: &str, part: &str) -> bool {
    glob_matches(
        pattern.bytes(),
        part.bytes(),
        |b| b == b'*',
        |b, other| b == other.to_ascii_lowercase(),
    )
}

/// Returns whether `pattern` matches the whole of `text`; a star stands for any number of items. After a mismatch, only
/// the last star may have to stand for one more item. Hence there is no recursion, and there are no more steps than the
/// product of both lengths.
pub fn glob_matches<P: Copy, T: Copy>(
    mut pattern: impl Iterator<Item = P> + Clone,
    mut text: impl Iterator<Item = T> + Clone,
    is_star: impl Fn(P) -> bool,
    same: impl Fn(P, T) -> bool,
) -> bool {
    // The pattern after the last star, and the text after the items for which the star stands.
    let mut retry = None;
    loop {
        let rest = text.clone();
        match (pattern.next(), text.next()) {
            (Some(star), _) if is_star(star) => {
                retry = Some((pattern.clone(), rest.clone()));
                text = rest;
            }
            (Some(wanted), Some(item)) if same(wanted, item) => {}
            (None, None) => return true,
            (_, None) => return false,
            (_, Some(_)) => {
                let Some((pattern_after_star, text_after_star)) = &mut retry else {
                    return false;
                };
                text_after_star.next();
                pattern = pattern_after_star.clone();
                text = text_after_star.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests;
