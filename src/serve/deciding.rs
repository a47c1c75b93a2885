//! What decides over Pods under a configuration, put together.

use std::path::PathBuf;

use super::metrics::Families;
use crate::admission::Webhook;
use crate::cluster::Caller;
use crate::config::Config;
use crate::credentials::{Credentials, CredentialsError};
use crate::registry::{ProxyError, Registry, RegistryMetrics, Traces, TrustError};
use crate::resolver::Resolver;

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

/// The webhook, and the resolver in it.
pub(super) struct Deciding {
    pub(super) webhook: Webhook,
    pub(super) resolver: Resolver,
}

impl Deciding {
    /// `traces` gets what registries are asked; `caller` is the one who asks the cluster.
    pub(super) fn of(
        config: &Config,
        metrics: &Families,
        traces: Option<Traces>,
        caller: Caller,
    ) -> Result<Self, AccessError> {
        let (registry, credentials) = access(config, metrics.registry.clone(), caller)?;
        let Config { policy, lookup, cache, .. } = config.clone();
        let budget = lookup.budget;
        let resolver = Resolver::new(registry.traced(traces), lookup, cache, metrics.resolver.clone());
        let webhook = Webhook::new(policy, budget, credentials, resolver.clone(), metrics.reviews.clone());
        Ok(Self { webhook, resolver })
    }
}

/// The files and directories that are read for this configuration: those that it names, and those that a `hosts.toml` names.
/// It may wait for them.
pub(super) fn files(config: &Config) -> Vec<PathBuf> {
    let mut files = config.files();
    // Where the proxies cannot be used nothing is read for registries.
    files.extend(config.registry_settings().map(|settings| settings.files()).unwrap_or_default());
    files.sort_unstable();
    files.dedup();
    files
}

/// What registries are asked with. Reads the files that the configuration names; it may wait for them.
pub(super) fn access(
    config: &Config,
    metrics: RegistryMetrics,
    caller: Caller,
) -> Result<(Registry, Credentials), AccessError> {
    let credentials = Credentials::load(&config.credentials, config.registries.private.clone(), caller)?;
    let registry = Registry::load(config.registry_settings()?, metrics)?;
    Ok((registry.with_credentials(credentials.clone()), credentials))
}
