//! What all services share: tasks that are kept running, and the port of metrics and probes, which show how they are.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use prometheus::IntCounter;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::error::ServeError;
use super::supervisor::{Run, Supervisor, restarts};
use tolerarch_support::health::{Component, Health, Reported};
use tolerarch_support::logging;
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::admin::Admin;
use tolerarch_webhook::listener::{Limits, Listener, Phase};

/// Connections of readers of metrics and probes: enough for them, and too few to take the file descriptors that reviews
/// need. Where there are too many, the one that has waited the longest goes, so that a probe always gets through.
const LIMITS: Limits = Limits { connections: 256, per_peer: 64, spared: Duration::ZERO };
/// How long they may take to begin their first request, and how long they may rest.
const FIRST_TIME: Duration = Duration::from_secs(5);
const IDLE_TIME: Duration = Duration::from_secs(15);
const FINISH_TIME: Duration = Duration::from_secs(1);

pub(super) struct Process {
    pub(super) admin: TcpListener,
    pub(super) metrics: Metrics,
    pub(super) supervisor: Supervisor,
    pub(super) components: Vec<Component>,
    panics: IntCounter,
}

impl Process {
    /// A process without tasks. Its port for metrics and probes is bound, and answered once it runs.
    pub(super) async fn bind(admin: SocketAddr, metrics: Metrics) -> Result<Self, ServeError> {
        let panics = panics(&metrics)?;
        let supervisor = Supervisor::new(restarts(&metrics)?);
        let admin = listen("admin.listen", admin).await?;
        Ok(Self { admin, metrics, supervisor, components: Vec::new(), panics })
    }

    /// Counts the panics of the whole operating system process: those of one that runs this alone.
    pub(super) fn count_panics(&self) {
        logging::count_panics(self.panics.clone());
    }

    /// Keeps a task running that is a component by itself, and shows what it reports.
    pub(super) fn keep<T: Send + 'static>(
        &mut self,
        name: &'static str,
        report: Reported,
        task: T,
        run: Run<T>,
    ) {
        let kept = self.supervisor.keep(name, task, run);
        self.components.push(Component::new(name).reported(report).reported(kept));
    }

    /// Answers readers of metrics and probes until `service` is done and the tasks have ended, and then `last`.
    ///
    /// # Errors
    /// An accept loop or the supervision ended by itself: an internal error, after which it is better to be started anew.
    pub(super) async fn run(
        self,
        service: impl Future<Output = Result<(), ServeError>>,
        last: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let Self { admin, metrics, mut supervisor, components, .. } = self;
        let health = Health::register(&metrics, components)?;
        let listener = Listener {
            tcp: admin,
            tls: None,
            router: Admin { metrics, health }.router(),
            limits: LIMITS,
            first: FIRST_TIME,
            idle: IDLE_TIME,
        };
        let (phase, seen) = watch::channel(Phase::Serving);
        let mut admin = tokio::spawn(listener.run(seen));
        tokio::select! {
            done = service => done?,
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            _ = &mut admin => return Err(ServeError::Accept("admin.listen")),
        }
        supervisor.stop().await;
        last.await;
        phase.send_replace(Phase::Stopping);
        if timeout(FINISH_TIME, admin).await.is_err() {
            tracing::debug!("a reader of metrics was cut off");
        }
        Ok(())
    }
}

pub(super) fn panics(metrics: &Metrics) -> Result<IntCounter, prometheus::Error> {
    metrics.counter("tolerarch_panics_total", "Panics of any task or review; each is an internal error.")
}

/// Where it listens, for a log line.
pub(super) fn address(tcp: &TcpListener) -> String {
    tcp.local_addr().map_or_else(|_| String::new(), |address| address.to_string())
}

pub(super) async fn listen(key: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    let mut bound = TcpListener::bind(address).await;
    let has_failed = bound.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AddrInUse);
    // Where the machine has no IPv6, `[::]` means every IPv4 address.
    if has_failed && address.is_ipv6() && address.ip().is_unspecified() {
        bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
    }
    bound.map_err(|cause| ServeError::Listen { key, address, cause })
}
