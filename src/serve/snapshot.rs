//! Builds the snapshot from which decisions on Pods are made: at startup, on a reload, when the cluster changes, and
//! for commands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::error::ServeError;
use super::metrics::Families;
use crate::config::Config;
use tolerarch_controller::ControllerSettings;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::Policy;
use tolerarch_engine::decide::{CurrentSnapshot, Snapshot};
use tolerarch_engine::lessons::Lessons;
use tolerarch_images::credentials::{Credentials, SourceFault};
use tolerarch_images::registry::{Registry, Settings, Traces};
use tolerarch_images::resolver::Resolver;
use tolerarch_images::shared_cache::SharedCache;
use tolerarch_kubernetes::cluster::{Caller, ConnectError, Watcher};
use tolerarch_kubernetes::discovery::{self, Discovery, Inventory};
use tolerarch_support::environment::Environment;
use tolerarch_support::sync::Mutex;

/// Maximum number of faults that are logged at a time, for credentials and for hosts' TLS. A directory may have
/// thousands of files.
const MAX_LOGGED_FAULTS: usize = 20;
/// Maximum time for which the controller caches a failure of a registry. The controller looks images up again until
/// they are known, and a circuit breaker protects a failing registry.
const MAX_FAILURE_LIFETIME: Duration = Duration::from_secs(1);

/// Builds the snapshot of this configuration. Blocks the thread while it reads files. The snapshot keeps the caches of
/// the `previous` one. Without a previous one, it starts with the `shared` cache. `traces` record lookups, and `caller`
/// is the account for the cluster.
pub(super) fn load(
    config: &Config,
    metrics: &Families,
    shared: Option<SharedCache>,
    traces: Option<Traces>,
    caller: Caller,
    environment: &Environment,
    previous: Option<&Snapshot>,
) -> Result<Snapshot, ServeError> {
    let credentials = Credentials::load(
        &config.credentials,
        config.registries.private.clone(),
        caller,
        environment,
        previous.map(|previous| &previous.credentials),
    )
    .map_err(ServeError::Credentials)?;
    log_credential_faults(
        credentials.faults(),
        previous.map_or(&[], |previous| previous.credentials.faults()),
    );
    let settings = Settings {
        credentials: credentials.clone(),
        traces,
        ..config.registry_settings(environment)?
    };
    let registry = Registry::load(settings, metrics.registry.clone())?;
    // The cluster has not been read yet.
    let empty_inventory = Inventory::default();
    let discovery = Discovery::of(&config.policy.pools, &empty_inventory);
    let (policy, profiles) = policies(config, discovery, false);
    let Config { lookup, cache, .. } = config.clone();
    metrics.reviews.show(&policy.pools, profiles.keys());
    let budget = lookup.budget;
    let resolver = match previous {
        Some(previous) => previous.resolver.reconfigured(registry, lookup, cache),
        None => Resolver::new(registry, lookup, cache, metrics.resolver.clone(), shared),
    };
    log_tls_faults(
        resolver.tls_faults(),
        previous.map_or(&[], |previous| previous.resolver.tls_faults()),
    );
    metrics.credentials.show(credentials.faults());
    Ok(Snapshot {
        policy,
        profiles,
        budget,
        credentials,
        resolver,
        lessons: Arc::default(),
    })
}

/// What discovery has read from the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterState {
    pub inventory: Inventory,
    /// True if all kinds that discovery reads have been read.
    pub is_complete: bool,
}

/// Returns the default policy and the policy of each profile, with the pools and platforms of the cluster.
pub(super) fn policies(
    config: &Config,
    discovery: Discovery<'_>,
    is_complete: bool,
) -> (Policy, BTreeMap<String, Policy>) {
    let mut policy = config.policy.clone();
    policy.pools = discovery.pools.into_iter().map(|pool| pool.pool).collect();
    // A node group that is scaled to zero has no nodes. Its platforms are known only from its pool.
    let pool_platforms: PlatformSet = policy.pools.iter().map(|pool| pool.platforms).collect();
    let mut profiles = config.policies(&policy);
    let placements = profiles.values_mut().map(|policy| &mut policy.placement);
    for rules in placements.chain([&mut policy.placement]) {
        if !rules.discovered {
            continue;
        }
        let configured = rules.platforms;
        let platforms = match discovery.platforms {
            Some(discovered) if is_complete => discovered,
            // Until discovery completes, the configured platforms are assumed as well.
            Some(discovered) => discovered.union(configured),
            None => configured,
        };
        rules.platforms = pool_platforms.union(platforms);
    }
    (policy, profiles)
}

