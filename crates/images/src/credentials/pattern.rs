//! Patterns of images, and values by pattern: `URLsMatchStr` and `BasicDockerKeyring` of kubelet's
//! pkg/credentialprovider/keyring.go. A pattern has as many
//! dot-separated parts of the host as the image, each with any number of `*`; the same port, or none on both sides; and
//! a path that is a mere prefix: `quay.io/foo` means `quay.io/foobar` as well. Other than in kubelet, capitals of a
//! host make no difference: kubelet finds `Mixed.Case.com` only for images written so.

use std::str::FromStr;

use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_INDEX, glob_matches};

/// Maximum bytes of a part of a host (RFC 1035).
const LABEL: usize = 63;

/// Pattern of images: `*.dkr.ecr.*.amazonaws.com`, `registry.example.com:5000/team`. The default matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePattern(Box<str>);

/// Values by the registry, or part of a registry, that they are for.
pub(super) type DockerKeyring<T> = Vec<(ImagePattern, T)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("no host: write host, host:port or host/path, each part of the host may have *")]
    Host,
    #[error("has a scheme: leave out everything up to ://")]
    Scheme,
    /// A character that no image has; for kubelet a `?` begins a query.
    #[error("has a space, a control character or one of ?#@, which are in no image")]
    Character,
    #[error(
        "has a [ or \\ in its host: * is the only wildcard, so write one pattern for each host"
    )]
    Class,
}

impl ImagePattern {
    /// Returns whether the pattern matches a name: `host/repository` without tag and digest, or a mere host.
    pub fn matches(&self, name: &str) -> bool {
        let [glob, expected_port, prefix] = parts(&self.0);
        let [host, port, path] = parts(name);
        if port != expected_port || !path.starts_with(prefix) {
            return false;
        }
        let globs = glob.split('.');
        let labels = host.split('.');
        globs.clone().count() == labels.clone().count()
            && globs.zip(labels).all(|(glob, label)| matches(glob, label))
    }

    /// Returns the host, if it has wildcards: comparing may take the square of its length.
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
        let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '#' | '@' | '?');
        if text.contains(strange) {
            return Err(PatternError::Character);
        }
        if host.contains(['[', '\\']) {
            return Err(PatternError::Class);
        }
        let mut text = text.to_owned();
        // Hosts of images are in lower case (`ImageRef`), and a registry's name has no case.
        if text[..host_end].contains(['.', ':']) {
            text[..host_end].make_ascii_lowercase();
        }
        Ok(Self(text.into()))
    }
}

/// Returns host, port (empty for none) and path (with its slash) of a URL without scheme.
fn parts(text: &str) -> [&str; 3] {
    let end = text.find('/').unwrap_or(text.len());
    let (authority, path) = text.split_at(end);
    // `net.SplitHostPort`: several colons precede a port only after an address in brackets.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') => {
            (host.trim_start_matches('[').trim_end_matches(']'), port)
        }
        Some((host, port)) if !host.contains(':') => (host, port),
        _ => (authority, ""),
    };
    [host, port, path]
}

/// Returns whether a glob matches a part of a host: none beyond DNS's limit, as a glob may take the length squared.
fn matches(glob: &str, part: &str) -> bool {
    if glob == part {
        return true;
    }
    let is_wildcard = |byte| byte == b'*';
    let is_same = |one, other| one == other;
    part.len() <= LABEL && glob_matches(glob.bytes(), part.bytes(), is_wildcard, is_same)
}

/// Makes a keyring by the keys of a docker configuration. A key without a valid host is left out, as kubelet does.
pub(super) fn keyring<T>(
    entries: impl IntoIterator<Item = (impl AsRef<str>, T)>,
) -> DockerKeyring<T> {
    entries
        .into_iter()
        .filter_map(|(text, value)| Some((key(text.as_ref())?, value)))
        .collect()
}

/// Returns the values that match a name (`host/repository` or a mere host), most specific first, then in ring order.
pub(super) fn lookup<'r, T: 'r>(
    rings: impl Iterator<Item = &'r DockerKeyring<T>> + Clone,
    name: &str,
) -> Vec<&'r T> {
    let all = rings.flatten();
    let matching = all.clone().filter(|(key, _)| key.matches(name));
    let mut entries: Vec<_> = matching.collect();
    if entries.is_empty() && name.split('/').next() == Some(DOCKER_HUB) {
        let of_hub = all.filter(|(key, _)| key.as_str() == DOCKER_HUB_INDEX);
        entries = of_hub.collect();
    }
    // Kubelet sorts the keys backwards, so that longer paths come first. The sort is stable.
    entries.sort_by(|(one, _), (other, _)| other.cmp(one));
    entries.into_iter().map(|(_, value)| value).collect()
}

/// Normalizes a key: no scheme, user or query, and none of docker's `/v1` and `/v2`.
fn key(text: &str) -> Option<ImagePattern> {
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
