//! What is special about single hosts, and where a registry is found on the network.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use super::authority::{HUB, HUB_ENDPOINT, authority, dialled, names, normal};
use super::endpoint::{Endpoint, Mirror};
use super::hosts_dir::{self, HostsDir, Place};
use super::limits;
use super::trust::Tls;

/// What the configuration says of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// PEM file of certificate authorities that are trusted for this host, beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the certificate that is shown to this host.
    pub client_cert_file: Option<PathBuf>,
    /// PEM file of its key; without one, that of the certificate holds it.
    pub client_key_file: Option<PathBuf>,
    /// Talk to this host without TLS.
    pub plain_http: bool,
    /// Take any certificate of this host.
    pub skip_verify: bool,
    /// Where this registry's images can be had, too; asked in this order before the registry itself.
    pub mirrors: Vec<Mirror>,
    /// Other hosts that this registry's realm may name and get its credentials, as [`normal`] writes them.
    pub token_hosts: Vec<String>,
}

impl HostSettings {
    /// What it says of TLS, if anything.
    pub(super) fn tls(&self) -> Option<Tls> {
        let Self { ca_file, client_cert_file, client_key_file, skip_verify, .. } = self;
        let identities = client_cert_file.iter().map(|file| (file.clone(), client_key_file.clone()));
        let tls = Tls {
            authorities: ca_file.iter().cloned().collect(),
            identities: identities.collect(),
            skip_verify: *skip_verify,
        };
        (tls != Tls::default()).then_some(tls)
    }
}

/// What is special about hosts: by the name in images (`docker.io`) or the one that is dialled. What the settings say of a
/// host beats what the directories say.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    settings: HashMap<String, HostSettings>,
    /// Where the images of a host can be had, for hosts with mirrors.
    endpoints: HashMap<String, Arc<[Arc<Endpoint>]>>,
    directories: HostsDir,
    /// By directory.
    places: HashMap<String, Places>,
    /// The hosts that have headers or client certificates of their own.
    guarded: HashSet<String>,
}

/// Where images can be had by a directory of hosts.
#[derive(Debug, Default)]
struct Places {
    mirrors: Vec<Arc<Endpoint>>,
    /// What is asked last, unless it is the registry itself.
    server: Option<Arc<Endpoint>>,
}

impl Hosts {
    pub(super) fn new(
        settings: impl IntoIterator<Item = (String, HostSettings)>,
        directories: HostsDir,
    ) -> Self {
        let settings = settings.into_iter().map(|(host, settings)| (normal(&host), settings)).collect();
        let mut hosts = Self { settings, directories, ..Self::default() };
        for (name, namespace) in &hosts.directories.namespaces {
            let mirrors = namespace.hosts.iter().take(limits::MIRRORS);
            let mirrors = mirrors.filter_map(|place| Endpoint::of_place(place, true)).map(Arc::new).collect();
            let server = Endpoint::of_place(&namespace.server, false).map(Arc::new);
            hosts.places.insert(name.clone(), Places { mirrors, server });
        }
        for (host, settings) in hosts.settings.iter().filter(|(_, settings)| !settings.mirrors.is_empty()) {
            let mirrors = settings.mirrors.iter().take(limits::MIRRORS);
            let mirrors =
                mirrors.filter_map(|mirror| Endpoint::of_mirror(mirror, hosts.is_plain(mirror.authority())));
            let all = mirrors.chain(hosts.own(host)).map(Arc::new).collect();
            hosts.endpoints.insert(host.clone(), all);
        }
        let named = hosts.settings.iter().filter(|(_, settings)| settings.client_cert_file.is_some());
        let named = named.map(|(host, _)| dialled(host).to_owned());
        let placed = hosts.placed().filter(|(_, place)| place.is_guarded()).map(|(host, _)| host);
        hosts.guarded = named.chain(placed).collect();
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
        let own = || self.own(host).map(Arc::new);
        if let Some(named) = self.endpoints.get(&normal(host)) {
            return Arc::clone(named);
        }
        let Some(places) = self.directories.find(host).and_then(|name| self.places.get(name)) else {
            return own().into_iter().collect();
        };
        places.mirrors.iter().cloned().chain(places.server.clone().or_else(own)).collect()
    }

