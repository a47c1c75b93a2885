//! Wiring of the services. This file has `tolerarch serve`, from its configuration to its end.

mod certificates;
mod controller;
mod discovery;
mod error;
mod failed_images;
mod metrics;
mod process;
mod reload;
mod signals;
mod snapshot;
mod supervisor;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Duration;

use crate::config::{Config, Sources};
use tolerarch_engine::decide::{Snapshot, caught};
use tolerarch_engine::warm_start;
use tolerarch_images::registry::Traces;
use tolerarch_kubernetes::cluster::Caller;
use tolerarch_kubernetes::discovery::Discovery;
use tolerarch_support::environment::Environment;
use tolerarch_support::health::{Component, Reported, State};
use tolerarch_support::logging::Levels;
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::admission::Webhook;
use tolerarch_webhook::listener::{Limits, Listener, Phase};
use tolerarch_webhook::tls::{ServingCertificate, TlsMetrics};

pub use certificates::run as run_certificates;
pub use controller::run as run_controller;
pub use error::ServeError;
use metrics::Families;
use process::{Process, address, listen};
pub use snapshot::ClusterState;
use snapshot::Live;

/// Builds, for the commands, the snapshot from which `serve` would decide. `traces` records the requests to registries.
pub fn snapshot(
    config: &Config,
    environment: &Environment,
    traces: Option<Traces>,
    cluster_state: Option<&ClusterState>,
) -> Result<Snapshot, ServeError> {
    let metrics = Metrics::new([])?;
    let families = Families::register(&metrics, &metrics)?;
    let snapshot = snapshot::load(
        config,
        &families,
        None,
        traces,
        Caller::Person,
        environment,
        None,
    )?;
    let Some(state) = cluster_state else {
        return Ok(snapshot);
    };
    let discovery = Discovery::of(&config.policy.pools, &state.inventory);
    let (policy, profiles) = snapshot::policies(config, discovery, state.is_complete);
    Ok(Snapshot {
        policy,
        profiles,
        ..snapshot
    })
}

/// Webhook that listens but does not answer yet.
pub struct Server {
    listener: Listener,
    phase: watch::Sender<Phase>,
    drain: Duration,
    live: Live,
    process: Process,
}

/// Maximum idle time of a connection: longer than the API server's own 90 s, so that no review is sent on a connection that
/// is being closed.
pub const IDLE_TIME: Duration = Duration::from_secs(180);
/// Idle time below which a connection is not closed when the listener is full: a review may be coming.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

impl Server {
    /// Assembles the parts, binds both ports, and starts the tasks that follow the certificate, the files and the cluster.
    ///
    /// # Errors
    /// Fails if any part cannot be set up: not to start is better than to start without it.
    pub async fn bind(config: Config, environment: &Environment) -> Result<Self, ServeError> {
        let Config { server, tls, .. } = config.clone();
        // Bound first, so that the port of reviews is open when the port of probes is.
        let tcp = listen("server.listen", server.listen).await?;
        let mut process = Process::bind(&config).await?;
        let counts = TlsMetrics::register(&process.metrics)?;
        let (certificate, watch) =
            ServingCertificate::load(server.files, tls.mode, tls.server_name, counts.clone())?;
        process
            .components
            .push(Component::reported("certificate", watch.state.clone()));
        process
            .supervisor
            .keep("certificate-watch", watch.state.clone(), watch, |task| {
                Box::pin(task.run())
            });
        let tls = (Arc::new(certificate.server_config()?), counts);
        let (live, shared_cache) = process.load(config, environment, None).await?;
        process.components.push(credentials(&live));
        process.keep_current(&live, shared_cache)?;
        process.components.extend(warm(&live));
        let (phase, phases) = watch::channel(Phase::Serving);
        process.components.push(serving(phases));
        let connections = server.max_connections;
        let listener = Listener {
            tcp,
            tls: Some(tls),
            router: Webhook::new(Arc::clone(&live.current), live.metrics.reviews.clone()).router(),
            // API servers may share one address.
            limits: Limits {
                connections,
                per_peer: connections,
                grace_period: GRACE_PERIOD,
            },
            // Go's client opens connections before it needs them.
            first: IDLE_TIME,
            idle: IDLE_TIME,
        };
        Ok(Self {
            listener,
            phase,
            drain: server.drain,
            live,
            process,
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.tcp.local_addr()
    }

    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.process.admin.local_addr()
    }

    /// Answers until `shutdown` completes, then for the drain time, then until open requests are answered.
    ///
    /// The drain is needed because the API server keeps using connections to a Pod that is about to end
    /// (kubernetes/kubernetes#127335), and because endpoints are removed some time after the signal.
    ///
    /// # Errors
    /// Fails if an accept loop ended by itself: a restart is better than a process that is ready but does not answer.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self {
            listener,
            phase,
            drain,
            process,
            ..
        } = self;
        let serving = async {
            let mut listener = listener.start(phase.subscribe());
            tokio::select! {
                () = shutdown => {}
                _ = &mut listener => return Err(ServeError::Accept("server.listen")),
            }
            tracing::info!(
                drain = drain.as_secs_f64(),
                "shutting down: no longer ready, still serving"
            );
            phase.send_replace(Phase::Draining);
            tokio::time::sleep(drain).await;
            phase.send_replace(Phase::Stopping);
            if let Err(error) = listener.await {
                tracing::error!(%error, "internal error: the accept loop failed");
            }
            Ok(())
        };
        process.run(serving).await
    }
}

