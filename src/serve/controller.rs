//! `tolerarch controller`: the wiring of what goes on beside admission. It decides as the webhook does, by the same
//! configuration, and shows its metrics and probes in the same way.

use std::sync::Arc;

use prometheus::IntCounter;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, timeout};

use super::discovery::Discoverer;
use super::metrics::Families;
use super::reload::{FileVersions, Follower};
use super::signals::Signals;
use super::snapshot::Publisher;
use super::supervisor::{Supervisor, tasks};
use super::{ADMIN_FINISH_TIME, Live, ServeError, admin_listener, listen, snapshot};
use crate::config::{Config, Sources};
use tolerarch_controller::{
    CensusLoop, CensusMetrics, ControllerMetrics, ControllerSettings, Elector, EventLoop, FailingPods,
    NodeTaintMetrics, NodeTaints, PendingPods, Recorder, Resignation,
};
use tolerarch_images::resolver::Extras;
use tolerarch_images::shared_cache::{SharedCache, SharedCacheKeeper};
use tolerarch_kubernetes::cluster::{Caller, Cluster, LeaseName, Watcher};
use tolerarch_support::environment::Environment;
use tolerarch_support::health::{Component, Conditions, Health, Reported};
use tolerarch_support::logging::{self, Levels};
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::listener::Phase;

/// How long failures of registries count here at most: Pods are looked at again until their images are known, and a
/// circuit spares a registry that fails.
const FAILURE: Duration = Duration::from_secs(1);

/// What runs under a configuration.
#[derive(Clone)]
pub(super) enum Role {
    Webhook,
    /// With those who follow its settings.
    Controller(watch::Sender<ControllerSettings>),
}

impl Role {
    /// What the snapshot is made of.
    pub(super) fn config(&self, mut config: Config) -> Config {
        if matches!(self, Self::Controller(_)) {
            let cache = &mut config.cache;
            cache.timeout = cache.timeout.min(FAILURE);
            cache.unreachable = cache.unreachable.min(FAILURE);
        }
        config
    }

    /// This configuration is in use from now on.
    pub(super) fn took(&self, config: &Config) {
        if let Self::Controller(settings) = self {
            settings.send_replace(config.controller.clone());
        }
    }
}

tasks! {
    Elector: "election",
    PendingPods: "pending-pods",
    EventLoop: "events",
    FailingPods: "failing-pods",
    CensusLoop: "census",
    NodeTaints: "node-taints",
}

/// A controller that listens, and does nothing yet.
struct Controller {
    admin: TcpListener,
    metrics: Metrics,
    live: Live,
    elector: Elector,
    pending: PendingPods,
    failing: FailingPods,
    events: EventLoop,
    census: CensusLoop,
    node_taints: NodeTaints,
    follower: Option<Follower>,
    discoverer: Option<Discoverer>,
    shared_cache: Option<SharedCacheKeeper>,
}

impl Controller {
    async fn bind(config: Config, environment: &Environment) -> Result<Self, ServeError> {
        let metrics = Metrics::new(config.registries.hosts.keys().map(String::as_str))?;
        let counts = Families::register_beside_admission(&metrics)?;
        let (sender, settings) = watch::channel(config.controller.clone());
        let role = Role::Controller(sender);
        let parts = role.config(config.clone());
        let shared = SharedCache::begin(config.shared_cache.clone(), counts.shared_cache.clone()).await;
        let (shared, shared_cache) = shared.unzip();
        let extras = Extras { shared, ..Extras::default() };
        let loaded = snapshot::load(&parts, &counts, extras, Caller::Service, environment, None)?;
        counts.credentials.show(loaded.credentials.faults());
        let publisher = Publisher::new(config.clone(), loaded, counts.clone());
        let cluster = Cluster::of(Caller::Service, environment).map_err(ServeError::Controller)?;
        let cluster = Arc::new(cluster);
        let watcher = Watcher::of(Caller::Service, environment).map_err(ServeError::Controller)?;
        let watcher = watcher.counting(&counts.unread);
        let discoverer = config.discover.is_on();
        let discoverer =
            discoverer.then(|| Discoverer::new(config.discover, watcher.clone(), publisher.clone()));
        let lease =
            LeaseName { namespace: cluster.namespace().to_owned(), name: config.controller.lease.clone() };
        let own = ControllerMetrics::register(&metrics)?;
        let elector = Elector::new(Arc::clone(&cluster), lease, identity(environment), &own);
        let recorder = Recorder::new(own.clone());
        let events = EventLoop {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            recorder: recorder.clone(),
            instance: name(environment),
            state: Reported::default(),
        };
        let census = CensusLoop {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            watcher: watcher.clone(),
            current: publisher.current().clone(),
            settings: settings.clone(),
            metrics: CensusMetrics::register(&metrics)?,
            state: Reported::default(),
        };
        let failing = FailingPods {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            watcher: watcher.clone(),
            current: publisher.current().clone(),
            settings: settings.clone(),
            recorder: recorder.clone(),
            conditions: Conditions::default(),
        };
        let node_taints = NodeTaints {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            watcher: watcher.clone(),
            settings: settings.clone(),
            metrics: NodeTaintMetrics::register(&metrics)?,
            conditions: Conditions::default(),
        };
        let pending = PendingPods {
            leadership: elector.leadership(),
            cluster,
            watcher,
            current: publisher.current().clone(),
            discovered: discoverer.as_ref().map(Discoverer::is_read),
            settings,
            recorder,
            metrics: own,
            conditions: Conditions::default(),
        };
        let admin = listen("admin.listen", config.admin.listen).await?;
        let environment = environment.clone();
        let live = Live { config, publisher, metrics: counts, environment, role };
        Ok(Self {
            admin,
            metrics,
            live,
            elector,
            pending,
            failing,
            events,
            census,
            node_taints,
            follower: None,
            discoverer,
            shared_cache,
        })
    }

