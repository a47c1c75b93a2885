//! Finds the docker entries for an image: kubelet's `BasicDockerKeyring` (pkg/credentialprovider/keyring.go).

use super::pattern::ImagePattern;
use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_INDEX};

/// Values by the registry, or part of a registry, that they are for.
pub(super) type DockerKeyring<T> = Vec<(ImagePattern, T)>;

/// Makes a keyring by the keys of a docker configuration. A key without a valid host is left out, as kubelet does.
pub(super) fn keyring<T>(entries: impl IntoIterator<Item = (impl AsRef<str>, T)>) -> DockerKeyring<T> {
    entries.into_iter().filter_map(|(given, value)| Some((key(given.as_ref())?, value))).collect()
}

/// Returns the values that match a name (`host/repository` or a mere host), most specific first, then in ring order.
pub(super) fn lookup<'r, T: 'r>(
    rings: impl Iterator<Item = &'r DockerKeyring<T>> + Clone,
    name: &str,
) -> Vec<&'r T> {
    let entries = rings.flatten();
    let mut found: Vec<_> = entries.clone().filter(|(key, _)| key.matches(name)).collect();
    if found.is_empty() && name.split('/').next() == Some(DOCKER_HUB) {
        found = entries.filter(|(key, _)| key.as_str() == DOCKER_HUB_INDEX).collect();
    }
    // Kubelet sorts the keys backwards, so that longer paths come first. The sort is stable.
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    found.into_iter().map(|(_, value)| value).collect()
}

/// Normalizes a key: no scheme, user or query, and none of docker's `/v1` and `/v2`.
fn key(given: &str) -> Option<ImagePattern> {
    let rest = given.strip_prefix("https://").or_else(|| given.strip_prefix("http://")).unwrap_or(given);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = match path.get(..4) {
        Some("/v1/" | "/v2/") => &path[3..],
        _ => path,
    };
    let path = if path == "/" { "" } else { path };
    // `quay.io:` means quay.io, but its key is sorted before `quay.io/team`.
    format!("{host}{path}").parse().ok()
}

#[cfg(test)]
mod tests;
