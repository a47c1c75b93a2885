//! The OCI distribution protocol: from an image reference to the platforms of the image.
//!
//! References and the registries that they name are untrusted input. Bodies, counts, depths, redirects and addresses
//! are all bounded (each bound is beside its use), and a credential goes only to the registry that it is for. The
//! caller bounds the total time of a lookup. A failed request is not retried, because a Pod waits for the answer. Only
//! an idempotent one is sent once more if a reused connection closes without an answer (`net/transport.rs`).
//!
//! Each of these modules imports only those before it: `digest`, `link`, `manifest`, `metrics`, `target` and `trace`,
//! which do no I/O; `error`, `response`, `net`, `hosts`, `auth`, `client`, `platforms` and `tags`.
//!
//! Why not `oci-client`? It serves one user, who trusts the registries that he names. Here Pods name the registries, on
//! behalf of tenants. No tenant may get another tenant's credentials, or an answer of the node's services. Version 0.18
//! of `oci-client` differs in these:
//! - Credentials: it uses the first credential for a registry for all later requests, and caches tokens by registry and
//!   repository. Here a token belongs to its credential (`TokenKey` in `auth/token.rs`).
//! - Realms: it sends the password to any URL that a challenge names, even without TLS. Here `auth/realm.rs` decides
//!   which realms may see a Pod's password, and which may see the operator's.
//! - Redirects: it follows ten, even from HTTPS to HTTP, and has neither client certificates nor headers for single
//!   hosts. Here `client/route.rs` decides which redirects are followed, and what is sent along.
//! - Addresses: it resolves names and connects without any check, so an image's name can lead to a cloud's metadata
//!   service. Here `net/guard.rs` checks each address before it is dialled.
//! - Budgets: it reads manifests and tokens of any length, and limits neither the total time of a request nor the
//!   number of requests to a host. Here `net/transport.rs` bounds bodies, and `net/named.rs` bounds each tenant's
//!   requests to a server that a registry names.
//! - Failures: it drops `Retry-After`, quotes what the registry wrote, and continues without a token if the token
//!   server fails. Here each failure has a class (`error`), which decides whether a circuit opens, whether an older
//!   answer stays valid, and whether the failure is cached.
//! - Cancellation: it fetches a token for each request that has none yet. Here one fetch serves all waiting lookups,
//!   and if the lookup that fetches is cancelled, another one takes over (`auth/token.rs`).
//!
//! The tests use `oci-client` as a second opinion on documents (`e2e/real_registry/second_opinion.rs`) and to push
//! images. They also compare with containerd's own code (`e2e/conformance`).

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
pub use hosts::{AllowedImages, HostSettings, Mirror};
pub use manifest::{EntryInfo, ManifestError, ResolvedImage, Skip};
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
    pub allowed: AllowedImages,
    pub guard: AddressGuard,
    pub proxies: Proxies,
    pub verified: VerifiedPlatforms,
    /// Credentials of the operator for mirrors. A mirror never gets a Pod's credential.
    pub credentials: Credentials,
    pub traces: Option<Traces>,
}

/// Platforms of the nodes for which the entries of an index are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedPlatforms {
    /// Platforms for which the manifest that a node would get must exist.
    pub manifests: PlatformSet,
    /// Platforms for which the config of that manifest must also name the node's platform.
    pub configs: PlatformSet,
}

impl VerifiedPlatforms {
    /// Returns whether an index may have several entries to verify.
    fn covers_several(self) -> bool {
        self.manifests.union(self.configs).bits().count_ones() > 1
    }
}

impl Settings {
    /// Returns the files that [`Registry::load`] reads because they are named in [`Settings::hosts_dir`], or are in it
    /// as certificate files. A change of one of them may change the registry.
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
    allowed: AllowedImages,
    transport: Transport,
    tokens: Tokens,
    credentials: Credentials,
    pub(crate) verified: VerifiedPlatforms,
    pub(crate) tls_faults: Vec<String>,
    pub(crate) traces: Option<Traces>,
}

impl Registry {
    /// Makes a client with these settings, and reads the files that they name. If the TLS of one host cannot be set up,
    /// only lookups at that host fail.
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
        // Enough for callers that do one lookup after the other; a resolver sets its own limit.
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

    /// Returns whether the configuration allows looking up this image. Cheap, because it runs for each image of each
    /// Pod.
    pub fn admits(&self, image: &ImageRef) -> bool {
        self.allowed.admits(image)
    }

    /// Returns the limit on requests to servers that registries name.
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
