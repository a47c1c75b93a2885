//! Kubelet's `BasicDockerKeyring` (pkg/credentialprovider/keyring.go): which entries of docker configurations an image
//! means.

use super::pattern::ImagePattern;
use crate::image::{DOCKER_HUB, DOCKER_HUB_INDEX};

/// Values by the registry, or part of one, that they are for.
#[derive(Debug)]
pub(super) struct DockerKeyring<T>(Vec<(ImagePattern, T)>);

impl<T> Default for DockerKeyring<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> DockerKeyring<T> {
    /// By the keys of a docker configuration. A key that means no host is left out, as kubelet does.
    pub(super) fn new<'k>(entries: impl IntoIterator<Item = (&'k str, T)>) -> Self {
        Self(entries.into_iter().filter_map(|(given, value)| Some((key(given)?, value))).collect())
    }

    /// What is under this very key, after a reload.
    pub(super) fn under(&self, key: &ImagePattern) -> impl Iterator<Item = &T> {
        self.0.iter().filter(move |(own, _)| own == key).map(|(_, value)| value)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keys and values.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&ImagePattern, &T)> {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

/// All that matches a name (`host/repository` or a mere host) in any of the rings, most specific first, in the order of
/// the rings where the keys are equal.
pub(super) fn lookup<'r, T, R>(
    rings: impl Iterator<Item = (R, &'r DockerKeyring<T>)> + Clone,
    name: &str,
) -> Vec<(R, &'r ImagePattern, &'r T)>
where
    R: Clone,
{
    let chosen = |choose: &dyn Fn(&ImagePattern) -> bool| -> Vec<_> {
        let entries =
            rings.clone().flat_map(|(ring, own)| own.0.iter().map(move |entry| (ring.clone(), entry)));
        entries.filter(|(_, (key, _))| choose(key)).map(|(ring, (key, value))| (ring, key, value)).collect()
    };
    let mut found = chosen(&|key| key.matches(name));
    // Kubelet sorts the keys backwards, so that longer paths come first. The sort is stable.
    found.sort_by(|(_, one, _), (_, other, _)| other.cmp(one));
    if found.is_empty() && name.split('/').next() == Some(DOCKER_HUB) {
        return chosen(&|key| key.as_str() == DOCKER_HUB_INDEX);
    }
    found
}

/// A key as it is compared: without scheme, user, query, and without docker's `/v1` and `/v2`.
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
    // Without its port `quay.io:` is quay.io, but it is sorted before `quay.io/team`.
    format!("{host}{path}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalises_keys_as_kubelet_does() {
        for (given, normal) in [
            ("quay.io", Some("quay.io")),
            ("https://quay.io", Some("quay.io")),
            ("http://quay.io/", Some("quay.io")),
            ("https://index.docker.io/v1/", Some("index.docker.io")),
            ("index.docker.io/v1/", Some("index.docker.io")),
            ("https://index.docker.io/v1", Some("index.docker.io/v1")),
            ("https://registry.io/v2/", Some("registry.io")),
            ("https://registry.io/v2/team", Some("registry.io/team")),
            ("registry.io:5000/v1/team/app", Some("registry.io:5000/team/app")),
            ("registry.io/v3/", Some("registry.io/v3/")),
            ("registry.io/team/", Some("registry.io/team/")),
            ("https://user:word@registry.io/team", Some("registry.io/team")),
            ("registry.io?a=b", Some("registry.io")),
            ("registry.io:/team", Some("registry.io:/team")),
            ("*.registry.io", Some("*.registry.io")),
            ("", None),
            ("https://", None),
            ("/v1/", None),
        ] {
            assert_eq!(key(given).as_ref().map(ImagePattern::as_str), normal, "{given}");
        }
    }

    fn found<'r>(rings: &'r [DockerKeyring<&'r str>], name: &str) -> Vec<&'r str> {
        lookup(rings.iter().map(|ring| ((), ring)), name).into_iter().map(|(_, _, value)| *value).collect()
    }

    #[test]
    fn gives_all_that_match_most_specific_first() {
        let rings = [
            DockerKeyring::new([
                ("quay.io", "host"),
                ("quay.io/team", "team"),
                ("*.io", "glob"),
                ("quay.io/other", "no"),
            ]),
            DockerKeyring::new([("quay.io/team/app", "app"), ("https://quay.io/v2/", "second host")]),
        ];
        assert_eq!(found(&rings, "quay.io/team/app"), ["app", "team", "host", "second host", "glob"]);
        assert_eq!(found(&rings, "quay.io/teamwork"), ["team", "host", "second host", "glob"]);
        assert_eq!(found(&rings, "quay.io"), ["host", "second host", "glob"]);
        assert_eq!(found(&rings, "docker.io/library/nginx"), ["glob"]);
        assert_eq!(found(&rings, "ghcr.io/team/app"), ["glob"]);
        assert!(found(&rings, "quay.com/team/app").is_empty());
    }

    /// kubelet: `isDefaultRegistryMatch` and `defaultRegistryHost`.
    #[test]
    fn docker_hub_has_a_key_of_its_own() {
        let hub = [DockerKeyring::new([("https://index.docker.io/v1/", "hub")])];
        assert_eq!(found(&hub, "docker.io/library/nginx"), ["hub"]);
        assert_eq!(found(&hub, "docker.io"), ["hub"]);
        assert!(found(&hub, "quay.io/library/nginx").is_empty());
        let direct = [
            DockerKeyring::new([("https://index.docker.io/v1/", "hub")]),
            DockerKeyring::new([("docker.io/library", "library"), ("docker.io", "direct")]),
        ];
        assert_eq!(found(&direct, "docker.io/library/nginx"), ["library", "direct"]);
        assert_eq!(found(&direct, "docker.io/team/app"), ["direct"]);
        let registry = [DockerKeyring::new([("registry-1.docker.io", "registry")])];
        assert!(found(&registry, "docker.io/library/nginx").is_empty());
        let path = [DockerKeyring::new([("https://index.docker.io/v1", "path")])];
        assert!(found(&path, "docker.io/library/nginx").is_empty());
    }
}
