//! The one place where what the configuration says becomes the snapshot that decides: at the start, on a reload, and for
//! the commands.

use std::path::PathBuf;

use super::metrics::Families;
use crate::cluster::Caller;
use crate::config::{Config, Environment};
use crate::credentials::{Credentials, CredentialsError, SourceFault};
use crate::decide::Snapshot;
use crate::registry::{ProxyError, Registry, Traces, TrustError};
use crate::resolver::Resolver;

/// Faults of credentials that are logged at a time: a directory may have thousands of files.
const LOGGED_FAULTS: usize = 20;

/// Why registries cannot be asked as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A certificate authority, a client certificate or a hosts directory cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A proxy of the environment cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The configuration of credentials is wrong.
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
    environment: &Environment,
    before: Option<&Snapshot>,
) -> Result<Snapshot, SnapshotError> {
    let credentials = Credentials::load(
        &config.credentials,
        config.registries.private.clone(),
        caller,
        environment,
        before.map(|before| &before.credentials),
    )?;
    report(credentials.faults(), before.map_or(&[], |before| before.credentials.faults()));
    let registry = Registry::load(config.registry_settings(environment)?, metrics.registry.clone())?;
    let registry = registry.with_credentials(credentials.clone());
    let profiles = config.policies();
    let Config { policy, lookup, cache, .. } = config.clone();
    metrics.reviews.show(&policy.pools, profiles.keys());
    let budget = lookup.budget;
    let resolver = match before {
        Some(before) => before.resolver.reconfigured(registry, lookup, cache),
        None => Resolver::with_traces(registry, lookup, cache, metrics.resolver.clone(), traces),
    };
    Ok(Snapshot { policy, profiles, budget, credentials, resolver })
}

/// Logs what is wrong with sources of credentials, apart from what has been logged `before`.
fn report(faults: &[SourceFault], before: &[SourceFault]) {
    let new = || faults.iter().filter(|fault| !before.contains(fault));
    for error in new().take(LOGGED_FAULTS) {
        let kept = error.kept;
        tracing::error!(%error, kept, "a source of credentials cannot be used; the others are");
    }
    if let Some(more) = new().count().checked_sub(LOGGED_FAULTS).filter(|more| *more > 0) {
        tracing::error!(more, "more sources of credentials cannot be used");
    }
}

/// The files and directories that are read for this configuration: those that it names, and those that a `hosts.toml` names.
/// It may wait for them.
pub(super) fn files(config: &Config, environment: &Environment) -> Vec<PathBuf> {
    let mut files = config.files();
    // Where the proxies cannot be used nothing is read for registries.
    files.extend(config.registry_settings(environment).map(|settings| settings.files()).unwrap_or_default());
    files.sort_unstable();
    files.dedup();
    files
}
