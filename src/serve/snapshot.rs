//! The one place where what the configuration says becomes the snapshot that decides: at the start, on a reload, and for
//! the commands.

use std::path::PathBuf;

use super::metrics::Families;
use crate::cluster::Caller;
use crate::config::Config;
use crate::credentials::{Credentials, CredentialsError};
use crate::decide::Snapshot;
use crate::registry::{ProxyError, Registry, Traces, TrustError};
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

/// What decides under this configuration. Reads the files that the configuration names; it may wait for them. `before` goes
/// on with what it knows, `traces` gets what registries are asked, and `caller` is the one who asks the cluster.
pub(super) fn load(
    config: &Config,
    metrics: &Families,
    traces: Option<Traces>,
    caller: Caller,
    before: Option<&Snapshot>,
) -> Result<Snapshot, AccessError> {
    let credentials = Credentials::load(&config.credentials, config.registries.private.clone(), caller)?;
    let registry = Registry::load(config.registry_settings()?, metrics.registry.clone())?;
    let registry = registry.with_credentials(credentials.clone());
    let Config { policy, lookup, cache, .. } = config.clone();
    let budget = lookup.budget;
    let resolver = match before {
        Some(before) => before.resolver.reconfigured(registry, lookup, cache),
        None => Resolver::with_traces(registry, lookup, cache, metrics.resolver.clone(), traces),
    };
    Ok(Snapshot { policy, budget, credentials, resolver })
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
