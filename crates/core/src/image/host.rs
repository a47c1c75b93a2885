//! Names of registry hosts, and the rule that says whether two names mean the same host.

use std::borrow::Cow;

/// The host of Docker Hub in names of images.
pub const DOCKER_HUB: &str = "docker.io";
/// The host to which clients of Docker Hub connect (containerd's `core/remotes/docker/config/hosts.go`).
pub const DOCKER_HUB_ENDPOINT: &str = "registry-1.docker.io";
/// The host of Docker Hub in `docker login` and in older names of images.
pub const DOCKER_HUB_INDEX: &str = "index.docker.io";

/// Returns whether `text` names Docker Hub, either as a host or as the URL that `docker login` writes. The case of
/// letters in the host does not matter.
pub fn is_docker_hub(text: &str) -> bool {
    let mut host = text.strip_prefix("https://").unwrap_or(text);
    host = host.trim_end_matches('/');
    for suffix in ["/v1", "/v2"] {
        if let Some(shorter) = host.strip_suffix(suffix) {
            host = shorter;
            break;
        }
    }
    host = host.strip_suffix(":443").unwrap_or(host);
    for name in [DOCKER_HUB, DOCKER_HUB_INDEX, DOCKER_HUB_ENDPOINT] {
        if host.eq_ignore_ascii_case(name) {
            return true;
        }
    }
    false
}

/// Returns a host in the form in which hosts are compared: in lower case, and without the default port of HTTPS. Every
/// name of Docker Hub becomes [`DOCKER_HUB`].
pub fn canonical_host(host: &str) -> String {
    if is_docker_hub(host) {
        return DOCKER_HUB.to_owned();
    }
    let host = host.strip_suffix(":443").unwrap_or(host);
    host.to_ascii_lowercase()
}

/// Replaces any name of Docker Hub with [`DOCKER_HUB`]. The text is a host, a host with a path, or a pattern of these.
pub fn canonical_name(text: &str) -> Cow<'_, str> {
    if is_docker_hub(text) {
        return Cow::Borrowed(DOCKER_HUB);
    }
    if let Some((host, path)) = text.split_once('/')
        && is_docker_hub(host)
    {
        return Cow::Owned(format!("{DOCKER_HUB}/{path}"));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_docker_hub_are_recognised() {
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
