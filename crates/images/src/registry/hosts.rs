//! Endpoints that serve the images of a registry, and the operator's settings of each host.

mod allowed;
mod directory;
mod endpoint;
#[cfg(any(test, feature = "testing"))]
pub(super) mod fuzzing;
mod health;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use super::net::{Tls, authority, dialled, names};
use directory::RegistryHost;
use tolerarch_core::image::canonical_host;

pub use allowed::Allowed;
pub(super) use directory::HostsDirectory;
pub use endpoint::Mirror;
pub(super) use endpoint::{Endpoint, in_order};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// PEM file of certificate authorities that are trusted for this host, beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client certificate for this host.
    pub client_cert_file: Option<PathBuf>,
    /// PEM file of the client certificate's key; without one, the certificate's file holds the key.
    pub client_key_file: Option<PathBuf>,
    pub plain_http: bool,
    pub skip_verify: bool,
    /// Mirrors of this registry, tried in this order before the registry itself.
    pub mirrors: Vec<Mirror>,
    /// Further hosts for this registry's realm, which get its credentials, as [`canonical_host`] writes them.
    pub token_hosts: Vec<String>,
}

impl HostSettings {
    pub(super) fn tls(&self) -> Option<Tls> {
        let Self {
            ca_file,
            client_cert_file,
            client_key_file,
            skip_verify,
            ..
        } = self;
        let identities = client_cert_file
            .iter()
            .map(|file| (file.clone(), client_key_file.clone()));
        let tls = Tls {
            authorities: ca_file.iter().cloned().collect(),
            identities: identities.collect(),
            skip_verify: *skip_verify,
        };
        (tls != Tls::default()).then_some(tls)
    }
}

/// Settings by the host's name in images (`docker.io`) or as dialled. Settings take precedence over directories.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    settings: HashMap<String, HostSettings>,
    directory: HostsDirectory,
    /// Mirrors by registry, where settings name some.
    mirrors: HashMap<String, Vec<Arc<Endpoint>>>,
    /// TLS settings of hosts, by the name that is dialled.
    pub(super) tls: BTreeMap<String, Tls>,
}

impl Hosts {
    pub(super) fn new(settings: BTreeMap<String, HostSettings>, directory: HostsDirectory) -> Self {
        let settings = settings
            .into_iter()
            .map(|(host, settings)| (canonical_host(&host), settings))
            .collect();
        let mut hosts = Self {
            settings,
            directory,
            ..Self::default()
        };
        let mirrored = hosts
            .settings
            .iter()
            .filter(|(_, settings)| !settings.mirrors.is_empty());
        let mirrors = mirrored.map(|(host, settings)| {
            let mirrors = settings.mirrors.iter().take(Mirror::MOST);
            let at =
                |mirror: &Mirror| Endpoint::of_mirror(mirror, hosts.is_plain(&mirror.authority));
            (host.clone(), mirrors.filter_map(at).map(Arc::new).collect())
        });
        hosts.mirrors = mirrors.collect();
        hosts.tls = hosts.read_tls();
        hosts
    }

    /// Returns the settings of a host, by its name in an image, a realm or a redirect.
    pub(super) fn settings(&self, host: &str) -> Option<&HostSettings> {
        self.settings.get(&canonical_host(host))
    }

    /// Returns the endpoints of the registry that images call `host`: mirrors first, the registry itself last.
    pub(super) fn endpoints(&self, host: &str) -> Vec<Arc<Endpoint>> {
        let named = self.mirrors.get(&canonical_host(host));
        let namespace = self.directory.find(host).filter(|_| named.is_none());
        let listed = namespace.into_iter().flat_map(|namespace| &namespace.hosts);
        let listed = listed
            .filter_map(|host| host.endpoint.as_ref())
            .take(Mirror::MOST);
        let server = namespace.and_then(|namespace| namespace.server.endpoint.clone());
        let last = server.or_else(|| self.own(host).map(Arc::new));
        named
            .into_iter()
            .flatten()
            .chain(listed)
            .cloned()
            .chain(last)
            .collect()
    }

    fn read_tls(&self) -> BTreeMap<String, Tls> {
        let mut listed: BTreeMap<String, Option<Tls>> = BTreeMap::new();
        for (name, namespace) in &self.directory.namespaces {
            let own =
                (name != directory::DEFAULT).then(|| dialled(&directory::host_of(name)).to_owned());
            for host in namespace.hosts() {
                let at = host
                    .endpoint
                    .as_ref()
                    .map(|endpoint| authority(&endpoint.origin).to_owned());
                let Some(at) = at.or_else(|| own.clone()) else {
                    continue;
                };
                // Of several settings of a host the first counts, and those of the configuration most.
                let tls = listed.entry(at).or_default();
                *tls = tls.take().or_else(|| host.tls.clone());
            }
        }
        // A host that a directory lists without TLS settings gets none of the default directory's.
        let listed = listed
            .into_iter()
            .map(|(host, tls)| (host, tls.unwrap_or_default()));
        let of_settings = |(host, settings): (&String, &HostSettings)| {
            Some((dialled(host).to_owned(), settings.tls()?))
        };
        listed
            .chain(self.settings.iter().filter_map(of_settings))
            .collect()
    }

    /// Returns the TLS settings in the default directory, for hosts without a directory.
    pub(super) fn default_tls(&self) -> Option<Tls> {
        let server = &self.directory.namespaces.get(directory::DEFAULT)?.server;
        server.tls.clone().filter(|_| server.endpoint.is_none())
    }

    /// Returns whether the host of this URL gets a client certificate of the operator.
    pub(super) fn has_client_certificate(&self, url: &Url) -> bool {
        self.tls
            .get(authority(url))
            .is_some_and(|tls| !tls.identities.is_empty())
    }

    fn own(&self, host: &str) -> Option<Endpoint> {
        let mut own = Endpoint::at(host, "", self.is_plain(host))?;
        let is_own = |server: &&RegistryHost| {
            server
                .endpoint
                .as_ref()
                .is_none_or(|at| at.is_at(&own.origin))
        };
        if let Some(server) = self
            .directory
            .find(host)
            .map(|found| &found.server)
            .filter(is_own)
        {
            own.names.clone_from(&server.names);
            own.headers.clone_from(&server.headers);
        }
        Some(own)
    }

    pub(super) fn is_plain_at(&self, url: &Url) -> bool {
        names(url).any(|name| self.is_plain(&name))
    }

    pub(super) fn is_plain(&self, host: &str) -> bool {
        self.settings(host)
            .is_some_and(|settings| settings.plain_http)
    }
}

#[cfg(test)]
mod tests;
