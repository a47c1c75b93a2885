//! Parts that all services share: supervised tasks, and the port of metrics and probes, which shows their health. The
//! webhook and the controller also have the snapshot, and the tasks that update it by the files and the cluster.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::discovery::Discoverer;
use super::error::ServeError;
use super::failed_images::Record;
use super::metrics::Families;
use super::reload::{FileVersions, Follower};
use super::snapshot::Live;
use super::supervisor::{Run, Supervisor};
use crate::config::{Config, Discover, Sources};
use tolerarch_controller::ControllerSettings;
use tolerarch_images::shared_cache::{SharedCacheKeeper, SharedCacheMetrics};
use tolerarch_kubernetes::cluster::{Caller, Cluster, ObjectName, OwnedName};
use tolerarch_support::environment::Environment;
use tolerarch_support::health::{Component, Health, Reported, State};
use tolerarch_support::logging::{self, Levels};
use tolerarch_support::metrics::Metrics;
use tolerarch_support::sync::Mutex;
use tolerarch_webhook::admin::Admin;
use tolerarch_webhook::listener::{Limits, Listener, Phase};

/// Limits on connections to metrics and probes: enough for their readers, but too few to use up the file descriptors that
/// reviews need. At the limit the connection that has been idle longest is closed, so that a probe always gets an answer.
const LIMITS: Limits = Limits {
    connections: 256,
    per_peer: 64,
    grace_period: Duration::ZERO,
};
/// Maximum time until the first request of such a connection.
const FIRST_TIME: Duration = Duration::from_secs(5);
/// Maximum time between two requests of such a connection.
const IDLE_TIME: Duration = Duration::from_secs(15);
/// Maximum time for such connections to end when the process ends.
const FINISH_TIME: Duration = Duration::from_secs(1);
/// Maximum number of connections that wait to be accepted: as many as Linux allows by default (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

pub(super) struct Process {
    pub(super) admin: TcpListener,
    pub(super) metrics: Metrics,
    pub(super) supervisor: Supervisor,
    /// Health of the configuration, which is listed before `components`.
    configuration: Option<Component>,
    pub(super) components: Vec<Component>,
}

impl Process {
    /// Makes a process without tasks. Binds the port of metrics and probes, which [`Process::run`] serves.
    pub(super) async fn bind(config: &Config) -> Result<Self, ServeError> {
        let metrics = Metrics::new(config.registries.hosts.keys().map(String::as_str))?;
        logging::count_panics(&metrics)?;
        let supervisor = Supervisor::register(&metrics)?;
        let admin = listen("admin.listen", config.server.admin).await?;
        Ok(Self {
            admin,
            metrics,
            supervisor,
            configuration: None,
            components: Vec::new(),
        })
    }

