//! Builds the snapshot by which Pods are decided: at the start, on a reload, when the cluster changes, and for commands.

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
use tolerarch_engine::decide::{Current, Snapshot};
use tolerarch_engine::lessons::Lessons;
use tolerarch_images::credentials::{Credentials, SourceFault};
use tolerarch_images::registry::{Registry, Settings, Traces};
use tolerarch_images::resolver::Resolver;
use tolerarch_images::shared_cache::SharedCache;
use tolerarch_kubernetes::cluster::{Caller, ConnectError, Watcher};
use tolerarch_kubernetes::discovery::{self, Discovery, Inventory};
use tolerarch_support::environment::Environment;
use tolerarch_support::sync::Mutex;

/// Maximum number of faults of credentials or of hosts' TLS that are logged at a time: a directory may have thousands of
/// files.
const LOGGED_FAULTS: usize = 20;
/// Maximum time for which the controller caches failures of registries. It looks images up again until they are known, and
/// a circuit breaker protects a failing registry.
const FAILURE: Duration = Duration::from_secs(1);

/// Builds the snapshot of this configuration. Blocks the thread while it reads files. Keeps the caches of `before`;
/// without it, begins with the `shared` cache. `traces` record lookups, and `caller` is the account for the cluster.
pub(super) fn load(
    config: &Config,
    metrics: &Families,
    shared: Option<SharedCache>,
    traces: Option<Traces>,
    caller: Caller,
    environment: &Environment,
    before: Option<&Snapshot>,
) -> Result<Snapshot, ServeError> {
    let credentials = Credentials::load(
        &config.credentials,
        config.registries.private.clone(),
        caller,
        environment,
        before.map(|before| &before.credentials),
    )
    .map_err(ServeError::Credentials)?;
    log_credential_faults(
        credentials.faults(),
        before.map_or(&[], |before| before.credentials.faults()),
    );
    let settings = Settings {
        credentials: credentials.clone(),
        traces,
        ..config.registry_settings(environment)?
    };
    let registry = Registry::load(settings, metrics.registry.clone())?;
    // The cluster has not been read yet.
    let unread = Inventory::default();
    let (policy, profiles) = policies(config, Discovery::of(&config.policy.pools, &unread), false);
    let Config { lookup, cache, .. } = config.clone();
    metrics.reviews.show(&policy.pools, profiles.keys());
    let budget = lookup.budget;
    let resolver = match before {
        Some(before) => before.resolver.reconfigured(registry, lookup, cache),
        None => Resolver::new(registry, lookup, cache, metrics.resolver.clone(), shared),
    };
    log_tls_faults(
        resolver.tls_faults(),
        before.map_or(&[], |before| before.resolver.tls_faults()),
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

#[derive(Clone, Debug, PartialEq)]
pub struct Discovered {
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
    // A group of nodes that is scaled to zero shows only in the platforms that its pool names.
    let of_pools: PlatformSet = policy.pools.iter().map(|pool| pool.platforms).collect();
    let mut profiles = config.policies(&policy);
    let placements = profiles.values_mut().map(|policy| &mut policy.placement);
    for rules in placements.chain([&mut policy.placement]) {
        if !rules.discovered {
            continue;
        }
        let assumed = rules.platforms;
        rules.platforms = of_pools.union(match discovery.platforms {
            Some(discovered) if is_complete => discovered,
            // Until discovery completes, also assume the configured platforms.
            Some(discovered) => discovered.union(assumed),
            None => assumed,
        });
    }
    (policy, profiles)
}

/// Current snapshot of this process, and the sources from which it is built. Clones share both.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) current: Current,
    pub(super) metrics: Families,
    pub(super) environment: Environment,
    /// Settings of the controller for the tasks that follow them; `None` in the webhook.
    pub(super) controller: Option<watch::Sender<ControllerSettings>>,
    sources: Arc<Mutex<Sources>>,
}

/// Sources of snapshots. They are locked while a snapshot is published, so that no change is lost.
struct Sources {
    config: Config,
    /// State of the cluster; `None` before the first reading.
    discovered: Option<Discovered>,
    warned: Vec<String>,
}

impl Live {
    pub(super) fn begin(
        config: Config,
        shared: Option<SharedCache>,
        metrics: Families,
        environment: Environment,
        controller: Option<watch::Sender<ControllerSettings>>,
    ) -> Result<Self, ServeError> {
        let snapshot = load(
            &snapshot_config(&config, controller.is_some()),
            &metrics,
            shared,
            None,
            Caller::Service,
            &environment,
            None,
        )?;
        let sources = Arc::new(Mutex::new(Sources {
            config,
            discovered: None,
            warned: Vec::new(),
        }));
        let current = Arc::new(ArcSwap::from_pointee(snapshot));
        Ok(Self {
            current,
            metrics,
            environment,
            controller,
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
    pub(super) fn selected_labels(&self) -> BTreeSet<String> {
        discovery::selected_labels(&self.sources.lock().config.policy.pools)
    }

    /// Returns whether all kinds that discovery reads have been read.
    pub(super) fn is_discovered(&self) -> bool {
        let sources = self.sources.lock();
        if !sources.config.discover.is_on() {
            return true;
        }
        let discovered = sources.discovered.as_ref();
        discovered.is_some_and(|discovered| discovered.is_complete)
    }

    /// Applies another configuration as a whole or not at all, with the last state of the cluster. Returns the keys that
    /// need a restart. Blocks the thread while it reads files.
    pub(super) fn apply(&self, mut config: Config) -> Result<Vec<String>, ServeError> {
        let unchanged_keys = config.keep(&self.config());
        let before = self.current.load_full();
        let mut loaded = load(
            &snapshot_config(&config, self.controller.is_some()),
            &self.metrics,
            None,
            None,
            Caller::Service,
            &self.environment,
            Some(&before),
        )?;
        let mut sources = self.sources.lock();
        sources.config = config;
        if let Some((policy, profiles)) = self.merge(&mut sources) {
            loaded.policy = policy;
            loaded.profiles = profiles;
        }
        loaded.lessons = Arc::clone(&self.current.load_full().lessons);
        self.current.store(Arc::new(loaded));
        if let Some(controller) = &self.controller {
            controller.send_replace(sources.config.controller.clone());
        }
        Ok(unchanged_keys)
    }

    /// Publishes a snapshot with this state of the cluster. Caches and credentials stay.
    pub(super) fn discovered(&self, discovered: Discovered) {
        let mut sources = self.sources.lock();
        sources.discovered = Some(discovered);
        let Some((policy, profiles)) = self.merge(&mut sources) else {
            return;
        };
        let before = self.current.load_full();
        if policy == before.policy && profiles == before.profiles {
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
            ..Snapshot::clone(&before)
        }));
    }

    /// Publishes a snapshot with the controller's lessons.
    pub(super) fn learned(&self, lessons: Lessons) {
        let _sources = self.sources.lock();
        let before = Snapshot::clone(&self.current.load_full());
        self.current.store(Arc::new(Snapshot {
            lessons: Arc::new(lessons),
            ..before
        }));
    }

    /// Returns the policies with the state of the cluster; `None` if it has not been read.
    fn merge(&self, sources: &mut Sources) -> Option<(Policy, BTreeMap<String, Policy>)> {
        let Sources {
            config,
            discovered,
            warned,
        } = sources;
        let Discovered {
            inventory,
            is_complete,
        } = discovered.as_ref()?;
        let discovery = Discovery::of(&config.policy.pools, inventory);
        let mismatches = &self.metrics.changes.mismatches;
        mismatches.reset();
        for pool in &discovery.pools {
            let gauge = mismatches.with_label_values(&[&pool.pool.name]);
            gauge.set((!pool.mismatch().is_empty()).into());
        }
        let mut warnings = discovery.warnings.clone();
        warnings.extend(discovery.mismatches());
        for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
            tracing::warn!("{warning}");
        }
        *warned = warnings;
        let (policy, profiles) = policies(config, discovery, *is_complete);
        self.metrics.reviews.show(&policy.pools, profiles.keys());
        Some((policy, profiles))
    }
}

/// Returns the configuration by which snapshots are built. In the controller, failures of registries are cached briefly.
fn snapshot_config(config: &Config, is_controller: bool) -> Config {
    let mut config = config.clone();
    if is_controller {
        let cache = &mut config.cache;
        cache.timeout = cache.timeout.min(FAILURE);
        cache.unreachable = cache.unreachable.min(FAILURE);
    }
    config
}

/// Logs the faults of sources of credentials, except those in `before`, which have been logged already.
fn log_credential_faults(faults: &[SourceFault], before: &[SourceFault]) {
    let new = || faults.iter().filter(|fault| !before.contains(fault));
    for error in new().take(LOGGED_FAULTS) {
        let kept = error.kept;
        tracing::error!(%error, kept, "a source of credentials cannot be used; the others are in use");
    }
    let more = new().count().saturating_sub(LOGGED_FAULTS);
    if more > 0 {
        tracing::error!(more, "more sources of credentials cannot be used");
    }
}

/// Logs the hosts with which TLS cannot be set up, except those in `before`, which have been logged already.
fn log_tls_faults(faults: &[String], before: &[String]) {
    let new = faults.iter().filter(|fault| !before.contains(fault));
    for fault in new.take(LOGGED_FAULTS) {
        tracing::error!(
            fault,
            "TLS with a host cannot be set up; the others are not affected"
        );
    }
}

/// Returns the paths that are read for this configuration, including those that a `hosts.toml` names. Blocks the thread while
/// it reads these.
pub(super) fn files(config: &Config, environment: &Environment) -> Vec<PathBuf> {
    let mut files = config.files();
    // If the proxies are invalid, no file is read for registries.
    if let Ok(settings) = config.registry_settings(environment) {
        files.extend(settings.files());
    }
    // The system trust store, if it is a single file.
    files.extend(environment.get("SSL_CERT_FILE").map(PathBuf::from));
    files.sort_unstable();
    files.dedup();
    files
}
