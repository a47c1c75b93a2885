//! Image references, parsed as containerd parses them: `ParseDockerRef` of github.com/distribution/reference. The parser is
//! hand-written, as the grammar is small, references are untrusted input, and each review has several of them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use memchr::{memchr, memrchr};
use url::Host;

use super::host::{DOCKER_HUB, DOCKER_HUB_INDEX};

/// Maximum bytes of a repository: `RepositoryNameTotalLengthMax` of distribution/reference.
const MAX_REPOSITORY: usize = 255;
/// Maximum bytes of a host: a name of 255 bytes, which is more than DNS allows, and a port.
const MAX_HOST: usize = 255 + ":65535".len();
/// Maximum bytes of a tag: `[\w][\w.-]{0,127}`.
const MAX_TAG: usize = 128;

/// A normalised image reference: `nginx` becomes `docker.io/library/nginx:latest`. If a Pod names both a tag and a digest,
/// the reference has only the digest. The host is lower-case, unless only its capitals show that it is a host. `Display`
/// writes the normal form, which parses to the same reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageRef {
    /// The normal form, `host/repository:tag` or `host/repository@digest`.
    text: Box<str>,
    host_end: usize,
    repository_end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Kubernetes allows an empty reference in a Pod, for a controller or webhook to fill in.
    #[error("the image reference is empty")]
    Empty,
    #[error("64 hexadecimal digits are an image ID, not a name")]
    ImageId,
    #[error(
        "the registry host is malformed; an image begins with host or host:port, without https://"
    )]
    Host,
    /// A name that ends in a number, which DNS has not, or an address in an unusual spelling. Most nodes resolve neither.
    /// But a URL reads `127.1` as `127.0.0.1`, so that the operator's rule for that address would not match.
    #[error(
        "the registry host is neither a name nor an address in its usual form, such as 127.0.0.1 or [::1]"
    )]
    Address,
    #[error("the registry port is not within 1 to 65535, or begins with a zero")]
    Port,
    #[error("the repository is malformed: lower-case letters, digits and single separators only")]
    Repository,
    #[error("the repository is longer than {MAX_REPOSITORY} bytes, or the host than {MAX_HOST}")]
    TooLong,
    #[error("the tag is malformed: at most {MAX_TAG} letters, digits, '_', '.', '-'")]
    Tag,
    #[error("the digest is malformed: sha256 with 64 or sha512 with 128 hexadecimal digits")]
    Digest,
}

impl ImageRef {
    /// Returns the registry, with a port if the image names one: `docker.io`, `[::1]:5000`.
    pub fn host(&self) -> &str {
        &self.text[..self.host_end]
    }

    /// Returns the repository below the host: `library/nginx`.
    pub fn repository(&self) -> &str {
        &self.text[self.host_end + 1..self.repository_end]
    }

    /// Returns host and repository, without tag and digest: `docker.io/library/nginx`.
    pub fn name(&self) -> &str {
        &self.text[..self.repository_end]
    }

    /// Returns the tag or the digest: the `reference` of a manifest in the distribution protocol.
    pub fn target(&self) -> &str {
        &self.text[self.repository_end + 1..]
    }