/// The current snapshot of this process, and the sources from which it is built. Clones share both.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) current: CurrentSnapshot,
    pub(super) metrics: Families,
    pub(super) environment: Environment,
    /// Sends the controller's settings to the tasks that follow them; `None` in the webhook.
    pub(super) controller_settings: Option<watch::Sender<ControllerSettings>>,
    sources: Arc<Mutex<Sources>>,
}

/// Sources of snapshots. The sources are locked while a snapshot is published, so that no change is lost.
struct Sources {
    config: Config,
    /// State of the cluster; `None` before the first reading.
    cluster_state: Option<ClusterState>,
    /// Warnings of the last call of `refresh_policies`, which have been logged.
    logged_warnings: Vec<String>,
}

impl Live {
    pub(super) fn begin(
        config: Config,
        shared: Option<SharedCache>,
        metrics: Families,
        environment: Environment,
        controller_settings: Option<watch::Sender<ControllerSettings>>,
    ) -> Result<Self, ServeError> {
        let snapshot = load(
            &snapshot_config(&config, controller_settings.is_some()),
            &metrics,
            shared,
            None,
            Caller::Service,
            &environment,
            None,
        )?;
        let sources = Arc::new(Mutex::new(Sources {
            config,
            cluster_state: None,
            logged_warnings: Vec::new(),
        }));
        let current = Arc::new(ArcSwap::from_pointee(snapshot));
        Ok(Self {
            current,
            metrics,
            environment,
            controller_settings,
            sources,
        })
    }

    pub(super) fn watcher(&self) -> Result<Watcher, ConnectError> {
        Watcher::of_service(&self.environment, &self.metrics.unread)
    }

    pub(super) fn config(&self) -> Config {
        self.sources.lock().config.clone()
    }

    /// Returns the keys of the labels by which pools are selected.
    pub(super) fn selected_label_keys(&self) -> BTreeSet<String> {
        discovery::selected_label_keys(&self.sources.lock().config.policy.pools)
    }

    /// Returns whether all kinds that discovery reads have been read.
    pub(super) fn is_discovered(&self) -> bool {
        let sources = self.sources.lock();
        if !sources.config.discover.is_on() {
            return true;
        }
        match &sources.cluster_state {
            Some(state) => state.is_complete,
            None => false,
        }
    }

    /// Applies another configuration as a whole or not at all, together with the last state of the cluster. Keys that
    /// need a restart keep their values; returns those that differ. Blocks the thread while it reads files.
    pub(super) fn apply(&self, mut config: Config) -> Result<Vec<String>, ServeError> {
        let restart_keys = config.restore_restart_keys(&self.config());
        let previous = self.current.load_full();
        let mut snapshot = load(
            &snapshot_config(&config, self.controller_settings.is_some()),
            &self.metrics,
            None,
            None,
            Caller::Service,
            &self.environment,
            Some(&previous),
        )?;
        let mut sources = self.sources.lock();
        sources.config = config;
        if let Some((policy, profiles)) = self.refresh_policies(&mut sources) {
            snapshot.policy = policy;
            snapshot.profiles = profiles;
        }
        snapshot.lessons = Arc::clone(&self.current.load_full().lessons);
        self.current.store(Arc::new(snapshot));
        if let Some(settings) = &self.controller_settings {
            settings.send_replace(sources.config.controller.clone());
        }
        Ok(restart_keys)
    }

    /// Publishes a snapshot with this state of the cluster, if it changes the policies. Caches and credentials stay.
    pub(super) fn publish_cluster_state(&self, state: ClusterState) {
        let mut sources = self.sources.lock();
        sources.cluster_state = Some(state);
        let Some((policy, profiles)) = self.refresh_policies(&mut sources) else {
            return;
        };
        let previous = self.current.load_full();
        if policy == previous.policy && profiles == previous.profiles {
            return;
        }
        let pools: Vec<String> = policy
            .pools
            .iter()
            .map(|pool| format!("{} ({})", pool.name, pool.platforms))
            .collect();
        tracing::info!(pools = pools.join("; "), "pools updated from the cluster");
        self.current.store(Arc::new(Snapshot {
            policy,
            profiles,
            ..Snapshot::clone(&previous)
        }));
    }

