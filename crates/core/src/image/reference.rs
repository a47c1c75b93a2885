//! Image references, read as containerd reads them: `ParseDockerRef` of github.com/distribution/reference.
//! Hand-written: the grammar is small, references are untrusted input, and each review reads several of them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use memchr::{memchr, memrchr};
use url::Host;

use super::host::{DOCKER_HUB, DOCKER_HUB_INDEX};

/// Longest repository, `RepositoryNameTotalLengthMax` of distribution/reference.
const MAX_REPOSITORY: usize = 255;
/// Longest host: a name of 255 bytes, which is more than DNS allows, and a port.
const MAX_HOST: usize = 255 + ":65535".len();
/// Longest tag, `[\w][\w.-]{0,127}`.
const MAX_TAG: usize = 128;

/// A normalised image reference: `nginx` becomes `docker.io/library/nginx:latest`. If a Pod names a tag and a digest,
/// only the digest is set. The host is lower-case (unless only its capitals show that it is a host). `Display` gives
/// the normal form, which parses to the same reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageRef {
    /// The normal form, `host/repository:tag` or `host/repository@digest`.
    text: Box<str>,
    host_end: usize,
    repository_end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// An empty reference; Kubernetes allows it in a Pod, for others to fill in.
    #[error("the image reference is empty")]
    Empty,
    #[error("64 hexadecimal digits are an image ID, not a name")]
    ImageId,
    #[error(
        "the registry host is malformed; an image begins with host or host:port, without https://"
    )]
    Host,
    /// A number where DNS has no names, or an address in an unusual spelling. Nodes mostly resolve neither, but URLs
    /// take `127.1` for `127.0.0.1`, so that the operator's rule for that address would miss it.
    #[error(
        "the registry host is no name, nor an address as it is usually written: 127.0.0.1, [::1]"
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
    /// Returns the registry as the image names it, with its port if the image names one: `docker.io`, `[::1]:5000`.
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
        (self.text.as_bytes()[self.repository_end] == b'@').then(|| self.target())
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
        let (named, digest) = cut(given, b'@');
        let (host, rest) = split_host(named);
        let (repository, tag) = cut(rest, b':');
        check_host(host)?;
        if !is_repository(repository) {
            return Err(ReferenceError::Repository);
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Tag);
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(ReferenceError::Digest);
        }
        let library = if host == DOCKER_HUB && !repository.contains('/') {
            "library/"
        } else {
            ""
        };
        let host_end = host.len();
        let repository_end = host_end + 1 + library.len() + repository.len();
        let is_long = library.len() + repository.len() > MAX_REPOSITORY || host_end > MAX_HOST;
        // To distribution/reference a host with an underscore is a part of the repository.
        if is_long || repository_end > MAX_REPOSITORY && is_host_with_underscore(host) {
            return Err(ReferenceError::TooLong);
        }
        let (mark, target) = match digest {
            Some(digest) => ("@", digest),
            None => (":", tag.unwrap_or("latest")),
        };
        let mut text = String::with_capacity(repository_end + mark.len() + target.len());
        text.push_str(host);
        // No other place folds hosts. Without a dot or port, only its capitals make it a host.
        if has_dot_or_colon(host) {
            text.make_ascii_lowercase();
        }
        for part in ["/", library, repository, mark, target] {
            text.push_str(part);
        }
        Ok(Self {
            text: text.into(),
            host_end,
            repository_end,
        })
    }
}

/// Splits as `splitDockerDomain` of distribution/reference, but for case: for the operator's rules a host has one name.
fn split_host(named: &str) -> (&str, &str) {
    let (first, Some(rest)) = cut(named, b'/') else {
        return (DOCKER_HUB, named);
    };
    match first {
        _ if first.eq_ignore_ascii_case(DOCKER_HUB_INDEX) => (DOCKER_HUB, rest),
        _ if first.eq_ignore_ascii_case(DOCKER_HUB) => (DOCKER_HUB, rest),
        _ if first.eq_ignore_ascii_case(LOCALHOST) => (LOCALHOST, rest),
        _ if has_dot_or_colon(first) || first.bytes().any(|b| b.is_ascii_uppercase()) => {
            (first, rest)
        }
        _ => (DOCKER_HUB, named),
    }
}

