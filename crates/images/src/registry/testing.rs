//! Helpers that the tests of several modules share.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails at once"
)]

use super::{
    AddressGuard, Digest, Error, HostSettings, Pull, Registry, RegistryMetrics, ResolvedImage,
    Settings, TagList, TrustError, VerifiedPlatforms,
};
use crate::credentials::{Credential, CredentialOwner};
use tokio::time::Instant;
use tolerarch_core::image::ImageRef;
use tolerarch_support::metrics::Metrics;

/// Returns the client's crypto provider, from which tests make servers with a single key exchange group.
pub fn provider() -> rustls::crypto::CryptoProvider {
    super::net::provider()
}

/// Makes metrics that no test reads.
pub fn registry_metrics() -> RegistryMetrics {
    RegistryMetrics::register(&Metrics::new([]).unwrap()).unwrap()
}

impl Registry {
    /// Makes a client that trusts the system's certificate authorities and those of the hosts' settings.
    pub fn new(
        hosts: impl IntoIterator<Item = (String, HostSettings)>,
        guard: AddressGuard,
        metrics: RegistryMetrics,
    ) -> Result<Self, TrustError> {
        Self::load(
            Settings {
                hosts: hosts.into_iter().collect(),
                guard,
                ..Settings::default()
            },
            metrics,
        )
    }

    /// Makes the client verify entries of indexes for nodes of these platforms.
    #[must_use]
    pub fn verifying(self, verified: VerifiedPlatforms) -> Self {
        Self { verified, ..self }
    }

    /// Finds an image with an operator's credential.
    pub async fn fetch(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
    ) -> Result<ResolvedImage, Error> {
        self.find(pull(image, credential)).await
    }

    /// Resolves a tag with an operator's credential.
    pub async fn head(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
    ) -> Result<Option<Digest>, Error> {
        self.resolve(pull(image, credential)).await
    }

    /// Lists tags with an operator's credential.
    pub async fn list(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        deadline: Instant,
    ) -> Result<TagList, Error> {
        self.tags(pull(image, credential), deadline).await
    }
}

fn pull<'a>(image: &'a ImageRef, credential: Option<&'a Credential>) -> Pull<'a> {
    Pull {
        image,
        credential,
        owner: CredentialOwner::Operator,
        namespace: 0,
        reached: None,
    }
}