    async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self {
            admin,
            metrics,
            live,
            elector,
            pending,
            failing,
            events,
            census,
            node_taints,
            follower,
            discoverer,
            shared_cache,
        } = self;
        let resignation: Resignation = elector.resignation();
        let mut supervisor = Supervisor::new(live.metrics.supervisor);
        let [reloading, electing, looking, examining, telling, counting, tainting, discovering, sharing] =
            [(); 9].map(|()| Reported::default());
        let mut components = vec![
            Component::new("election").reported(elector.state()).reported(electing.clone()),
            Component::new("pending-pods").with(pending.conditions.clone()).reported(looking.clone()),
            Component::new("failing-pods").with(failing.conditions.clone()).reported(examining.clone()),
            Component::new("events").reported(events.state.clone()).reported(telling.clone()),
            Component::new("census").reported(census.state.clone()).reported(counting.clone()),
            Component::new("node-taints").with(node_taints.conditions.clone()).reported(tainting.clone()),
        ];
        if let Some(follower) = follower {
            let configuration = Component::new("configuration").reported(follower.state());
            components.push(configuration.reported(reloading.clone()));
            supervisor.keep(follower, reloading);
        }
        if let Some(discoverer) = discoverer {
            let component = Component::new("discovery").checked(discoverer.readiness());
            components.push(component.reported(discovering.clone()));
            supervisor.keep(discoverer, discovering);
        }
        if let Some(keeper) = shared_cache {
            let component = Component::new("shared-cache").reported(keeper.state());
            components.push(component.reported(sharing.clone()));
            supervisor.keep(keeper, sharing);
        }
        supervisor.keep(elector, electing);
        supervisor.keep(pending, looking);
        supervisor.keep(failing, examining);
        supervisor.keep(events, telling);
        supervisor.keep(census, counting);
        supervisor.keep(node_taints, tainting);
        let health = Health::register(&metrics, components)?;
        let admin = admin_listener(admin, metrics, health, live.metrics.tls);
        let (end, ended) = watch::channel(Phase::Serving);
        let mut admin = tokio::spawn(admin.run(ended));
        tokio::select! {
            () = shutdown => {}
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            _ = &mut admin => return Err(ServeError::Accept("admin.listen")),
        }
        tracing::info!("ending");
        // First all that acts by the Lease.
        supervisor.stop().await;
        resignation.resign().await;
        end.send_replace(Phase::Stopping);
        if timeout(ADMIN_FINISH_TIME, admin).await.is_err() {
            tracing::debug!("a reader of metrics was cut off");
        }
        Ok(())
    }
}

/// Runs the controller until SIGTERM or SIGINT, a second of which ends it at once.
///
/// # Errors
/// It does not start; see [`ServeError`].
pub async fn run(config: Config, sources: Sources, levels: Levels) -> Result<(), ServeError> {
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    // Before the files are used, so that no change after that is missed.
    let seen = FileVersions::now(&sources, &config).await;
    let mut controller = Controller::bind(config, &sources.environment).await?;
    let panics: IntCounter = controller.live.metrics.panics.clone();
    logging::count_panics(panics);
    {
        let admin = controller.admin.local_addr().map_or_else(|_| String::new(), |own| own.to_string());
        let repair = controller.live.config.controller.repair;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), admin, repair, "controlling");
    }
    controller.follower = Follower::new(controller.live.clone(), sources, levels, seen);
    let shutdown = Notify::new();
    signals.until(&shutdown, controller.run(shutdown.notified())).await
}

/// The Pod's name.
fn name(environment: &Environment) -> String {
    environment.text("HOSTNAME").unwrap_or_else(|| "tolerarch".to_owned())
}

/// By what this process is known, and no other: the Pod's name, and what differs with each start of its container.
fn identity(environment: &Environment) -> String {
    format!("{}_{:016x}", name(environment), fastrand::u64(..))
}
