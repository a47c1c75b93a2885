//! `tolerarch serve`: flags over the configuration, and a runtime that runs the webhook.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{Shared, configure, fail};
use crate::config::Config;
use crate::{logging, serve};

/// Look-ups of names that hang cannot be cancelled; the process does not wait longer for them.
const RUNTIME_FINISH_TIME: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The serving certificate and its chain, PEM [default: /etc/tolerarch/tls/tls.crt]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM [default: /etc/tolerarch/tls/tls.key]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Where reviews are answered [default: [::]:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where metrics and probes are answered [default: [::]:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        let config = match configure(shared) {
            Ok(config) => self.over(config),
            Err(error) => return fail(&error),
        };
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&error),
        };
        let logging = logging::start(config.log.level, config.log.format);
        let served = runtime.block_on(serve::run(config));
        runtime.shutdown_timeout(RUNTIME_FINISH_TIME);
        drop(logging);
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        }
    }

    fn over(self, mut config: Config) -> Config {
        let Self { tls_cert, tls_key, listen, admin_listen } = self;
        config.server.files.certificate = tls_cert.unwrap_or(config.server.files.certificate);
        config.server.files.key = tls_key.unwrap_or(config.server.files.key);
        config.server.listen = listen.unwrap_or(config.server.listen);
        config.admin.listen = admin_listen.unwrap_or(config.admin.listen);
        config
    }
}
