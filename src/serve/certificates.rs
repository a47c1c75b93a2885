//! Wiring of `tolerarch certificates`, which issues the webhook's certificates with a separate account. The process reads
//! only the objects that it writes, and its configuration once at the start.

use futures_util::FutureExt;

use super::error::ServeError;
use super::process::{Process, address};
use super::signals::until_signalled;
use crate::config::{Config, Sources};
use tolerarch_kubernetes::cluster::{Caller, Cluster};
use tolerarch_support::health::Component;
use tolerarch_support::logging::Levels;
use tolerarch_webhook::tls::{CertificateIssuer, ManagedMetrics, TlsMode};

/// Issues certificates until SIGTERM or SIGINT; a second signal ends it at once.
pub async fn run(config: Config, sources: Sources, _: Levels) -> Result<(), ServeError> {
    if config.tls.mode != TlsMode::Managed {
        return Err(ServeError::NotManaged);
    }
    until_signalled(async move |shutdown| {
        let cluster = Cluster::of(Caller::Service, &sources.environment)
            .map_err(|cause| ServeError::Cluster("tls.mode managed", cause))?;
        let mut process = Process::bind(&config).await?;
        let metrics = ManagedMetrics::register(&process.metrics)?;
        let issuer = CertificateIssuer::new(cluster, config.tls.managed, metrics);
        let state = issuer.state.clone();
        process
            .supervisor
            .keep("certificate-manager", state.clone(), issuer, |task| {
                Box::pin(task.run())
            });
        process
            .components
            .push(Component::reported("certificates", state));
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            admin = address(&process.admin),
            "issuing certificates"
        );
        process
            .run(
                shutdown
                    .inspect(|()| tracing::info!("shutting down"))
                    .map(Ok),
            )
            .await
    })
    .await
}