    pub fn digest(&self) -> Option<&str> {
        if self.text.as_bytes()[self.repository_end] == b'@' {
            Some(self.target())
        } else {
            None
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for ImageRef {
    type Err = ReferenceError;

    fn from_str(given: &str) -> Result<Self, ReferenceError> {
        if given.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if given.len() == 64 && given.bytes().all(is_lower_hex) {
            return Err(ReferenceError::ImageId);
        }
        let (name_and_tag, digest) = cut(given, b'@');
        let (host, rest) = split_host(name_and_tag);
        let (repository, tag) = cut(rest, b':');
        check_host(host)?;
        if !is_repository(repository) {
            return Err(ReferenceError::Repository);
        }
        if let Some(tag) = tag
            && !is_tag(tag)
        {
            return Err(ReferenceError::Tag);
        }
        if let Some(digest) = digest
            && !is_digest(digest)
        {
            return Err(ReferenceError::Digest);
        }
        let library = if host == DOCKER_HUB && !repository.contains('/') {
            "library/"
        } else {
            ""
        };
        let host_end = host.len();
        let repository_end = host_end + 1 + library.len() + repository.len();
        if library.len() + repository.len() > MAX_REPOSITORY || host_end > MAX_HOST {
            return Err(ReferenceError::TooLong);
        }
        // For distribution/reference, a host with an underscore is a part of the repository.
        if repository_end > MAX_REPOSITORY && is_host_with_underscore(host) {
            return Err(ReferenceError::TooLong);
        }
        let (separator, target) = match digest {
            Some(digest) => ("@", digest),
            None => (":", tag.unwrap_or("latest")),
        };
        let mut text = String::with_capacity(repository_end + separator.len() + target.len());
        text.push_str(host);
        // Only here is the case of a host folded. A host without a dot or port keeps the capitals that make it a host.
        if has_dot_or_colon(host) {
            text.make_ascii_lowercase();
        }
        for part in ["/", library, repository, separator, target] {
            text.push_str(part);
        }
        Ok(Self {
            text: text.into(),
            host_end,
            repository_end,
        })
    }
}

/// Splits a name into host and rest, as `splitDockerDomain` of distribution/reference does. But known hosts count in any
/// case: for the operator's rules, a host has one name.
fn split_host(name: &str) -> (&str, &str) {
    let (first, Some(rest)) = cut(name, b'/') else {
        return (DOCKER_HUB, name);
    };
    if first.eq_ignore_ascii_case(DOCKER_HUB_INDEX) || first.eq_ignore_ascii_case(DOCKER_HUB) {
        return (DOCKER_HUB, rest);
    }
    if first.eq_ignore_ascii_case(LOCALHOST) {
        return (LOCALHOST, rest);
    }
    if has_dot_or_colon(first) || first.bytes().any(|b| b.is_ascii_uppercase()) {
        return (first, rest);
    }
    (DOCKER_HUB, name)
}

/// Splits `text` at the first `separator`. (`str::split_once` is slow for texts as short as these.)
fn cut(text: &str, separator: u8) -> (&str, Option<&str>) {
    match memchr(separator, text.as_bytes()) {
        Some(index) => (&text[..index], Some(&text[index + 1..])),
        None => (text, None),
    }
}

const LOCALHOST: &str = "localhost";

fn has_dot_or_colon(text: &str) -> bool {
    text.bytes().any(|b| b == b'.' || b == b':')
}

/// Checks `domain-component *["." domain-component] [":" port]`, or an IPv6 address in brackets.
fn check_host(host: &str) -> Result<(), ReferenceError> {
    let port = match host.strip_prefix('[') {
        Some(bracketed) => check_ipv6(bracketed)?,
        None => {
            let (name, port) = cut(host, b':');
            if !is_host_name(name) && !is_host_with_underscore(host) {
                return Err(ReferenceError::Host);
            }
            if ends_in_number(name) && name.parse::<Ipv4Addr>().is_err() {
                return Err(ReferenceError::Address);
            }
            port
        }
    };
    let Some(port) = port else { return Ok(()) };
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ReferenceError::Host);
    }
    match port.parse::<u16>() {
        // A leading zero would give a registry a second name, which the operator's rules may miss.
        Ok(1..) if !port.starts_with('0') => Ok(()),
        _ => Err(ReferenceError::Port),
    }
}

/// Checks an IPv6 address up to its closing bracket, and returns the port after it.
fn check_ipv6(bracketed: &str) -> Result<Option<&str>, ReferenceError> {
    let Some((address, after)) = bracketed.split_once(']') else {
        return Err(ReferenceError::Host);
    };
    // `Ipv6Addr` would parse a dotted form (`::ffff:127.0.0.1`) as well.
    if !address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') {
        return Err(ReferenceError::Host);
    }
    let Ok(parsed) = address.parse::<Ipv6Addr>() else {
        return Err(ReferenceError::Host);
    };
    let canonical = Host::<&str>::Ipv6(parsed).to_string();
    let canonical = canonical.trim_matches(['[', ']']);
    if !canonical.eq_ignore_ascii_case(address) || parsed.to_ipv4_mapped().is_some() {
        return Err(ReferenceError::Address);
    }
    if after.is_empty() {
        return Ok(None);
    }
    match after.strip_prefix(':') {
        Some(port) => Ok(Some(port)),
        None => Err(ReferenceError::Host),
    }
}

