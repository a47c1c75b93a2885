//! `tolerarch serve`: flags over the configuration, and a runtime that runs the webhook.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{Shared, fail, flag};
use crate::config::{Config, Flag, Sources};
use crate::serve::{self, ServeError};
use tolerarch_support::logging::{self, Levels};

/// Look-ups of names that hang cannot be cancelled; the process does not wait longer for them.
const RUNTIME_FINISH_TIME: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The serving certificate and its chain, PEM [default: /etc/tolerarch/tls/tls.crt]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The certificate's private key, PEM [default: /etc/tolerarch/tls/tls.key]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Where reviews are answered [default: [::]:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where metrics and probes are answered [default: [::]:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        run(shared, self.flags(), serve::run)
    }

    fn flags(self) -> [Option<Flag>; 4] {
        let Self { tls_cert, tls_key, listen, admin_listen } = self;
        [
            flag("--tls-cert", "server.certFile", tls_cert),
            flag("--tls-key", "server.keyFile", tls_key),
            flag("--listen", "server.listen", listen),
            flag("--admin-listen", "admin.listen", admin_listen),
        ]
    }
}

/// Runs a service in a runtime of its own, until it ends.
pub(super) fn run<F: Future<Output = Result<(), ServeError>>>(
    shared: &Shared,
    flags: impl IntoIterator<Item = Option<Flag>>,
    service: impl FnOnce(Config, Sources, Levels) -> F,
) -> ExitCode {
    let sources = shared.sources(flags);
    let loaded = match sources.load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error),
    };
    let config = loaded.config.clone();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let (logging, levels) = logging::start(config.log.level, config.log.format);
    loaded.log_warnings();
    let served = runtime.block_on(service(config, sources, levels));
    runtime.shutdown_timeout(RUNTIME_FINISH_TIME);
    drop(logging);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}
