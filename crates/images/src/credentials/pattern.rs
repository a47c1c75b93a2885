//! Patterns of images, by kubelet's rules: `URLsMatchStr` of pkg/credentialprovider/keyring.go. A pattern has as many
//! dot-separated parts of the host as the image, each with any number of `*`; the same port, or none on both sides; and
//! a path that is a mere prefix: `quay.io/foo` means `quay.io/foobar` as well. Other than in kubelet, capitals of a
//! host make no difference: kubelet finds `Mixed.Case.com` only for images written so.

use std::str::FromStr;

use tolerarch_core::image::glob_matches;

/// Maximal bytes of a part of a host (RFC 1035).
const LABEL: usize = 63;

/// Pattern of images: `*.dkr.ecr.*.amazonaws.com`, `registry.example.com:5000/team`. The default matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePattern(Box<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("no host: write host, host:port or host/path, each part of the host may have *")]
    Host,
    #[error("has a scheme: leave out everything up to ://")]
    Scheme,
    /// A character that no image has; for kubelet a `?` begins a query.
    #[error("has a space, a control character or one of ?#@, which are in no image")]
    Character,
    #[error("has a [ or \\ in its host: * is the only wildcard, so write one pattern for each host")]
    Class,
}

impl ImagePattern {
    /// Returns whether the pattern matches a name: `host/repository` without tag and digest, or a mere host.
    pub fn matches(&self, name: &str) -> bool {
        let ([own_host, own_port, own_path], [host, port, path]) = (parts(&self.0), parts(name));
        own_port == port
            && path.starts_with(own_path)
            && own_host.split('.').count() == host.split('.').count()
            && own_host.split('.').zip(host.split('.')).all(|(glob, part)| matches(glob, part))
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
    let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
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
    let is_same = || glob_matches(glob.bytes(), part.bytes(), |byte| byte == b'*', |own, byte| own == byte);
    glob == part || part.len() <= LABEL && is_same()
}

#[cfg(test)]
mod tests;