/// Returns whether a URL would read `name` as an address ("ends in a number" of the URL standard).
fn ends_in_number(name: &str) -> bool {
    let last = match memrchr(b'.', name.as_bytes()) {
        Some(dot) => &name[dot + 1..],
        None => name,
    };
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return true;
    }
    match last.strip_prefix("0x").or_else(|| last.strip_prefix("0X")) {
        Some(hex) => hex.bytes().all(|b| b.is_ascii_hexdigit()),
        None => false,
    }
}

/// Checks for components of letters, digits and hyphens, with dots between them. A hyphen is not first or last.
fn is_host_name(name: &str) -> bool {
    let mut components = name.as_bytes().split(|b| *b == b'.');
    components.all(is_host_component)
}

fn is_host_component(component: &[u8]) -> bool {
    let (Some(first), Some(last)) = (component.first(), component.last()) else {
        return false;
    };
    if !first.is_ascii_alphanumeric() || !last.is_ascii_alphanumeric() {
        return false;
    }
    let is_allowed = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
    component.iter().all(is_allowed)
}

/// Returns whether `host` is like `my_registry.corp`, without a port. For distribution/reference such a host is the first
/// part of a repository, hence the check by that grammar. For containerd it is a host.
fn is_host_with_underscore(host: &str) -> bool {
    host.bytes().any(|b| b == b'_') && is_repository(host)
}

/// Checks components, with slashes between them, each of the form `[a-z0-9]+((?:[._]|__|[-]+)[a-z0-9]+)*`.
fn is_repository(repository: &str) -> bool {
    let mut rest = repository.as_bytes();
    loop {
        let word_end = rest.iter().position(|b| !is_word(*b));
        let (word, after_word) = rest.split_at(word_end.unwrap_or(rest.len()));
        let separator_end = after_word.iter().position(|b| is_word(*b));
        let (separator, next) = after_word.split_at(separator_end.unwrap_or(after_word.len()));
        if word.is_empty() {
            return false;
        }
        match separator {
            b"" => return true,
            b"/" | b"." | b"_" | b"__" => {}
            _ if separator.iter().all(|&b| b == b'-') => {}
            _ => return false,
        }
        rest = next;
    }
}

/// Returns whether `tag` is valid by the distribution specification. No other text may get into a reference.
pub fn is_tag(tag: &str) -> bool {
    if tag.is_empty() || tag.len() > MAX_TAG || tag.starts_with(['.', '-']) {
        return false;
    }
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    tag.bytes().all(is_allowed)
}

/// Returns whether this byte is a letter or digit of a component, rather than a separator.
fn is_word(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Returns whether `digest` is valid, with an algorithm that the image spec registers. No other text may get into a URL.
pub fn is_digest(digest: &str) -> bool {
    let length = match digest.split_once(':') {
        Some(("sha256", _)) => 64,
        Some(("sha512", _)) => 128,
        _ => return false,
    };
    let hex = &digest["sha256:".len()..];
    hex.len() == length && hex.bytes().all(is_lower_hex)
}

fn is_lower_hex(b: u8) -> bool {
    b.is_ascii_digit() || (b'a'..=b'f').contains(&b)
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
