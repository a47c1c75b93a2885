//! `tolerarch controller`: the wiring of what goes on beside admission. It decides as the webhook does, by the same
//! configuration, and shows its metrics and probes in the same way.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::error::ServeError;
use super::metrics::Families;
use super::process::{Process, address};
use super::reload::FileVersions;
use super::signals::Signals;
use super::snapshot::Live;
use super::supervisor::Supervisor;
use crate::config::{Config, Sources};
use tolerarch_controller::{
    CensusLoop, CensusMetrics, ControllerMetrics, Elector, EventLoop, FailingPods, Learner, NodeTaints,
    PendingPods, Recorder, Resignation,
};
use tolerarch_kubernetes::cluster::{Caller, Cluster, OwnedName, Watcher};
use tolerarch_support::environment::Environment;
use tolerarch_support::health::Reported;
use tolerarch_support::logging::{self, Levels};
use tolerarch_support::metrics::Metrics;

struct Controller {
    process: Process,
    elector: Elector,
    pending: PendingPods,
    failing: FailingPods,
    events: EventLoop,
    census: CensusLoop,
    node_taints: NodeTaints,
}

impl Controller {
    async fn bind(config: Config, environment: &Environment) -> Result<Self, ServeError> {
        let metrics = Metrics::new(config.registries.hosts.keys().map(String::as_str))?;
        let counts = Families::register(&metrics, &Metrics::new([])?)?;
        let (sender, settings) = watch::channel(config.controller.clone());
        let mut process = Process::bind(config.clone(), environment, metrics, counts, Some(sender)).await?;
        let cluster = Cluster::of(Caller::Service, environment).map_err(ServeError::Controller)?;
        let cluster = Arc::new(cluster);
        let watcher = Watcher::of(Caller::Service, environment).map_err(ServeError::Controller)?;
        let watcher = watcher.counting(&process.live.metrics.unread);
        let discovered = config.discover.is_on().then(|| process.discover(watcher.clone()));
        let owned = |name| OwnedName { namespace: cluster.namespace().to_owned(), name };
        let lease = owned(config.controller.lease.clone());
        let failed_images = owned(config.controller.failed_images());
        if config.controller.learn {
            process.follow_failed_images(watcher.clone(), cluster.namespace());
        }
        let own = ControllerMetrics::register(&process.metrics)?;
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
            current: process.live.current().clone(),
            settings: settings.clone(),
            metrics: CensusMetrics::register(&process.metrics)?,
            state: Reported::default(),
        };
        let failing = FailingPods {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            watcher: watcher.clone(),
            current: process.live.current().clone(),
            settings: settings.clone(),
            recorder: recorder.clone(),
            learner: Learner::new(Arc::clone(&cluster), failed_images),
            state: Reported::default(),
        };
        let node_taints = NodeTaints {
            leadership: elector.leadership(),
            cluster: Arc::clone(&cluster),
            watcher: watcher.clone(),
            settings: settings.clone(),
            metrics: own.clone(),
            state: Reported::default(),
        };
        let pending = PendingPods {
            leadership: elector.leadership(),
            cluster,
            watcher,
            current: process.live.current().clone(),
            discovered,
            settings,
            recorder,
            metrics: own,
            state: Reported::default(),
        };
        Ok(Self { process, elector, pending, failing, events, census, node_taints })
    }

    async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { mut process, elector, pending, failing, events, census, node_taints } = self;
        let resignation: Resignation = elector.resignation();
        let mut supervisor = Supervisor::new(process.live.metrics.restarts.clone());
        let mut components = vec![
            supervisor.component("election", elector.state(), elector, |task| Box::pin(task.run())),
            supervisor.component("pending-pods", pending.state.clone(), pending, |task| Box::pin(task.run())),
            supervisor.component("failing-pods", failing.state.clone(), failing, |task| Box::pin(task.run())),
            supervisor.component("events", events.state.clone(), events, |task| Box::pin(task.run())),
            supervisor.component("census", census.state.clone(), census, |task| Box::pin(task.run())),
            supervisor.component("node-taints", node_taints.state.clone(), node_taints, |task| {
                Box::pin(task.run())
            }),
        ];
        components.extend(process.supervise(&mut supervisor));
        let mut admin = process.answer(components)?;
        tokio::select! {
            () = shutdown => {}
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            error = admin.ended() => return Err(error),
        }
        tracing::info!("ending");
        // First all that acts by the Lease.
        supervisor.stop().await;
        resignation.resign().await;
        admin.stop().await;
        Ok(())
    }
}

/// Runs the controller until SIGTERM or SIGINT, a second of which ends it at once.
pub async fn run(config: Config, sources: Sources, levels: Levels) -> Result<(), ServeError> {
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    // Before the files are used, so that no change after that is missed.
    let seen = FileVersions::now(&sources, &config).await;
    let repair = config.controller.repair;
    let mut controller = Controller::bind(config, &sources.environment).await?;
    let Live { metrics, .. } = &controller.process.live;
    logging::count_panics(metrics.panics.clone());
    let admin = address(&controller.process.admin);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), admin, repair, "controlling");
    controller.process.follow(sources, levels, seen);
    let shutdown = Notify::new();
    signals.until(&shutdown, controller.run(shutdown.notified())).await
}

fn name(environment: &Environment) -> String {
    environment.text("HOSTNAME").unwrap_or_else(|| "tolerarch".to_owned())
}

/// By what this process is known, and no other: the Pod's name, and what differs with each start of its container.
fn identity(environment: &Environment) -> String {
    format!("{}_{:016x}", name(environment), fastrand::u64(..))
}