    /// Supervises a task that is a health component of its own.
    pub(super) fn keep<T: Send + 'static>(
        &mut self,
        name: &'static str,
        state: Reported,
        task: T,
        run: Run<T>,
    ) {
        self.supervisor.keep(name, state.clone(), task, run);
        self.components.push(Component::reported(name, state));
    }

    /// Builds the snapshot, and the task of its shared cache. `controller` publishes the controller's settings.
    pub(super) async fn load(
        &self,
        config: Config,
        environment: &Environment,
        controller: Option<watch::Sender<ControllerSettings>>,
    ) -> Result<(Live, Option<SharedCacheKeeper>), ServeError> {
        // In the controller, metrics of reviews would look like those of a failing webhook, so they are not rendered.
        let reviews = if controller.is_some() {
            &Metrics::new([])?
        } else {
            &self.metrics
        };
        let families = Families::register(&self.metrics, reviews)?;
        let shared_cache_metrics = SharedCacheMetrics::register(&self.metrics)?;
        let settings = config.shared_cache.clone();
        let (shared, keeper) = SharedCacheKeeper::begin(settings, shared_cache_metrics)
            .await
            .unzip();
        let live = Live::begin(config, shared, families, environment.clone(), controller)?;
        Ok((live, keeper))
    }

    /// Starts the tasks that keep the snapshot current.
    pub(super) fn keep_current(
        &mut self,
        live: &Live,
        shared_cache: Option<SharedCacheKeeper>,
    ) -> Result<(), ServeError> {
        let Config {
            server,
            controller,
            discover,
            ..
        } = live.config();
        let current = Arc::clone(&live.current);
        self.components.push(Component::new("registry-tls", move || {
            match current.load_full().resolver.tls_faults() {
                [] => [State::Healthy],
                _ => [State::Degraded(
                    "a file of a host cannot be used; the log names it, and other hosts are not affected",
                )],
            }
        }));
        if discover.is_on() {
            self.follow_cluster(live, discover)?;
        }
        if controller.learn && (server.failed_images || live.controller_settings.is_some()) {
            self.follow_failed_images(live, controller.failed_images())?;
        }
        if let Some(keeper) = shared_cache {
            self.keep("shared-cache", keeper.state.clone(), keeper, |task| {
                Box::pin(task.run())
            });
        }
        Ok(())
    }

    /// Follows the nodes and NodePools. The component shows the health of both the reading and the task.
    fn follow_cluster(&mut self, live: &Live, discover: Discover) -> Result<(), ServeError> {
        let watcher = live
            .watcher()
            .map_err(|cause| ServeError::Cluster("discover", cause))?;
        let discoverer = Discoverer::new(discover, watcher, live.clone());
        let readiness = discoverer.readiness();
        let task_state = Reported::default();
        self.supervisor
            .keep("discovery", task_state.clone(), discoverer, |task| {
                Box::pin(task.run())
            });
        self.components.push(Component::new("discovery", move || {
            [readiness(), task_state.get()]
        }));
        Ok(())
    }

    /// Follows the controller's record of failed images.
    fn follow_failed_images(&mut self, live: &Live, name: ObjectName) -> Result<(), ServeError> {
        let not_connected = |cause| ServeError::Cluster("server.failedImages", cause);
        let cluster = Cluster::of(Caller::Service, &live.environment).map_err(not_connected)?;
        let record = Record {
            watcher: live.watcher().map_err(not_connected)?,
            name: OwnedName {
                namespace: cluster.namespace().to_owned(),
                name,
            },
            live: live.clone(),
            state: Reported::default(),
        };
        self.keep("failed-images", record.state.clone(), record, |task| {
            Box::pin(task.run())
        });
        Ok(())
    }

    /// Follows changes of the files since `seen`, their versions before they were used.
    pub(super) fn follow(
        &mut self,
        live: &Live,
        sources: Sources,
        levels: Levels,
        seen: FileVersions,
    ) {
        let state = Reported::default();
        if let Some(follower) = Follower::new(live.clone(), sources, levels, seen) {
            let task = (Arc::new(Mutex::new(follower)), state.clone());
            self.supervisor
                .keep("reload", state.clone(), task, |(follower, state)| {
                    Box::pin(Follower::run(follower, state.clone()))
                });
        }
        self.configuration = Some(Component::reported("configuration", state));
    }

    /// Serves metrics and probes until `service` completes and the tasks have ended.
    ///
    /// # Errors
    /// Fails if an accept loop or the supervision ended by itself: after such an internal error a restart is best.
    pub(super) async fn run(
        self,
        service: impl Future<Output = Result<(), ServeError>>,
    ) -> Result<(), ServeError> {
        let Self {
            admin,
            metrics,
            mut supervisor,
            configuration,
            components,
        } = self;
        let components = configuration.into_iter().chain(components).collect();
        let health = Health::register(&metrics, components)?;
        let listener = Listener {
            tcp: admin,
            tls: None,
            router: Admin { metrics, health }.router(),
            limits: LIMITS,
            first: FIRST_TIME,
            idle: IDLE_TIME,
        };
        let (phase, phases) = watch::channel(Phase::Serving);
        let mut admin = listener.start(phases);
        tokio::select! {
            result = service => result?,
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            _ = &mut admin => return Err(ServeError::Accept("admin.listen")),
        }
        supervisor.tasks.shutdown().await;
        phase.send_replace(Phase::Stopping);
        if timeout(FINISH_TIME, admin).await.is_err() {
            tracing::debug!("a connection to the port of metrics and probes was cut off");
        }
        Ok(())
    }
}

/// Returns the address of the socket, for a log line.
pub(super) fn address(tcp: &TcpListener) -> String {
    tcp.local_addr()
        .map_or_else(|_| String::new(), |address| address.to_string())
}

/// Binds a port of the configuration. As for servers in Go (`favoriteAddrFamily`), `[::]` includes IPv4: with any value of
/// `net.ipv6.bindv6only`, and also on a machine without IPv6.
pub(super) async fn listen(
    key: &'static str,
    address: SocketAddr,
) -> Result<TcpListener, ServeError> {
    let bound = if address.is_ipv6() && address.ip().is_unspecified() {
        match listen_on_both_families(address) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        }
    } else {
        TcpListener::bind(address).await
    };
    bound.map_err(|cause| ServeError::Listen {
        key,
        address,
        cause,
    })
}

fn listen_on_both_families(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    SockRef::from(&socket).set_only_v6(false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[tokio::test]
    async fn default_address_accepts_ipv4_and_ipv6() {
        let bound = listen("server.listen", (Ipv6Addr::UNSPECIFIED, 0).into())
            .await
            .unwrap();
        let address = bound.local_addr().unwrap();
        // A machine without IPv6 has no such option.
        if address.is_ipv6() {
            assert!(!SockRef::from(&bound).only_v6().unwrap());
        }
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()))
            .await
            .unwrap();
        let second = listen(
            "server.listen",
            (Ipv6Addr::UNSPECIFIED, address.port()).into(),
        )
        .await
        .unwrap_err();
        assert!(
            matches!(second, ServeError::Listen { cause, .. } if cause.kind() == io::ErrorKind::AddrInUse)
        );
    }
}
