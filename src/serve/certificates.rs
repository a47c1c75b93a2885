//! `tolerarch certificates`: the wiring of what issues the webhook's certificates, with an account of its own. It reads nothing
//! but what it writes, and its configuration once, at its start.

use tokio::sync::Notify;

use super::error::ServeError;
use super::metrics::panics;
use super::process::{AdminServer, address, listen};
use super::signals::Signals;
use super::supervisor::{Supervisor, restarts};
use crate::config::{Config, Sources};
use tolerarch_kubernetes::cluster::{Caller, Cluster};
use tolerarch_support::health::{Component, Health};
use tolerarch_support::logging::{self, Levels};
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::tls::{CertificateIssuer, ManagedMetrics, TlsMetrics, TlsMode};

/// Issues certificates until SIGTERM or SIGINT, a second of which ends it at once.
pub async fn run(config: Config, sources: Sources, _: Levels) -> Result<(), ServeError> {
    if config.tls.mode != TlsMode::Managed {
        return Err(ServeError::NotManaged);
    }
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    let metrics = Metrics::new([])?;
    logging::count_panics(panics(&metrics)?);
    let cluster = Cluster::of(Caller::Service, &sources.environment)?;
    let issuer = CertificateIssuer::new(cluster, config.tls.managed, ManagedMetrics::register(&metrics)?);
    let mut supervisor = Supervisor::new(restarts(&metrics)?);
    let state = issuer.state();
    let kept = supervisor.keep("certificate-manager", issuer, |issuer| Box::pin(issuer.run()));
    let component = Component::new("certificates").reported(state).reported(kept);
    let health = Health::register(&metrics, vec![component])?;
    let tcp = listen("admin.listen", config.admin.listen).await?;
    let admin = address(&tcp);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), admin, "issuing certificates");
    // Of the webhook's handshakes and certificate there is nothing to show.
    let counts = TlsMetrics::register(&Metrics::new([])?)?;
    let mut admin = AdminServer::start(tcp, metrics, health, counts);
    let shutdown = Notify::new();
    let serving = async {
        tokio::select! {
            () = shutdown.notified() => {}
            () = supervisor.ended() => return Err(ServeError::Supervisor),
            error = admin.ended() => return Err(error),
        }
        tracing::info!("ending");
        supervisor.stop().await;
        admin.stop().await;
        Ok(())
    };
    signals.until(&shutdown, serving).await
}
