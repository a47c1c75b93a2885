//! `tolerarch serve`, `controller` and `certificates`: flags over the configuration, and a runtime for the service.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{Failure, Shared, flag};
use crate::config::{Config, Flag, Sources};
use crate::serve::{self, ServeError};
use tolerarch_support::logging::{self, Levels};

/// Maximum wait for DNS lookups when the process ends: those that hang cannot be cancelled.
const RUNTIME_FINISH_TIME: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The serving certificate and its chain, PEM [default: /etc/tolerarch/tls/tls.crt]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The certificate's private key, PEM [default: /etc/tolerarch/tls/tls.key]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// The address on which reviews are answered [default: [::]:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    service: Service,
}

/// Flags of all services.
#[derive(Debug, Args)]
pub(super) struct Service {
    /// The address on which metrics and probes are answered [default: [::]:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) fn run(self, shared: &Shared) -> Result<ExitCode, Failure> {
        let Self {
            tls_cert,
            tls_key,
            listen,
            service,
        } = self;
        let flags = [
            flag("--tls-cert", "server.certFile", tls_cert),
            flag("--tls-key", "server.keyFile", tls_key),
            flag("--listen", "server.listen", listen),
        ];
        service.run(shared, flags, serve::run)
    }
}

impl Service {
    /// Runs a service with `flags`, those that only this service has, besides those of all services.
    pub(super) fn run(
        self,
        shared: &Shared,
        flags: impl IntoIterator<Item = Option<Flag>>,
        service: impl AsyncFnOnce(Config, Sources, Levels) -> Result<(), ServeError>,
    ) -> Result<ExitCode, Failure> {
        let admin = flag("--admin-listen", "admin.listen", self.admin_listen);
        let sources = shared.sources(flags.into_iter().chain([admin]));
        let loaded = sources.load()?;
        let config = loaded.config.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let (logging, levels) = logging::start(config.log.level, config.log.format);
        loaded.log_warnings();
        let result = runtime.block_on(service(config, sources, levels));
        runtime.shutdown_timeout(RUNTIME_FINISH_TIME);
        drop(logging);
        result?;
        Ok(ExitCode::SUCCESS)
    }
}
