//! The names of registry hosts, and the rule by which two names mean the same host.

use std::borrow::Cow;

/// Docker Hub in names of images.
pub const DOCKER_HUB: &str = "docker.io";
/// Docker Hub in connections (containerd's `core/remotes/docker/config/hosts.go`).
pub const DOCKER_HUB_ENDPOINT: &str = "registry-1.docker.io";
/// Docker Hub in `docker login` and in older names of images.
pub const DOCKER_HUB_INDEX: &str = "index.docker.io";

/// Returns whether `text` is a name of Docker Hub in any case, alone or as the URL that `docker login` writes.
pub fn is_docker_hub(text: &str) -> bool {
    let host = text
        .strip_prefix("https://")
        .unwrap_or(text)
        .trim_end_matches('/');
    let host = host
        .strip_suffix("/v1")
        .or_else(|| host.strip_suffix("/v2"))
        .unwrap_or(host);
    let host = host.strip_suffix(":443").unwrap_or(host);
    [DOCKER_HUB, DOCKER_HUB_INDEX, DOCKER_HUB_ENDPOINT]
        .iter()
        .any(|name| host.eq_ignore_ascii_case(name))
}

/// Returns the form for comparison: lower-case, without the default port of HTTPS, Docker Hub as [`DOCKER_HUB`].
pub fn canonical_host(host: &str) -> String {
    if is_docker_hub(host) {
        return DOCKER_HUB.to_owned();
    }
    host.strip_suffix(":443")
        .unwrap_or(host)
        .to_ascii_lowercase()
}

/// Replaces Docker Hub's host by [`DOCKER_HUB`] in a host, a host with a path, or a pattern of one.
pub fn canonical_name(text: &str) -> Cow<'_, str> {
    match text.split_once('/') {
        _ if is_docker_hub(text) => DOCKER_HUB.into(),
        Some((host, path)) if is_docker_hub(host) => format!("{DOCKER_HUB}/{path}").into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_hub_has_many_names() {
        for text in [
            "docker.io",
            "index.docker.io",
            "registry-1.docker.io",
            "Docker.IO:443",
            "https://index.docker.io/v1/",
            "https://index.docker.io/v1",
            "https://registry-1.docker.io/v2/",
            "https://docker.io",
        ] {
            assert!(is_docker_hub(text), "{text}");
            assert_eq!(canonical_host(text), "docker.io", "{text}");
        }
        for text in [
            "docker.io:5000",
            "http://docker.io",
            "hub.docker.io",
            "docker.io.evil.net",
            "docker.io/x",
            "",
        ] {
            assert!(!is_docker_hub(text), "{text}");
        }
        for (text, expected) in [
            ("https://index.docker.io/v1/", "docker.io"),
            ("Index.docker.io/team", "docker.io/team"),
            ("registry-1.docker.io/team/*", "docker.io/team/*"),
            ("docker.io/library", "docker.io/library"),
            ("A.b/team", "A.b/team"),
            ("https://a.b/v1/", "https://a.b/v1/"),
        ] {
            assert_eq!(canonical_name(text), expected, "{text}");
        }
        assert_eq!(canonical_host("A.b:443"), "a.b");
        assert_eq!(canonical_host("a.b:5000"), "a.b:5000");
    }
}
