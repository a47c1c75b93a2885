//! Endpoints that serve the images of a registry, and the operator's settings for each host.

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
use directory::Namespace;
use tolerarch_core::image::canonical_host;

pub use allowed::AllowedImages;
pub(super) use directory::HostsDirectory;
pub use endpoint::Mirror;
pub(super) use endpoint::{Endpoint, in_order};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// PEM file of certificate authorities that are trusted for this host, beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM file of the client certificate for this host.
    pub client_cert_file: Option<PathBuf>,
    /// PEM file of the client certificate's key. If it is not set, the certificate's file holds the key.
    pub client_key_file: Option<PathBuf>,
    pub plain_http: bool,
    pub skip_verify: bool,
    /// Mirrors of this registry, tried in this order before the registry itself.
    pub mirrors: Vec<Mirror>,
    /// Other hosts that may issue this registry's tokens and so get its credentials, as [`canonical_host`] writes them.
    pub token_hosts: Vec<String>,
}

impl HostSettings {
    pub(super) fn tls(&self) -> Option<Tls> {
        let mut tls = Tls {
            authorities: self.ca_file.iter().cloned().collect(),
            identities: Vec::new(),
            skip_verify: self.skip_verify,
        };
        if let Some(file) = &self.client_cert_file {
            let key = self.client_key_file.clone();
            tls.identities.push((file.clone(), key));
        }
        if tls == Tls::default() {
            return None;
        }
        Some(tls)
    }
}

/// Settings by the host's name in images (`docker.io`) or by the dialled name. Settings take precedence over
/// directories.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    settings: HashMap<String, HostSettings>,
    directory: HostsDirectory,
    /// Mirrors by registry, for registries whose settings name mirrors.
    mirrors: HashMap<String, Vec<Arc<Endpoint>>>,
    /// TLS settings of hosts, by the dialled name.
    pub(super) tls: BTreeMap<String, Tls>,
}

impl Hosts {
    pub(super) fn new(settings: BTreeMap<String, HostSettings>, directory: HostsDirectory) -> Self {
        let mut hosts = Self {
            directory,
            ..Self::default()
        };
        for (host, settings) in settings {
            hosts.settings.insert(canonical_host(&host), settings);
        }
        for (host, settings) in &hosts.settings {
            if settings.mirrors.is_empty() {
                continue;
            }
            let mut mirrors = Vec::new();
            for mirror in settings.mirrors.iter().take(Mirror::MOST) {
                let is_plain = hosts.is_plain(&mirror.authority);
                mirrors.extend(Endpoint::of_mirror(mirror, is_plain).map(Arc::new));
            }
            hosts.mirrors.insert(host.clone(), mirrors);
        }
        hosts.tls = hosts.read_tls();
        hosts
    }

    /// Returns the settings of a host, by its name in an image, a realm or a redirect.
    pub(super) fn settings(&self, host: &str) -> Option<&HostSettings> {
        self.settings.get(&canonical_host(host))
    }

    /// Returns the endpoints of the registry that images name `host`: mirrors first, the registry itself last.
    pub(super) fn endpoints(&self, host: &str) -> Vec<Arc<Endpoint>> {
        let mut endpoints = Vec::new();
        let mut server = None;
        if let Some(mirrors) = self.mirrors.get(&canonical_host(host)) {
            endpoints.extend_from_slice(mirrors);
        } else if let Some(namespace) = self.directory.find(host) {
            let hosts = namespace.hosts.iter();
            let listed = hosts.filter_map(|host| host.endpoint.clone());
            endpoints.extend(listed.take(Mirror::MOST));
            server = namespace.server.endpoint.clone();
        }
        if server.is_none() {
            server = self.registry_itself(host).map(Arc::new);
        }
        endpoints.extend(server);
        endpoints
    }

    fn read_tls(&self) -> BTreeMap<String, Tls> {
        let mut listed: BTreeMap<String, Option<Tls>> = BTreeMap::new();
        for (name, namespace) in &self.directory.namespaces {
            let registry = directory::host_of(name);
            for host in namespace.hosts() {
                let server = match &host.endpoint {
                    Some(endpoint) => authority(&endpoint.origin),
                    None if name == directory::DEFAULT => continue,
                    None => dialled(&registry),
                };
                // The first settings of a host win. Settings of the configuration replace them below.
                let tls = listed.entry(server.to_owned()).or_default();
                if tls.is_none() {
                    tls.clone_from(&host.tls);
                }
            }
        }
        let mut all = BTreeMap::new();
        for (host, tls) in listed {
            // A host that a directory lists without TLS settings does not get those of the default directory.
            all.insert(host, tls.unwrap_or_default());
        }
        for (host, settings) in &self.settings {
            if let Some(tls) = settings.tls() {
                all.insert(dialled(host).to_owned(), tls);
            }
        }
        all
    }

    /// Returns the TLS settings of the default directory, for hosts without a directory of their own.
    pub(super) fn default_tls(&self) -> Option<Tls> {
        let server = &self.directory.namespaces.get(directory::DEFAULT)?.server;
        if server.endpoint.is_some() {
            return None;
        }
        server.tls.clone()
    }

    /// Returns whether the host of this URL gets a client certificate of the operator.
    pub(super) fn has_client_certificate(&self, url: &Url) -> bool {
        self.tls
            .get(authority(url))
            .is_some_and(|tls| !tls.identities.is_empty())
    }

    /// Returns the registry's own endpoint, with the names and headers that the registry's directory has for that
    /// server.
    fn registry_itself(&self, host: &str) -> Option<Endpoint> {
        let mut registry = Endpoint::at(host, "", self.is_plain(host))?;
        if let Some(Namespace { server, .. }) = self.directory.find(host) {
            let endpoint = server.endpoint.as_ref();
            if endpoint.is_none_or(|endpoint| endpoint.is_at(&registry.origin)) {
                registry.names.clone_from(&server.names);
                registry.headers.clone_from(&server.headers);
            }
        }
        Some(registry)
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
