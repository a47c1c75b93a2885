//! Wiring of `tolerarch controller`. Its decisions, configuration, metrics and probes are those of the webhook.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;

use super::error::ServeError;
use super::process::{Process, address};
use super::reload::FileVersions;
use super::signals::until_signalled;
use super::snapshot::Live;
use crate::config::{Config, Sources};
use tolerarch_controller::{
    Context, ControllerMetrics, ControllerSettings, Elector, LOOPS, Learner, Recorder,
};
use tolerarch_kubernetes::cluster::{Caller, Cluster, OwnedName, Watcher};
use tolerarch_support::environment::Environment;
use tolerarch_support::health::Reported;
use tolerarch_support::logging::Levels;

/// Runs the controller until SIGTERM or SIGINT; a second signal ends it at once.
pub async fn run(config: Config, sources: Sources, levels: Levels) -> Result<(), ServeError> {
    until_signalled(async move |shutdown| {
        // Read before the files are used, so that no later change is missed.
        let seen = FileVersions::now(&sources, &config).await;
        let environment = &sources.environment;
        let not_connected = |cause| ServeError::Cluster("the controller", cause);
        let cluster = Arc::new(Cluster::of(Caller::Service, environment).map_err(not_connected)?);
        let mut process = Process::bind(&config).await?;
        let (sender, settings) = watch::channel(config.controller.clone());
        let (live, shared_cache) = process
            .load(config.clone(), environment, Some(sender))
            .await?;
        process.keep_current(&live, shared_cache)?;
        let watcher = live.watcher().map_err(not_connected)?;
        let resignation = start_loops(&mut process, &live, cluster, watcher, settings)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            admin = address(&process.admin),
            repair = config.controller.repair,
            "controlling"
        );
        process.follow(&live, sources, levels, seen);
        process
            .run(
                shutdown
                    .inspect(|()| tracing::info!("shutting down"))
                    .map(Ok),
            )
            .await?;
        // Only after all tasks that act by the Lease have ended.
        resignation.await;
        Ok(())
    })
    .await
}

/// Starts the election and the loops that act while this replica leads. Returns the future that gives up the Lease, for when
/// the loops have ended.
fn start_loops(
    process: &mut Process,
    live: &Live,
    cluster: Arc<Cluster>,
    watcher: Watcher,
    settings: watch::Receiver<ControllerSettings>,
) -> Result<impl Future<Output = ()> + use<>, ServeError> {
    let environment = &live.environment;
    let Config { controller, .. } = live.config();
    let owned = |name| OwnedName {
        namespace: cluster.namespace().to_owned(),
        name,
    };
    let lease = owned(controller.lease.clone());
    let failed_images = owned(controller.failed_images());
    let metrics = ControllerMetrics::register(&process.metrics)?;
    let elector = Elector::new(Arc::clone(&cluster), lease, identity(environment), &metrics);
    let leadership = elector.leadership();
    let resignation = elector.resignation();
    process.keep("election", elector.state.clone(), elector, |task| {
        Box::pin(task.run())
    });
    let recorder = Recorder::new(Arc::clone(&cluster), name(environment), metrics.clone());
    let learner = Arc::new(Learner::new(Arc::clone(&cluster), failed_images));
    let discovering = live.clone();
    let context = Context {
        leadership,
        cluster,
        watcher,
        current: Arc::clone(&live.current),
        settings,
        metrics,
        recorder,
        learner,
        is_discovered: Arc::new(move || discovering.is_discovered()),
        state: Reported::default(),
    };
    for (name, run) in LOOPS {
        let context = Context {
            state: Reported::default(),
            ..context.clone()
        };
        process.keep(name, context.state.clone(), context, run);
    }
    Ok(resignation)
}

fn name(environment: &Environment) -> String {
    environment
        .text("HOSTNAME")
        .unwrap_or_else(|| "tolerarch".to_owned())
}

/// Returns a unique name of this process: the Pod's name, and a random number for each start of its container.
fn identity(environment: &Environment) -> String {
    format!("{}_{:016x}", name(environment), fastrand::u64(..))
}
