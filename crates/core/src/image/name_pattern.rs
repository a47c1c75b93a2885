//! Globs over normalised names of images. Pure.

use std::fmt;
use std::str::FromStr;

use super::{DOCKER_HUB, ImageRef, canonical_host, canonical_name, is_docker_hub};

/// A glob over `host/repository`: `*` stands for any run of characters within one part, `**` as a whole part for any
/// number of parts. A pattern covers matching names and everything below them, so a bare host covers all its images.
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
        let mut parts: Vec<String> = canonical_name(text).split('/').map(str::to_owned).collect();
        let host = canonical_host(&parts[0]);
        if !(host == "localhost" || host.contains(['.', ':', '*'])) {
            return Err(ParsePatternError::Host);
        }
        parts[0] = host;
        for (place, part) in parts.iter().enumerate() {
            let is_of_name =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-*".contains(&b);
            let is_of_host = |b: u8| place == 0 && b":[]".contains(&b);
            let has_stars = part != "**" && part.contains("**");
            if part.is_empty() || has_stars || !part.bytes().all(|b| is_of_name(b) || is_of_host(b))
            {
                return Err(ParsePatternError::Part);
            }
        }
        if parts.last().is_some_and(|last| last != "**") {
            parts.push("**".to_owned());
        }
        Ok(Self { parts })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.parts.join("/");
        f.write_str(text.strip_suffix("/**").unwrap_or(&text))
    }
}

impl NamePattern {
    /// Returns whether the pattern covers this image. Allocates nothing, as it is called for each image of each Pod.
    pub fn covers(&self, image: &ImageRef) -> bool {
        let host = image.host();
        let host = host.strip_suffix(":443").unwrap_or(host);
        let host = if is_docker_hub(host) {
            DOCKER_HUB
        } else {
            host
        };
        let name = std::iter::once(host).chain(image.repository().split('/'));
        glob_matches(
            self.parts.iter().map(String::as_str),
            name,
            |part| part == "**",
            |part, text| {
                glob_matches(
                    part.bytes(),
                    text.bytes(),
                    |b| b == b'*',
                    |b, c| b == c.to_ascii_lowercase(),
                )
            },
        )
    }
}

/// Returns whether `pattern` matches `text` as a whole, where a star stands for any number of items. Only the last star
/// can ever have to take one more item: hence no recursion, and no more steps than the product of the lengths.
pub fn glob_matches<P: Copy, T: Copy>(
    mut pattern: impl Iterator<Item = P> + Clone,
    mut text: impl Iterator<Item = T> + Clone,
    is_star: impl Fn(P) -> bool,
    same: impl Fn(P, T) -> bool,
) -> bool {
    let mut retry = None;
    loop {
        let left = text.clone();
        match (pattern.next(), text.next()) {
            (Some(star), _) if is_star(star) => {
                retry = Some((pattern.clone(), left.clone()));
                text = left;
            }
            (Some(wanted), Some(item)) if same(wanted, item) => {}
            (None, None) => return true,
            (_, None) => return false,
            (_, Some(_)) => {
                let Some((after, from)) = &mut retry else {
                    return false;
                };
                from.next();
                pattern = after.clone();
                text = from.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests;
