//! `tolerarch certificates`: the wiring of what issues the webhook's certificates, with an account of its own. It reads nothing
//! but what it writes, and its configuration once, at its start.

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::metrics::panics;
use super::signals::Signals;
use super::supervisor::{Supervisor, SupervisorMetrics};
use super::{ADMIN_FINISH_TIME, ServeError, admin_listener, listen};
use crate::config::{Config, Sources};
use tolerarch_kubernetes::cluster::{Caller, Cluster};
use tolerarch_support::health::{Component, Health, Reported};
use tolerarch_support::logging::{self, Levels};
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::listener::Phase;
use tolerarch_webhook::tls::{CertificateIssuer, ManagedMetrics, TlsMetrics, TlsMode};

/// Issues certificates until SIGTERM or SIGINT, a second of which ends it at once.
///
/// # Errors
/// It does not start; see [`ServeError`].
pub async fn run(config: Config, sources: Sources, _: Levels) -> Result<(), ServeError> {
    if config.tls.mode != TlsMode::Managed {
        return Err(ServeError::NotManaged);
    }
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    let metrics = Metrics::new([])?;
    logging::count_panics(panics(&metrics)?);
    let cluster = Cluster::of(Caller::Service, &sources.environment)?;
    let issuer = CertificateIssuer::new(cluster, config.tls.managed, ManagedMetrics::register(&metrics)?);
    let issuing = Reported::default();
    let component = Component::new("certificates").reported(issuer.state()).reported(issuing.clone());
    let mut supervisor = Supervisor::new(SupervisorMetrics::register(&metrics)?);
    let health = Health::register(&metrics, vec![component])?;
    let tcp = listen("admin.listen", config.admin.listen).await?;
    let admin = tcp.local_addr().map_or_else(|_| String::new(), |own| own.to_string());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), admin, "issuing certificates");
    // Of the webhook's handshakes and certificate there is nothing to show.
    let counts = TlsMetrics::register(&Metrics::new([])?)?;
    supervisor.keep(issuer, issuing);
    let (end, ended) = watch::channel(Phase::Serving);
    let mut admin = tokio::spawn(admin_listener(tcp, metrics, health, counts).run(ended));
    let shutdown = Notify::new();
    let serving = async {
        tokio::select! {
            () = shutdown.notified() => {}
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            _ = &mut admin => return Err(ServeError::Accept("admin.listen")),
        }
        tracing::info!("ending");
        supervisor.stop().await;
        end.send_replace(Phase::Stopping);
        if timeout(ADMIN_FINISH_TIME, admin).await.is_err() {
            tracing::debug!("a reader of metrics was cut off");
        }
        Ok(())
    };
    signals.until(&shutdown, serving).await
}
