//! Patterns of images, and values by pattern: `URLsMatchStr` and `BasicDockerKeyring` of kubelet's
//! pkg/credentialprovider/keyring.go. A pattern matches an image under three conditions:
//!
//! - Their hosts have the same number of dot-separated parts. Each part of the pattern may have any number of `*`.
//! - They have the same port, or neither has one.
//! - The pattern's path is a prefix of the image's: `quay.io/foo` matches `quay.io/foobar` as well.
//!
//! Unlike in kubelet, the case of a host makes no difference: kubelet finds `Mixed.Case.com` only for images written
//! so.

use std::str::FromStr;

use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_INDEX, glob_matches};

/// Maximum bytes of a part of a host (RFC 1035).
const LABEL: usize = 63;

/// Pattern of images: `*.dkr.ecr.*.amazonaws.com`, `registry.example.com:5000/team`. The default matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePattern(Box<str>);

/// Values, each with the pattern of the registry, or of the part of a registry, that it is for.
pub(super) type DockerKeyring<T> = Vec<(ImagePattern, T)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("no host: write host, host:port or host/path, each part of the host may have *")]
    Host,
    #[error("has a scheme: leave out everything up to ://")]
    Scheme,
    /// A character that no image has; in kubelet a `?` begins a query.
    #[error("has a space, a control character or one of ?#@, which are in no image")]
    Character,
    #[error(
        "has a [ or \\ in its host: * is the only wildcard, so write one pattern for each host"
    )]
    Class,
}

impl ImagePattern {
    /// Returns whether the pattern matches a name, which is `host/repository` without tag and digest, or a mere host.
    pub fn matches(&self, name: &str) -> bool {
        let [glob, expected_port, prefix] = parts(&self.0);
        let [host, port, path] = parts(name);
        if port != expected_port || !path.starts_with(prefix) {
            return false;
        }
        let globs = glob.split('.');
        let labels = host.split('.');
        if globs.clone().count() != labels.clone().count() {
            return false;
        }
        globs.zip(labels).all(|(glob, label)| matches(glob, label))
    }

    /// Returns the host if it has wildcards. Matching such a host may take the square of its length.
    pub(super) fn glob(&self) -> Option<&str> {
        let [host, ..] = parts(&self.0);
        host.contains('*').then_some(host)
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
        let [host, ..] = parts(text);
        if host.is_empty() {
            return Err(PatternError::Host);
        }
        let host_end = text.find('/').unwrap_or(text.len());
        let is_refused =
            |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '@' | '?');
        if text.contains(is_refused) {
            return Err(PatternError::Character);
        }
        if host.contains(['[', '\\']) {
            return Err(PatternError::Class);
        }
        let mut text = text.to_owned();
        // Hosts of images are in lower case (`ImageRef`), and the case of a registry's name means nothing.
        if text[..host_end].contains(['.', ':']) {
            text[..host_end].make_ascii_lowercase();
        }
        Ok(Self(text.into()))
    }
}

/// Returns host, port (empty if there is none) and path (with its slash) of a URL without scheme.
fn parts(text: &str) -> [&str; 3] {
    let end = text.find('/').unwrap_or(text.len());
    let (authority, path) = text.split_at(end);
    // As `net.SplitHostPort` does: a host with colons has a port only if the host is in brackets.
    match authority.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            [host, port, path]
        }
        Some((host, port)) if !host.contains(':') => [host, port, path],
        _ => [authority, "", path],
    }
}

/// Returns whether a glob matches a part of a host. A part beyond DNS's limit matches no other glob than itself, as
/// matching may take the square of the length.
fn matches(glob: &str, part: &str) -> bool {
    if glob == part {
        return true;
    }
    let is_wildcard = |byte| byte == b'*';
    let is_same = |one, other| one == other;
    part.len() <= LABEL && glob_matches(glob.bytes(), part.bytes(), is_wildcard, is_same)
}

/// Makes a keyring from entries with the keys of a docker configuration. Like kubelet, leaves out keys without a valid
/// host.
pub(super) fn keyring<T>(
    entries: impl IntoIterator<Item = (impl AsRef<str>, T)>,
) -> DockerKeyring<T> {
    let mut keyring = Vec::new();
    for (key, value) in entries {
        if let Some(pattern) = normalized(key.as_ref()) {
            keyring.push((pattern, value));
        }
    }
    keyring
}

/// Returns the values that match a name, which is `host/repository` or a mere host. The most specific ones come first;
/// equal ones have the order of the keyrings.
pub(super) fn lookup<'r, T: 'r>(
    rings: impl Iterator<Item = &'r DockerKeyring<T>> + Clone,
    name: &str,
) -> Vec<&'r T> {
    let all = rings.flatten();
    let matching = all.clone().filter(|(key, _)| key.matches(name));
    let mut entries: Vec<_> = matching.collect();
    let is_of_hub = name.split('/').next() == Some(DOCKER_HUB);
    if entries.is_empty() && is_of_hub {
        let of_index = all.filter(|(key, _)| key.as_str() == DOCKER_HUB_INDEX);
        entries = of_index.collect();
    }
    // Like kubelet, sorts the keys backwards, so that longer paths come first. The sort is stable.
    entries.sort_by(|(one, _), (other, _)| other.cmp(one));
    entries.into_iter().map(|(_, value)| value).collect()
}

/// Normalizes a key: removes the scheme, the user, the query, and docker's `/v1` and `/v2`.
fn normalized(text: &str) -> Option<ImagePattern> {
    let url = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .unwrap_or(text);
    let name = url.split(['?', '#']).next().unwrap_or_default();
    let end = name.find('/').unwrap_or(name.len());
    let (authority, mut path) = name.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    if path.starts_with("/v1/") || path.starts_with("/v2/") {
        path = &path[3..];
    }
    if path == "/" {
        path = "";
    }
    // `quay.io:` means quay.io, but its key is sorted before `quay.io/team`.
    format!("{host}{path}").parse().ok()
}

#[cfg(test)]
mod tests;