    /// Publishes a snapshot with the controller's lessons.
    pub(super) fn publish_lessons(&self, lessons: Lessons) {
        let _sources = self.sources.lock();
        let previous = self.current.load_full();
        self.current.store(Arc::new(Snapshot {
            lessons: Arc::new(lessons),
            ..Snapshot::clone(&previous)
        }));
    }

    /// Returns the policies with the state of the cluster; `None` if the cluster has not been read. Also sets the
    /// metrics of pools, and logs the warnings that the last call did not have.
    fn refresh_policies(
        &self,
        sources: &mut Sources,
    ) -> Option<(Policy, BTreeMap<String, Policy>)> {
        let Sources {
            config,
            cluster_state,
            logged_warnings,
        } = sources;
        let ClusterState {
            inventory,
            is_complete,
        } = cluster_state.as_ref()?;
        let discovery = Discovery::of(&config.policy.pools, inventory);
        let mismatches = &self.metrics.changes.mismatches;
        mismatches.reset();
        for pool in &discovery.pools {
            let has_mismatch = !pool.mismatch().is_empty();
            let gauge = mismatches.with_label_values(&[&pool.pool.name]);
            gauge.set(has_mismatch.into());
        }
        let mut warnings = discovery.warnings.clone();
        warnings.extend(discovery.mismatches());
        for warning in &warnings {
            if !logged_warnings.contains(warning) {
                tracing::warn!("{warning}");
            }
        }
        *logged_warnings = warnings;
        let (policy, profiles) = policies(config, discovery, *is_complete);
        self.metrics.reviews.show(&policy.pools, profiles.keys());
        Some((policy, profiles))
    }
}

/// Returns the configuration from which snapshots are built. The controller caches failures of registries only briefly.
fn snapshot_config(config: &Config, is_controller: bool) -> Config {
    let mut config = config.clone();
    if is_controller {
        let cache = &mut config.cache;
        cache.timeout = cache.timeout.min(MAX_FAILURE_LIFETIME);
        cache.unreachable = cache.unreachable.min(MAX_FAILURE_LIFETIME);
    }
    config
}

/// Logs the faults of sources of credentials, except the `previous` faults, which have been logged already.
fn log_credential_faults(faults: &[SourceFault], previous: &[SourceFault]) {
    let mut new_faults: Vec<&SourceFault> = faults.iter().collect();
    new_faults.retain(|fault| !previous.contains(fault));
    for error in new_faults.iter().take(MAX_LOGGED_FAULTS) {
        let kept = error.is_kept;
        tracing::error!(%error, kept, "a source of credentials cannot be used; the other sources are in use");
    }
    let more = new_faults.len().saturating_sub(MAX_LOGGED_FAULTS);
    if more > 0 {
        tracing::error!(more, "more sources of credentials cannot be used");
    }
}

/// Logs the hosts with which TLS cannot be set up, except the `previous` faults, which have been logged already.
fn log_tls_faults(faults: &[String], previous: &[String]) {
    let mut new_faults: Vec<&String> = faults.iter().collect();
    new_faults.retain(|fault| !previous.contains(fault));
    for fault in new_faults.iter().take(MAX_LOGGED_FAULTS) {
        tracing::error!(
            fault,
            "TLS with a host cannot be set up; other hosts are not affected"
        );
    }
    let more = new_faults.len().saturating_sub(MAX_LOGGED_FAULTS);
    if more > 0 {
        tracing::error!(more, "TLS with more hosts cannot be set up");
    }
}

/// Returns the paths that are read for this configuration, including the paths that a `hosts.toml` names. Blocks the
/// thread while it reads the `hosts.toml` files.
pub(super) fn files(config: &Config, environment: &Environment) -> Vec<PathBuf> {
    let mut files = config.files();
    // No file is read for registries if the proxies are invalid.
    if let Ok(settings) = config.registry_settings(environment) {
        files.extend(settings.files());
    }
    // This variable names the system trust store if the store is a single file.
    files.extend(environment.get("SSL_CERT_FILE").map(PathBuf::from));
    files.sort_unstable();
    files.dedup();
    files
}
