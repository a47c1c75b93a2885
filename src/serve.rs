//! `tolerarch serve`: the only wiring. Configuration in, parts put together, run until told to end.

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

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::Duration;
use tokio_util::task::AbortOnDropHandle;

use crate::config::{Config, Sources};
use tolerarch_engine::decide::Snapshot;
use tolerarch_engine::warm_start;
use tolerarch_images::registry::Traces;
use tolerarch_kubernetes::cluster::{Caller, Cluster, Watcher};
use tolerarch_kubernetes::discovery::Discovery;
use tolerarch_support::environment::Environment;
use tolerarch_support::health::{Component, Reported, State};
use tolerarch_support::logging::{self, Levels};
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::admission::Webhook;
use tolerarch_webhook::listener::{Limits, Listener, Phase};
use tolerarch_webhook::tls::{CertificateWatch, SecretWatch, ServingCertificate, TlsMode};

pub use certificates::run as run_certificates;
pub use controller::run as run_controller;
pub use error::ServeError;
use metrics::Families;
use process::{Process, address, listen};
use signals::Signals;
use snapshot::Live;
pub use snapshot::{Discovered, SnapshotError};
use supervisor::Supervisor;

/// What decides under this configuration, for the commands: as `serve` would, where the cluster shows this. `traces` gets
/// what registries are asked.
pub fn snapshot(
    config: &Config,
    environment: &Environment,
    traces: Option<Traces>,
    discovered: Option<&Discovered>,
) -> Result<Snapshot, ServeError> {
    let metrics = Metrics::new([])?;
    let mut snapshot = snapshot::load(
        config,
        &Families::register(&metrics, &metrics)?,
        None,
        traces,
        Caller::Person,
        environment,
        None,
    )?;
    if let Some(Discovered { inventory, is_complete }) = discovered {
        let discovery = Discovery::of(&config.policy.pools, inventory);
        (snapshot.policy, snapshot.profiles) = snapshot::policies(config, discovery, *is_complete);
    }
    Ok(snapshot)
}

/// A webhook that listens, and does not answer yet.
pub struct Server {
    listener: Listener,
    certificate: ServingCertificate,
    renewal: Renewal,
    process: Process,
}

enum Renewal {
    Watch(CertificateWatch),
    Secret(Box<SecretWatch>),
}