    /// What is special about TLS with the hosts that are dialled.
    pub(super) fn tls(&self) -> BTreeMap<String, Tls> {
        let mut all = BTreeMap::new();
        for (host, tls) in self.settings.iter().filter_map(|(host, settings)| Some((host, settings.tls()?))) {
            all.insert(dialled(host).to_owned(), tls);
        }
        // Where several directories name a host, the first that says something counts; a host of which none says anything
        // is not meant by what the default directory says of all others.
        let said = self.placed().filter_map(|(host, place)| Some((host, place.tls.clone()?)));
        for (host, tls) in said.chain(self.placed().map(|(host, _)| (host, Tls::default()))) {
            all.entry(host).or_insert(tls);
        }
        all
    }

    /// What the default directory says of TLS with hosts that have no other.
    pub(super) fn default_tls(&self) -> Option<Tls> {
        let server = &self.directories.namespaces.get(hosts_dir::DEFAULT)?.server;
        server.tls.clone().filter(|_| server.base.is_none())
    }

    /// Whether the operator has something for the host of this URL that others are not shown.
    pub(super) fn is_guarded(&self, url: &Url) -> bool {
        self.guarded.contains(&authority(url))
    }

    /// The places that the directories speak of, by the host that is dialled for them.
    fn placed(&self) -> impl Iterator<Item = (String, &Place)> {
        self.directories.namespaces.iter().flat_map(|(name, namespace)| {
            let own = (name != hosts_dir::DEFAULT).then(|| dialled(&hosts_dir::host_of(name)).to_owned());
            let places = namespace.hosts.iter().chain([&namespace.server]);
            places.filter_map(move |place| {
                let host = place.base.as_ref().map(authority).or_else(|| own.clone())?;
                Some((host, place))
            })
        })
    }

    /// The registry itself that images call `host`.
    fn own(&self, host: &str) -> Option<Endpoint> {
        let own = Endpoint::at(host, "", self.is_plain(host))?;
        let directory = self.directories.find(host).filter(|name| *name != hosts_dir::DEFAULT);
        let server = directory.and_then(|name| Some(&self.directories.namespaces.get(name)?.server));
        let server =
            server.filter(|place| place.base.as_ref().is_none_or(|base| own.at_home(base).is_some()));
        Some(if let Some(server) = server { own.sending(&server.headers) } else { own })
    }

    /// The settings of the host of a URL.
    pub(super) fn settings_of(&self, url: &Url) -> Option<&HostSettings> {
        names(url).find_map(|name| self.settings(&name))
    }

    /// Whether the host of a URL is configured to be talked to without TLS.
    pub(super) fn is_plain_at(&self, url: &Url) -> bool {
        names(url).any(|name| self.is_plain(&name))
    }

    /// Whether this host is talked to without TLS.
    pub(super) fn is_plain(&self, host: &str) -> bool {
        self.settings(host).is_some_and(|settings| settings.plain_http)
    }
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
        let settings = [
            ("plain:5000".into(), plain.clone()),
            ("p80:80".into(), plain.clone()),
            ("docker.io".into(), own.clone()),
            ("A.b:443".into(), own.clone()),
            ("mirrored".into(), mirrored),
        ];
        let hosts = Hosts::new(settings, HostsDir::default());
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
        for (url, expected) in [
            ("http://plain:5000/x", true),
            ("http://p80/x", true),
            ("http://p80:81/x", false),
            ("https://p80/", false),
        ] {
            assert_eq!(hosts.is_plain_at(&Url::parse(url).unwrap()), expected, "{url}");
        }
        let found = hosts.endpoints("mirrored:443");
        let found: Vec<&str> = found.iter().map(|endpoint| endpoint.origin.as_str()).collect();
        assert_eq!(found, ["http://plain:5000/", "https://c.d/", "https://mirrored/"]);
    }
}
