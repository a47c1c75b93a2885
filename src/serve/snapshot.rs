//! The one place where what the configuration says, and what the cluster shows, becomes the snapshot that decides: at the
//! start, on a reload, when the cluster changes, and for the commands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::metrics::Families;
use crate::config::Config;
use tolerarch_core::policy::Policy;
use tolerarch_engine::decide::{Current, Snapshot};
use tolerarch_images::credentials::{Credentials, CredentialsError, SourceFault};
use tolerarch_images::registry::{ProxyError, Registry, TrustError};
use tolerarch_images::resolver::{Extras, Resolver};
use tolerarch_kubernetes::cluster::Caller;
use tolerarch_kubernetes::discovery::{Discovery, Inventory};
use tolerarch_support::environment::Environment;

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
/// on with what it knows, else it begins with `extras`; `caller` is the one who asks the cluster.
pub(super) fn load(
    config: &Config,
    metrics: &Families,
    extras: Extras,
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
        None => Resolver::with(registry, lookup, cache, metrics.resolver.clone(), extras),
    };
    Ok(Snapshot { policy, profiles, budget, credentials, resolver })
}

/// What was read of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
    /// Its NodePools and nodes.
    pub inventory: Inventory,
    /// Whether all that is to be read has been read.
    pub is_complete: bool,
}

/// What is decided by where the cluster shows this: by default, and by each profile.
pub(super) fn policies(
    config: &Config,
    discovery: Discovery<'_>,
    is_complete: bool,
) -> (Policy, BTreeMap<String, Policy>) {
    // What has not been read yet may have any of the platforms that are assumed until then.
    let shown = |assumed| match discovery.platforms {
        Some(shown) if is_complete => shown,
        Some(shown) => shown.union(assumed),
        None => assumed,
    };
    let mut policy = config.policy.clone();
    policy.pools = discovery.pools.into_iter().map(|known| known.pool).collect();
    let mut profiles = config.policies_over(&policy);
    for rules in profiles.values_mut().map(|policy| &mut policy.placement).chain([&mut policy.placement]) {
        if rules.discovered {
            rules.platforms = shown(rules.platforms);
        }
    }
    (policy, profiles)
}

/// Publishes the snapshots of this process. Clones are the same.
#[derive(Clone)]
pub(super) struct Publisher {
    current: Current,
    metrics: Families,
    sources: Arc<Mutex<Sources>>,
}

/// What snapshots are made of. It is held locked while one is published, so that none is lost.
struct Sources {
    config: Config,
    /// None before the first reading.
    discovered: Option<Discovered>,
    /// What has been logged.
    warned: Vec<String>,
}

impl Publisher {
    /// Begins with what was loaded of this configuration.
    pub(super) fn new(config: Config, snapshot: Snapshot, metrics: Families) -> Self {
        let sources = Sources { config, discovered: None, warned: Vec::new() };
        Self { current: Current::new(snapshot), metrics, sources: Arc::new(Mutex::new(sources)) }
    }

    pub(super) fn current(&self) -> &Current {
        &self.current
    }

    /// Decides by another configuration from now on, of which this was loaded, with what is known of the cluster.
    pub(super) fn reloaded(&self, config: Config, mut loaded: Snapshot) {
        let mut sources = self.lock();
        sources.config = config;
        if let Some(policies) = self.merge(&mut sources) {
            (loaded.policy, loaded.profiles) = policies;
        }
        self.current.publish(loaded);
    }

    /// Decides by what the cluster shows now. What is known of images and credentials stays.
    pub(super) fn discovered(&self, discovered: Discovered) {
        let mut sources = self.lock();
        sources.discovered = Some(discovered);
        let Some((policy, profiles)) = self.merge(&mut sources) else { return };
        let before = self.current.get();
        if policy == before.policy && profiles == before.profiles {
            return;
        }
        let pools: Vec<String> =
            policy.pools.iter().map(|pool| format!("{} ({})", pool.name, pool.platforms)).collect();
        tracing::info!(pools = pools.join("; "), "pools as the cluster shows them");
        let Snapshot { budget, credentials, resolver, .. } = &*before;
        let (credentials, resolver) = (credentials.clone(), resolver.clone());
        self.current.publish(Snapshot { policy, profiles, budget: *budget, credentials, resolver });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is decided by with what was read of the cluster; none if nothing was.
    fn merge(&self, sources: &mut Sources) -> Option<(Policy, BTreeMap<String, Policy>)> {
        let Sources { config, discovered, warned } = sources;
        let Discovered { inventory, is_complete } = discovered.as_ref()?;
        let discovery = Discovery::of(&config.policy.pools, inventory);
        self.metrics.discovery.show(&discovery.pools);
        let warnings: Vec<String> =
            discovery.warnings.iter().cloned().chain(discovery.mismatches()).collect();
        for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
            tracing::warn!("{warning}");
        }
        *warned = warnings;
        let (policy, profiles) = policies(config, discovery, *is_complete);
        self.metrics.reviews.show(&policy.pools, profiles.keys());
        Some((policy, profiles))
    }
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