/// Splits `text` at the first `at`. (`str::split_once` is slow over texts as short as these.)
fn cut(text: &str, at: u8) -> (&str, Option<&str>) {
    match memchr(at, text.as_bytes()) {
        Some(place) => (&text[..place], Some(&text[place + 1..])),
        None => (text, None),
    }
}

const LOCALHOST: &str = "localhost";

fn has_dot_or_colon(text: &str) -> bool {
    text.bytes().any(|b| b == b'.' || b == b':')
}

/// Checks `domain-component *["." domain-component] [":" port]`, or an IPv6 address in brackets.
fn check_host(host: &str) -> Result<(), ReferenceError> {
    let (name, port) = if let Some(inner) = host.strip_prefix('[') {
        let (address, after) = inner.split_once(']').ok_or(ReferenceError::Host)?;
        let digits = address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        // A dotted form (`::ffff:127.0.0.1`) parses as well.
        if !digits {
            return Err(ReferenceError::Host);
        }
        let parsed: Ipv6Addr = address.parse().map_err(|_| ReferenceError::Host)?;
        let usual = Host::<&str>::Ipv6(parsed).to_string();
        let is_usual = usual.trim_matches(['[', ']']).eq_ignore_ascii_case(address);
        if !is_usual || parsed.to_ipv4_mapped().is_some() {
            return Err(ReferenceError::Address);
        }
        match after.strip_prefix(':') {
            Some(port) => (None, Some(port)),
            None if after.is_empty() => (None, None),
            None => return Err(ReferenceError::Host),
        }
    } else {
        let (name, port) = cut(host, b':');
        (Some(name), port)
    };
    if let Some(name) = name {
        if !is_host_name(name) && !is_host_with_underscore(host) {
            return Err(ReferenceError::Host);
        }
        if ends_in_number(name) && name.parse::<Ipv4Addr>().is_err() {
            return Err(ReferenceError::Address);
        }
    }
    let Some(port) = port else { return Ok(()) };
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ReferenceError::Host);
    }
    match port.parse::<u16>() {
        // A leading zero would give one registry two names, and a rule may know only one of them.
        Ok(1..) if !port.starts_with('0') => Ok(()),
        _ => Err(ReferenceError::Port),
    }
}

/// Returns whether a URL has to take `name` for an address ("ends in a number" of the URL standard).
fn ends_in_number(name: &str) -> bool {
    let last = match memrchr(b'.', name.as_bytes()) {
        Some(dot) => &name[dot + 1..],
        None => name,
    };
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Checks for components of letters, digits and hyphens, no hyphen at their ends, with dots between them.
fn is_host_name(name: &str) -> bool {
    let is_inner = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
    let is_component = |component: &[u8]| {
        component.first().is_some_and(u8::is_ascii_alphanumeric)
            && component.last().is_some_and(u8::is_ascii_alphanumeric)
            && component.iter().all(is_inner)
    };
    let mut components = name.as_bytes().split(|b| *b == b'.');
    components.all(is_component)
}

/// Returns whether `host` is like `my_registry.corp`, without a port. distribution/reference takes such a host for the
/// first part of a repository, hence the grammar, and containerd for a host after all.
fn is_host_with_underscore(host: &str) -> bool {
    host.bytes().any(|b| b == b'_') && is_repository(host)
}

/// Checks `[a-z0-9]+((?:[._]|__|[-]+)[a-z0-9]+)*` for each component; slashes are between them.
fn is_repository(repository: &str) -> bool {
    let mut left = repository.as_bytes();
    loop {
        let (word, rest) =
            left.split_at(left.iter().position(|&b| !is_path(b)).unwrap_or(left.len()));
        let (separator, next) =
            rest.split_at(rest.iter().position(|&b| is_path(b)).unwrap_or(rest.len()));
        match separator {
            _ if word.is_empty() => return false,
            b"" => return true,
            b"/" | b"." | b"_" | b"__" => left = next,
            _ if separator.iter().all(|&b| b == b'-') => left = next,
            _ => return false,
        }
    }
}

/// Returns whether `tag` is one of the distribution specification. Anything else must not get into a reference.
pub fn is_tag(tag: &str) -> bool {
    (1..=MAX_TAG).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Returns whether a component of a repository may have this byte beside separators.
fn is_path(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Returns whether `digest` is of an algorithm that the image spec registers. Anything else must not get into a URL.
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