/// Runs the webhook until SIGTERM or SIGINT; a second signal ends it at once. Follows changes of the sources.
pub async fn run(config: Config, sources: Sources, levels: Levels) -> Result<(), ServeError> {
    signals::until_signalled(async move |shutdown| {
        // Read before the files are used, so that no later change is missed.
        let seen = reload::FileVersions::now(&sources, &config).await;
        let mut server = Server::bind(config, &sources.environment).await?;
        let Server {
            listener,
            live,
            process,
            ..
        } = &mut server;
        let Config {
            policy,
            credentials,
            ..
        } = live.config();
        let pools: Vec<&str> = policy.pools.iter().map(|pool| &*pool.name).collect();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            listen = address(&listener.tcp),
            admin = address(&process.admin),
            mode = format!("{:?}", policy.mode).to_lowercase(),
            pools = pools.join(","),
            config = sources
                .file
                .as_deref()
                .map(|file| file.display().to_string()),
            credentials = credentials.sources().join(","),
            "serving"
        );
        process.follow(live, sources, levels, seen);
        server.run(shutdown).await
    })
    .await
}

fn credentials(live: &Live) -> Component {
    let current = Arc::clone(&live.current);
    Component::new("credentials", move || {
        let credentials = &current.load_full().credentials;
        if !credentials.is_configured() {
            return None;
        }
        Some(match credentials.faults() {
            [] => State::Healthy,
            _ => State::Degraded(
                "a source cannot be used; the log names it, and the other sources are in use",
            ),
        })
    })
}

fn serving(phases: watch::Receiver<Phase>) -> Component {
    Component::new("serving", move || match *phases.borrow() {
        Phase::Serving => [State::Healthy],
        Phase::Draining | Phase::Stopping => [State::Failed("")],
    })
}

/// Starts the lookup of the images of running Pods in the background; returns the component with its state.
fn warm(live: &Live) -> Option<Component> {
    let settings = live.config().warm;
    if !settings.from_pods {
        return None;
    }
    let current = Arc::clone(&live.current);
    let state = Reported::default();
    let component = Component::reported("warm-start", state.clone());
    match live.watcher() {
        Ok(watcher) => drop(tokio::spawn(async move {
            let warmed = warm_start::run(watcher, current, settings, state.clone());
            // The panic has already been logged with its location.
            if caught(warmed).await.is_none() {
                state.set(State::Degraded("internal error: it ended with a panic"));
            }
        })),
        Err(error) => {
            tracing::warn!(%error, "cache.warm.fromPods: Pods cannot be listed");
            state.set(State::Degraded(warm_start::NOT_LISTED));
        }
    }
    Some(component)
}
