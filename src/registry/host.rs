//! What is special about single hosts, and where a registry is found on the network.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use super::endpoint::{Endpoint, Mirror};
use super::limits;

/// What the configuration says of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// PEM file of certificate authorities that are trusted for this host, beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Talk to this host without TLS.
    pub plain_http: bool,
    /// Where this registry's images can be had, too; asked in this order before the registry itself.
    pub mirrors: Vec<Mirror>,
    /// Other hosts that this registry's realm may name and get its credentials, as [`normal`] writes them.
    pub token_hosts: Vec<String>,
}

/// The hosts that the configuration names: by the name in images (`docker.io`) or the one that is dialled.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    settings: HashMap<String, HostSettings>,
    /// Where the images of a host can be had, for hosts with mirrors.
    endpoints: HashMap<String, Arc<[Arc<Endpoint>]>>,
}

impl Hosts {
    pub(super) fn new(settings: impl IntoIterator<Item = (String, HostSettings)>) -> Self {
        let settings = settings.into_iter().map(|(host, settings)| (normal(&host), settings)).collect();
        let mut hosts = Self { settings, endpoints: HashMap::new() };
        for (host, settings) in hosts.settings.iter().filter(|(_, settings)| !settings.mirrors.is_empty()) {
            let mirrors = settings.mirrors.iter().take(limits::MIRRORS);
            let mirrors =
                mirrors.filter_map(|mirror| Endpoint::of_mirror(mirror, hosts.is_plain(mirror.authority())));
            let all = mirrors.chain(hosts.own(host)).map(Arc::new).collect();
            hosts.endpoints.insert(host.clone(), all);
        }
        hosts
    }

    /// The settings of a host, as an image, a realm or a redirect names it.
    pub(super) fn settings(&self, host: &str) -> Option<&HostSettings> {
        let host = normal(host);
        let hub = || (host == HUB_ENDPOINT).then(|| self.settings.get(HUB)).flatten();
        self.settings.get(&host).or_else(hub)
    }

    /// Where the images can be had that name `host`: mirrors first, the registry itself last.
    pub(super) fn endpoints(&self, host: &str) -> Arc<[Arc<Endpoint>]> {
        let named = self.endpoints.get(&normal(host)).cloned();
        named.unwrap_or_else(|| self.own(host).map(Arc::new).into_iter().collect())
    }

    /// The registry itself that images call `host`.
    fn own(&self, host: &str) -> Option<Endpoint> {
        Endpoint::at(host, "", self.is_plain(host))
    }

    /// Whether this host is talked to without TLS.
    pub(super) fn is_plain(&self, host: &str) -> bool {
        self.settings(host).is_some_and(|settings| settings.plain_http)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &HostSettings)> {
        self.settings.iter()
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
        let mirrors = ["plain:5000", "https://c.d/hub"].map(|text| text.parse().unwrap()).to_vec();
        let mirrored = HostSettings { mirrors, ..HostSettings::default() };
        let hosts = Hosts::new([
            ("plain:5000".into(), plain.clone()),
            ("docker.io".into(), own.clone()),
            ("A.b:443".into(), own.clone()),
            ("mirrored".into(), mirrored),
        ]);
        for (host, endpoint) in [
            ("docker.io", "https://registry-1.docker.io/"),
            ("plain:5000", "http://plain:5000/"),
            ("plain", "https://plain/"),
            ("[::1]:5000", "https://[::1]:5000/"),
        ] {
            let [found] = &*hosts.endpoints(host) else { panic!("one place") };
            assert_eq!(found.origin.as_str(), endpoint);
        }
        assert_eq!(hosts.settings("registry-1.docker.io"), Some(&own));
        assert_eq!(hosts.settings("a.b"), Some(&own));
        assert_eq!(hosts.settings("a.b:5000"), None);
        assert_eq!(hosts.settings("PLAIN:5000"), Some(&plain));
        let found = hosts.endpoints("mirrored:443");
        let found: Vec<&str> = found.iter().map(|endpoint| endpoint.origin.as_str()).collect();
        assert_eq!(found, ["http://plain:5000/", "https://c.d/", "https://mirrored/"]);
    }
}
