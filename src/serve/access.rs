//! What registries are asked with: the client and the credentials that a configuration asks for.

use crate::config::Config;
use crate::credentials::{Credentials, CredentialsError};
use crate::metrics::Metrics;
use crate::registry::{ProxyError, Registry, TrustError};

/// Why registries cannot be asked as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A certificate authority, a client certificate or a hosts directory cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A proxy of the environment cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The credentials cannot be loaded.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Reads the files that the configuration names; it may wait for them.
pub(super) fn access(config: &Config, metrics: Metrics) -> Result<(Registry, Credentials), AccessError> {
    let credentials = Credentials::load(&config.credentials, config.registries.private.clone())?;
    let registry = Registry::load(config.registry_settings()?, metrics)?;
    Ok((registry, credentials))
}
