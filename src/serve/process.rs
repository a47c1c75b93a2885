//! What the webhook and the controller are wired of alike, and the metrics and probes that the issuer of certificates has, too.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use super::discovery::Discoverer;
use super::error::ServeError;
use super::failed_images::Record;
use super::metrics::Families;
use super::reload::{FileVersions, Follower};
use super::snapshot::Live;
use super::supervisor::Supervisor;
use crate::config::{Config, Sources};
use tolerarch_controller::ControllerSettings;
use tolerarch_images::shared_cache::SharedCacheKeeper;
use tolerarch_kubernetes::cluster::{OwnedName, Watcher};
use tolerarch_support::environment::Environment;
use tolerarch_support::health::{Component, Health, State};
use tolerarch_support::logging::Levels;
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::admin::Admin;
use tolerarch_webhook::listener::{Limits, Listener, Phase};
use tolerarch_webhook::tls::TlsMetrics;

/// Connections of readers of metrics and probes: enough for them, and too few to take the file descriptors that reviews
/// need. Where there are too many, the one that has waited the longest goes, so that a probe always gets through.
const ADMIN_LIMITS: Limits = Limits { connections: 256, per_peer: 64, spared: Duration::ZERO };
/// How long they may take to begin their first request, and how long they may rest.
const ADMIN_FIRST_TIME: Duration = Duration::from_secs(5);
const ADMIN_IDLE_TIME: Duration = Duration::from_secs(15);
const ADMIN_FINISH_TIME: Duration = Duration::from_secs(1);

/// What decides, follows the files and the cluster, and shows how it fares.
pub(super) struct Process {
    pub(super) admin: TcpListener,
    pub(super) metrics: Metrics,
    pub(super) live: Live,
    follower: Option<Follower>,
    discoverer: Option<Discoverer>,
    failed_images: Option<Record>,
    shared_cache: Option<SharedCacheKeeper>,
}

impl Process {
    pub(super) async fn bind(
        config: Config,
        environment: &Environment,
        metrics: Metrics,
        counts: Families,
        controller: Option<watch::Sender<ControllerSettings>>,
    ) -> Result<Self, ServeError> {
        let shared = SharedCacheKeeper::begin(config.shared_cache.clone(), counts.shared_cache.clone()).await;
        let (shared, shared_cache) = shared.unzip();
        let address = config.admin.listen;
        let live = Live::begin(config, shared, counts, environment.clone(), controller)?;
        let admin = listen("admin.listen", address).await?;
        Ok(Self { admin, metrics, live, follower: None, discoverer: None, failed_images: None, shared_cache })
    }

    /// Takes over changes of the files, which were `seen` so before they were used.
    pub(super) fn follow(&mut self, sources: Sources, levels: Levels, seen: FileVersions) {
        self.follower = Follower::new(self.live.clone(), sources, levels, seen);
    }

    /// Takes over what the cluster shows. Returns whether all of it has been read once.
    pub(super) fn discover(&mut self, watcher: Watcher) -> Arc<AtomicBool> {
        let discoverer = Discoverer::new(self.live.config().discover, watcher, self.live.clone());
        let is_read = discoverer.is_read();
        self.discoverer = Some(discoverer);
        is_read
    }

    /// Takes over what the controller of this namespace records of images that failed.
    pub(super) fn follow_failed_images(&mut self, watcher: Watcher, namespace: &str) {
        let name = self.live.config().controller.failed_images();
        let name = OwnedName { namespace: namespace.to_owned(), name };
        self.failed_images = Some(Record::new(watcher, name, self.live.clone()));
    }

    /// Runs what follows the files and the cluster. Returns how that fares; of a webhook, how the configuration does first.
    pub(super) fn supervise(&mut self, supervisor: &mut Supervisor) -> Vec<Component> {
        let configuration = Component::new("configuration");
        let configuration = match self.follower.take() {
            Some(follower) => {
                let state = follower.state();
                let kept = supervisor.keep("reload", follower, |follower| Box::pin(follower.run()));
                Some(configuration.reported(state).reported(kept))
            }
            None => self.live.controller.is_none().then_some(configuration),
        };
        let current = self.live.current().clone();
        let registry_tls =
            Component::new("registry-tls").checked(move || match current.get().resolver.tls_faults() {
                [] => State::Healthy,
                _ => State::Degraded(
                    "a file of a host cannot be used; the log names it, and other hosts are not affected",
                ),
            });
        let discovery = self.discoverer.take().map(|discoverer| {
            let component = Component::new("discovery").checked(discoverer.readiness());
            component
                .reported(supervisor.keep("discovery", discoverer, |discoverer| Box::pin(discoverer.run())))
        });
        let failed_images = self.failed_images.take().map(|record| {
            supervisor
                .component("failed-images", record.state.clone(), record, |record| Box::pin(record.run()))
        });
        let shared = self.shared_cache.take().map(|keeper| {
            supervisor
                .component("shared-cache", keeper.state.clone(), keeper, |keeper| Box::pin(keeper.run()))
        });
        let first = configuration.into_iter().chain([registry_tls]);
        first.chain(discovery).chain(failed_images).chain(shared).collect()
    }

    pub(super) fn answer(self, components: Vec<Component>) -> Result<AdminServer, ServeError> {
        let health = Health::register(&self.metrics, components)?;
        Ok(AdminServer::start(self.admin, self.metrics, health, self.live.metrics.tls))
    }
}

/// What answers readers of metrics and probes, to the very end.
pub(super) struct AdminServer {
    task: JoinHandle<()>,
    end: watch::Sender<Phase>,
}

impl AdminServer {
    pub(super) fn start(tcp: TcpListener, metrics: Metrics, health: Health, counts: TlsMetrics) -> Self {
        let listener = Listener {
            tcp,
            tls: None,
            router: Admin { metrics, health }.router(),
            limits: ADMIN_LIMITS,
            first: ADMIN_FIRST_TIME,
            idle: ADMIN_IDLE_TIME,
            metrics: counts,
        };
        let (end, ended) = watch::channel(Phase::Serving);
        Self { task: tokio::spawn(listener.run(ended)), end }
    }

    /// Ends only by an internal error.
    pub(super) async fn ended(&mut self) -> ServeError {
        let _ = (&mut self.task).await;
        ServeError::Accept("admin.listen")
    }

    pub(super) async fn stop(self) {
        self.end.send_replace(Phase::Stopping);
        if timeout(ADMIN_FINISH_TIME, self.task).await.is_err() {
            tracing::debug!("a reader of metrics was cut off");
        }
    }
}

/// Where it listens, for a log line.
pub(super) fn address(tcp: &TcpListener) -> String {
    tcp.local_addr().map_or_else(|_| String::new(), |address| address.to_string())
}

/// Listens; where the machine has no IPv6, `[::]` means every IPv4 address.
pub(super) async fn listen(key: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bound = match TcpListener::bind(address).await {
        Err(error)
            if address.is_ipv6()
                && address.ip().is_unspecified()
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.map_err(|cause| ServeError::Listen { key, address, cause })
}