/// How long a connection of an API server may rest. Longer than the 90 s after which it closes it itself, so that it never
/// sends a review into a closing connection.
pub const IDLE_TIME: Duration = Duration::from_secs(180);
/// How long a connection is spared that waits for its API server, where there are too many: it may have been opened for a
/// review that is on its way.
const SPARED: Duration = Duration::from_secs(5);
impl Server {
    /// Puts the parts together and binds both ports.
    ///
    /// # Errors
    /// Whatever is missing: it is better not to start than to start half.
    pub async fn bind(config: Config, environment: &Environment) -> Result<Self, ServeError> {
        let Config { server, tls, discover, controller, .. } = config.clone();
        let failed_images = server.failed_images && controller.learn;
        let metrics = Metrics::new(config.registries.hosts.keys().map(String::as_str))?;
        let counts = Families::register(&metrics, &metrics)?;
        let (certificate, renewal) = match tls.mode {
            TlsMode::Files => {
                let (files, name) = (server.files, tls.server_name);
                let (certificate, watch) = ServingCertificate::load(files, name, counts.tls.clone())?;
                (certificate, Renewal::Watch(watch))
            }
            TlsMode::Managed => {
                let certificate = ServingCertificate::none(counts.tls.clone());
                let cluster = Cluster::of(Caller::Service, environment)?;
                let counts = counts.managed.clone();
                let watch = SecretWatch::new(cluster, tls.managed, certificate.clone(), counts);
                (certificate, Renewal::Secret(watch.into()))
            }
        };
        let mut process = Process::bind(config, environment, metrics, counts.clone(), None).await?;
        if discover.is_on() {
            let watcher = Watcher::of(Caller::Service, environment).map_err(ServeError::Discover)?;
            process.discover(watcher.counting(&counts.unread));
        }
        if failed_images {
            let watcher = Watcher::of(Caller::Service, environment).map_err(ServeError::FailedImages)?;
            let namespace = Cluster::of(Caller::Service, environment).map_err(ServeError::FailedImages)?;
            process.follow_failed_images(watcher.counting(&counts.unread), namespace.namespace());
        }
        let listener = Listener {
            tcp: listen("server.listen", server.listen).await?,
            tls: Some(Arc::new(certificate.server_config()?)),
            router: Webhook::new(process.live.current().clone(), counts.reviews).router(),
            // API servers may share one address.
            limits: Limits {
                connections: server.max_connections,
                per_peer: server.max_connections,
                spared: SPARED,
            },
            // Go's client opens connections ahead of need.
            first: IDLE_TIME,
            idle: IDLE_TIME,
            metrics: counts.tls,
        };
        Ok(Self { listener, certificate, renewal, process })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.tcp.local_addr()
    }

    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.process.admin.local_addr()
    }

    /// Answers until `shutdown` is done, then for the drain time, then until open requests are answered.
    ///
    /// The API server goes on using connections to a Pod that is about to end (kubernetes/kubernetes#127335), and
    /// endpoints are taken away some time after the signal; hence the drain.
    ///
    /// # Errors
    /// An accept loop ended by itself: an internal error, after which it is better to be started anew than to be ready and deaf.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { listener, certificate, renewal, mut process } = self;
        let (_warming, warm) = warm(&process.live).unzip();
        let (phase, seen) = watch::channel(Phase::Serving);
        let drain = process.live.config().server.drain;
        let mut supervisor = Supervisor::new(process.live.metrics.restarts.clone());
        let mut components = process.supervise(&mut supervisor);
        let renewing = match renewal {
            Renewal::Watch(watch) => {
                supervisor.keep("certificate-watch", watch, |watch| Box::pin(watch.run()))
            }
            Renewal::Secret(watch) => {
                supervisor.keep("certificate-watch", watch, |watch| Box::pin(watch.run()))
            }
        };
        let certificate =
            Component::new("certificate").checked(move || certificate.state()).reported(renewing);
        let own = seen.clone();
        let serving = Component::new("serving").checked(move || match *own.borrow() {
            Phase::Serving => State::Healthy,
            Phase::Draining | Phase::Stopping => State::Failed(""),
        });
        let current = process.live.current().clone();
        let own = current.clone();
        let credentials = Component::new("credentials")
            .checked(move || match current.get().credentials.faults() {
                [] => State::Healthy,
                _ => State::Degraded("a source cannot be used; the log names it, and the others are in use"),
            })
            .enabled_if(move || own.get().credentials.is_configured());
        components.splice(1..1, [certificate, credentials]);
        components.extend(warm.map(|state| Component::new("warm-start").reported(state)));
        components.push(serving);
        let mut admin = process.answer(components)?;
        let mut listener = tokio::spawn(listener.run(seen));
        tokio::select! {
            () = shutdown => {}
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            _ = &mut listener => return Err(ServeError::Accept("server.listen")),
            error = admin.ended() => return Err(error),
        }
        tracing::info!(drain = drain.as_secs_f64(), "ending: not ready any more, still serving");
        phase.send_replace(Phase::Draining);
        tokio::time::sleep(drain).await;
        phase.send_replace(Phase::Stopping);
        if let Err(error) = listener.await {
            tracing::error!(%error, "internal error: the accept loop failed");
        }
        drop(supervisor);
        admin.stop().await;
        Ok(())
    }
}

/// Runs the webhook until SIGTERM or SIGINT, a second of which ends it at once, with the configuration of these sources as they are at each time.
pub async fn run(config: Config, sources: Sources, levels: Levels) -> Result<(), ServeError> {
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    // Before the files are used, so that no change after that is missed.
    let seen = reload::FileVersions::now(&sources, &config).await;
    let mut server = Server::bind(config, &sources.environment).await?;
    logging::count_panics(server.process.live.metrics.panics.clone());
    let (listen, admin) = (address(&server.listener.tcp), address(&server.process.admin));
    {
        let Config { policy, credentials, .. } = server.process.live.config();
        let mode = format!("{:?}", policy.mode).to_lowercase();
        let pools: Vec<&str> = policy.pools.iter().map(|pool| &*pool.name).collect();
        let config = sources.file.as_deref().map(|file| file.display().to_string());
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            listen,
            admin,
            mode,
            pools = pools.join(","),
            config,
            credentials = credentials.sources().join(","),
            "serving"
        );
    }
    server.process.follow(sources, levels, seen);
    let shutdown = Notify::new();
    signals.until(&shutdown, server.run(shutdown.notified())).await
}

/// Looks up the images of running Pods until the task is dropped, and says how that fares. A help, without which it starts
/// all the same.
fn warm(live: &Live) -> Option<(AbortOnDropHandle<()>, Reported)> {
    let settings = live.config().warm;
    let watcher = settings.from_pods.then(|| Watcher::of(Caller::Service, &live.environment))?;
    let watcher = watcher.map(|watcher| watcher.counting(&live.metrics.unread));
    let (current, state) = (live.current().clone(), Reported::default());
    let reported = state.clone();
    let task = tokio::spawn(async move {
        match watcher {
            Ok(watcher) => {
                let warmed = warm_start::run(watcher, current, settings, state.clone());
                // The panic itself has been logged with its location.
                if AssertUnwindSafe(warmed).catch_unwind().await.is_err() {
                    state.set(State::Degraded("internal error: it ended by a panic"));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cache.warm.fromPods: Pods cannot be listed");
                state.set(State::Degraded(warm_start::NOT_LISTED));
            }
        }
    });
    Some((AbortOnDropHandle::new(task), reported))
}
