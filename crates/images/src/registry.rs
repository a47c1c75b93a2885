//! The OCI distribution protocol: from an image reference to the platforms of the image. References and the registries
//! that they name are untrusted input: bodies, counts, depths, redirects and addresses are all bounded (beside their
//! use), and credentials go only to the registry that they are for. The caller bounds the time of a lookup as a whole.
//! Nothing is retried, as a Pod waits for the answer. Each of these modules imports only those before it: `digest`,
//! `link`, `manifest`, `metrics`, `target` and `trace`, which do no I/O; `error`, `response`, `net`, `hosts`, `auth`,
//! `client`, `platforms` and `tags`.
//!
//! Why not `oci-client`? It serves one user, who trusts the registries that he names. Here Pods name them, on behalf of
//! tenants who must get neither each other's credentials nor answers of the node's services. Its version 0.18:
//! - Credentials: keeps the first one of a registry for all later requests, and tokens by registry and repository. Here a
//!   token is its credential's (`TokenKey` in `auth/token.rs`).
//! - Realms: sends the password to any URL that a challenge names, also without TLS. Here `auth/realm.rs` says which may
//!   see a Pod's password, and which the operator's.
//! - Redirects: follows ten, from HTTPS to HTTP as well, and has no client certificates, and no headers of single hosts.
//!   Here `client/route.rs` decides which are followed, and what goes along.
//! - Addresses: resolves names and connects without asking anybody, so that an image's name can lead to a cloud's
//!   metadata service. Here `net/guard.rs` judges each address before it is dialled.
//! - Budgets: reads manifests and tokens of any length, and limits neither the time of a request as a whole nor the
//!   requests to a host. Here `net/transport.rs` bounds bodies, and `net/named.rs` each tenant's requests to a server
//!   that a registry names.
//! - Failures: drops `Retry-After`, quotes what the registry wrote, and goes on without a token if the token server
//!   fails. Here each failure has its class (`error`), by which circuits open, older answers end and others are cached.
//! - Cancellation: fetches a token for each request that has none yet. Here one fetch serves all that wait, and another
//!   lookup takes over if the one that fetches is cut off (`auth/token.rs`).
//!
//! It is the tests' second opinion on documents (`e2e/real_registry/second_opinion.rs`), and pushes their images. With
//! containerd's own code the tests compare, too (`e2e/conformance`).

mod auth;
mod client;
mod digest;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod hosts;
mod link;
mod manifest;
mod metrics;
mod net;
mod platforms;
mod response;
mod tags;
mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use digest::Digest;
pub use error::Error;
pub use hosts::{Allowed, HostSettings, Mirror};
pub use manifest::{EntryInfo, Found, ManifestError, Skip};
pub use metrics::{RegistryMetrics, RequestKind};
pub use net::{AddressGuard, Allowances, Proxies, ProxyError, TrustError, install_key_exchange};
pub use tags::TagList;
pub use trace::Traces;

use crate::credentials::Credentials;
use auth::Tokens;
pub(crate) use client::Pull;
pub(crate) use error::FailureClass;
use hosts::{Hosts, HostsDirectory};
use net::{Authorities, Connector, NameResolver, TlsSettings, Transport};
pub(crate) use net::{NamedServers, on_behalf_of};
pub(crate) use target::{ReachedTarget, Target};
use tolerarch_core::image::{ImageRef, PlatformSet};

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Settings of single hosts, by `host` or `host:port`.
    pub hosts: BTreeMap<String, HostSettings>,
    /// containerd's directory of `hosts.toml` files.
    pub hosts_dir: Option<PathBuf>,
    pub allowed: Allowed,
    pub guard: AddressGuard,
    pub proxies: Proxies,
    pub verified: Verified,
    /// Credentials of the operator for mirrors, which never get a Pod's.
    pub credentials: Credentials,
    pub traces: Option<Traces>,
}

/// Platforms for whose nodes an index is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The manifest that such a node would get must exist.
    pub manifests: PlatformSet,
    /// The manifest's config must name the same platform, too.
    pub configs: PlatformSet,
}

impl Verified {
    /// Returns whether an index may have several entries to verify.
    fn is_of_several(self) -> bool {
        self.manifests.union(self.configs).bits().count_ones() > 1
    }
}

impl Settings {
    /// Returns the files that [`Registry::load`] reads because a file of [`Settings::hosts_dir`] names them, or lies
    /// beside them: a change of one may change the registry.
    pub fn files(&self) -> Vec<PathBuf> {
        let Some(directory) = &self.hosts_dir else {
            return Vec::new();
        };
        HostsDirectory::load(directory)
            .map(|directory| directory.files())
            .unwrap_or_default()
    }
}

pub struct Registry {
    hosts: Hosts,
    allowed: Allowed,
    transport: Transport,
    tokens: Tokens,
    credentials: Credentials,
    pub(crate) verified: Verified,
    pub(crate) tls_faults: Vec<String>,
    pub(crate) traces: Option<Traces>,
}

impl Registry {
    /// Makes a client with these settings, whose files are read. A host whose TLS cannot be set up fails alone.
    pub fn load(settings: Settings, metrics: RegistryMetrics) -> Result<Self, TrustError> {
        Self::trusting(Authorities::load(), settings, metrics)
    }

    fn trusting(
        authorities: Authorities,
        settings: Settings,
        metrics: RegistryMetrics,
    ) -> Result<Self, TrustError> {
        let Settings {
            hosts,
            hosts_dir,
            allowed,
            guard,
            proxies,
            verified,
            credentials,
            traces,
        } = settings;
        let directory = match &hosts_dir {
            Some(directory) => HostsDirectory::load(directory)?,
            None => HostsDirectory::default(),
        };
        directory.log_ignored();
        let hosts = Hosts::new(hosts, directory);
        let names =
            NameResolver::of_system().map_err(|error| TrustError::Names(error.to_string()))?;
        let tls = TlsSettings::load(authorities, &hosts.tls, hosts.default_tls());
        let tls_faults = tls.faults();
        let connector = Connector::new(guard, tls, proxies, names);
        // Until a resolver sets its own limit: for who sends one request after the other.
        let named_servers = NamedServers::new(1, 1);
        Ok(Self {
            hosts,
            allowed,
            transport: Transport::new(connector, metrics, named_servers),
            tokens: Tokens::new(),
            credentials,
            verified,
            tls_faults,
            traces,
        })
    }

    /// Returns whether the configuration allows looking up this image. Cheap, as each Pod is judged anew.
    pub fn admits(&self, image: &ImageRef) -> bool {
        self.allowed.admits(image)
    }

    /// Returns the limit of requests to servers that registries name.
    pub(crate) fn named_servers(&self) -> &NamedServers {
        &self.transport.named_servers
    }

    pub(crate) fn limit_named_servers(&mut self, limit: NamedServers) {
        self.transport.named_servers = limit;
    }

    pub(crate) fn allowances(&self) -> &Allowances {
        &self.transport.allowances
    }
}

#[cfg(test)]
mod tests;
