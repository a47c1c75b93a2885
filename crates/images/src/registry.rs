//! The OCI distribution protocol: from an image reference to the platforms of the image.
//!
//! Image references are untrusted input, and so are the registries that they name: bodies, counts, depths, redirects and
//! addresses are all bounded (`limits.rs`), and credentials go only to the registry that they are for. Time is bounded by
//! the caller, for a lookup as a whole. Nothing is retried, because a Pod waits for the answer.
//!
//! # Layout
//! Each room imports only those above it in this list:
//! - `limits`, `digest`, `manifest`, `metrics`, `settings`, `trace`: numbers and values, without I/O.
//! - `net`: one HTTP request, and everything between it and the wire: TLS, proxies, the address guard.
//! - `error`: why a lookup failed, and what that implies.
//! - `hosts`: from where a registry's images are pulled, and what the operator configured for each host.
//! - `auth`: challenges, realms and tokens.
//! - `client`: one API request, tried at each endpoint, authorised and redirected.
//! - `platforms`: which documents are read to find the platforms of an image.

mod allowance;
mod auth;
mod client;
mod digest;
mod error;
mod hosts;
mod limits;
mod manifest;
mod metrics;
mod net;
mod platforms;
mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;

pub use digest::Digest;
pub use error::Error;
pub use hosts::{Allowed, HostSettings, Mirror, ParseMirrorError};
pub use manifest::{EntryInfo, Found, ManifestError, Skip};
pub use metrics::{RegistryMetrics, RequestKind};
pub use net::{AddressGuard, NoConnection, Proxies, ProxyError, TrustError};
pub use settings::Settings;
pub use trace::{Recorder, Traces};

use crate::credentials::{Credential, Credentials};
pub(crate) use client::Pull;
use client::{ApiRequest, Client};
use hosts::{Hosts, HostsDirectory};
use net::{Connector, HttpResponse, NameResolver, Transport};
use tolerarch_core::image::{ImageRef, PlatformSet, is_digest};

/// What a registry says of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// It points to this.
    Digest(Digest),
    /// The registry does not answer such requests, or not with a digest that can be compared.
    Unsupported,
}

/// A client of all registries.
pub struct Registry {
    client: Client,
    verified: PlatformSet,
}

impl Registry {
    /// A client that trusts the system's certificate authorities and those of the hosts' settings.
    ///
    /// # Errors
    /// A file that the settings name cannot be read.
    pub fn new(
        hosts: impl IntoIterator<Item = (String, HostSettings)>,
        guard: AddressGuard,
        metrics: RegistryMetrics,
    ) -> Result<Self, TrustError> {
        Self::load(Settings { hosts: hosts.into_iter().collect(), guard, ..Settings::default() }, metrics)
    }

    /// The same client, which shows mirrors the operator's credentials for them, never a Pod's.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { client: self.client.with_credentials(credentials), ..self }
    }

    /// A client with these settings, and everything that they name read.
    ///
    /// # Errors
    /// A file or directory that they name cannot be read.
    pub fn load(settings: Settings, metrics: RegistryMetrics) -> Result<Self, TrustError> {
        let Settings { hosts, hosts_dir, allowed, guard, proxies, verified } = settings;
        let directory = hosts_dir.as_deref().map(HostsDirectory::load).transpose();
        let directory = directory.map_err(|(path, cause)| TrustError::HostsDir { path, cause })?;
        let directory = directory.unwrap_or_default();
        if let Some(root) = &hosts_dir {
            directory.log_ignored(root);
        }
        let hosts = Hosts::new(hosts, directory);
        let names = NameResolver::of_system().map_err(|error| TrustError::Names(error.to_string()))?;
        let tls = net::tls_settings(hosts.tls(), hosts.default_tls())?;
        let transport = Transport::new(Connector::new(guard, tls, proxies, names), metrics);
        Ok(Self { client: Client::new(hosts, allowed, transport), verified })
    }

    #[cfg(test)]
    pub(crate) fn verifying(self, verified: PlatformSet) -> Self {
        Self { verified, ..self }
    }

    /// For nodes of which platforms the configs of images are read.
    pub fn verified(&self) -> PlatformSet {
        self.verified
    }

    /// Whether the configuration allows asking for this image. Cheap, and decided anew for each Pod.
    pub fn admits(&self, image: &ImageRef) -> bool {
        self.client.admits(image)
    }

    /// Whether the image's registry names no rate limit, or most of it is left as far as is known.
    pub(crate) fn has_plenty(&self, image: &ImageRef) -> bool {
        self.client.has_plenty(image)
    }

    /// Asks the image's registry what the image is and where it runs. The credential, of the operator, is sent to that registry
    /// only, and to where its tokens come from.
    ///
    /// # Errors
    /// See [`Error`]; each of them means that the platforms are unknown.
    pub async fn fetch(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        recorder: &Recorder,
    ) -> Result<Found, Error> {
        self.find(Pull { image, credential, of_pod: false, recorder }).await
    }

    /// The same, with a credential of any source.
    pub(crate) async fn find(&self, pull: Pull<'_>) -> Result<Found, Error> {
        platforms::find(&self.client, pull, self.verified).await
    }

    /// Asks where a tag points, without its manifest.
    ///
    /// # Errors
    /// See [`Error`]. A registry that does not answer such requests is no error.
    pub async fn head(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        recorder: &Recorder,
    ) -> Result<Head, Error> {
        self.resolve(Pull { image, credential, of_pod: false, recorder }).await
    }

    /// The same, with a credential of any source.
    pub(crate) async fn resolve(&self, pull: Pull<'_>) -> Result<Head, Error> {
        let read = |response: &HttpResponse| {
            let digest = response.header("docker-content-digest").filter(|digest| is_digest(digest));
            let comparable = digest.filter(|digest| digest.starts_with("sha256:")).map(Digest::of_text);
            Ok(comparable.map_or(Head::Unsupported, Head::Digest))
        };
        match self.client.request(pull, &ApiRequest::head(pull.image.target()), read).await {
            Err(error) if error.is_refusal() => Ok(Head::Unsupported),
            Err(error) if matches!(error.cause(), Error::Unexpected(_)) => Ok(Head::Unsupported),
            // A signed URL of an object store is for GET alone.
            Err(Error::Redirected { cause, .. }) if matches!(*cause, Error::NotFound) => {
                Ok(Head::Unsupported)
            }
            head => head,
        }
    }
}

/// What must hold for whatever a registry sends, and for the operator's `hosts.toml`.
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing {
    pub use super::auth::fuzzing::challenge;
    pub use super::hosts::fuzzing::hosts;
    pub use super::manifest::fuzzing::manifest;
}

#[cfg(test)]
mod tests;
