//! What is special about single hosts, and where a registry is found on the network.

use std::collections::HashMap;
use std::path::PathBuf;

use url::Url;

/// What the configuration says of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// PEM file of certificate authorities that are trusted for this host, beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Talk to this host without TLS.
    pub plain_http: bool,
}

/// The hosts that the configuration names: by the name in images (`docker.io`) or the one that is dialled.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts(HashMap<String, HostSettings>);

impl Hosts {
    pub(super) fn new(settings: impl IntoIterator<Item = (String, HostSettings)>) -> Self {
        Self(settings.into_iter().map(|(host, settings)| (normal(&host), settings)).collect())
    }

    /// The settings of a host, as an image, a realm or a redirect names it.
    pub(super) fn settings(&self, host: &str) -> Option<&HostSettings> {
        let host = normal(host);
        self.0.get(&host).or_else(|| (host == HUB_ENDPOINT).then(|| self.0.get(HUB)).flatten())
    }

    /// Where the registry is found that images call `host`.
    pub(super) fn endpoint(&self, host: &str) -> Option<Url> {
        let dialled = if host == HUB { HUB_ENDPOINT } else { host };
        let scheme = if self.is_plain(dialled) { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{dialled}/")).ok()
    }

    /// Whether this host is talked to without TLS.
    pub(super) fn is_plain(&self, host: &str) -> bool {
        self.settings(host).is_some_and(|settings| settings.plain_http)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &HostSettings)> {
        self.0.iter()
    }
}

/// Docker Hub, as images name it, and where containerd finds it (`core/remotes/docker/config/hosts.go`).
pub(super) const HUB: &str = "docker.io";
pub(super) const HUB_ENDPOINT: &str = "registry-1.docker.io";

/// A host as it is compared: lower-case, without the default port of HTTPS.
pub fn normal(host: &str) -> String {
    host.strip_suffix(":443").unwrap_or(host).to_ascii_lowercase()
}

/// The host of a URL as images name it, for metrics.
pub(super) fn label(url: &Url) -> String {
    let authority = authority(url);
    if authority == HUB_ENDPOINT { HUB.to_owned() } else { authority }
}

/// `host` or `host:port` of a URL, as the configuration names hosts.
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_registries_and_their_settings() {
        let plain = HostSettings { plain_http: true, ..HostSettings::default() };
        let own = HostSettings { ca_file: Some("/ca.crt".into()), ..HostSettings::default() };
        let hosts = Hosts::new([
            ("plain:5000".into(), plain.clone()),
            ("docker.io".into(), own.clone()),
            ("A.b:443".into(), own.clone()),
        ]);
        for (host, endpoint) in [
            ("docker.io", "https://registry-1.docker.io/"),
            ("plain:5000", "http://plain:5000/"),
            ("plain", "https://plain/"),
            ("[::1]:5000", "https://[::1]:5000/"),
        ] {
            assert_eq!(hosts.endpoint(host).unwrap().as_str(), endpoint);
        }
        assert_eq!(hosts.settings("registry-1.docker.io"), Some(&own));
        assert_eq!(hosts.settings("a.b"), Some(&own));
        assert_eq!(hosts.settings("a.b:5000"), None);
        assert_eq!(hosts.settings("PLAIN:5000"), Some(&plain));
    }
}
