//! The command line: subcommands, each a few lines over the library, and what the process exits with.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigError};
use crate::logging::{self, Format, Level};
use crate::serve;

/// Look-ups of names that hang cannot be cancelled; the process does not wait longer for them.
const RUNTIME_FINISH_TIME: Duration = Duration::from_millis(500);

/// Opens multi-arch node pools to the Pods whose images run on every architecture of the pool.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the webhook: reviews over HTTPS at /mutate, metrics and probes on the admin port.
    #[command(
        after_help = "Example:\n  tolerarch serve --tls-cert tls.crt --tls-key tls.key --log-format text"
    )]
    Serve(Serve),
}

#[derive(Debug, Args)]
struct Shared {
    /// The configuration; without one, the defaults do the main job
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// From which level on lines are logged [default: info]
    #[arg(long, global = true, value_enum)]
    log_level: Option<Level>,
    /// How a log line looks [default: json]
    #[arg(long, global = true, value_enum)]
    log_format: Option<Format>,
}

#[derive(Debug, Args)]
struct Serve {
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

impl Cli {
    /// Parses the process' arguments and does what they say. Wrong usage ends the process with status 2.
    pub fn parse_and_run() -> ExitCode {
        let Self { command, shared } = Self::parse();
        let config = match configure(&shared) {
            Ok(config) => config,
            Err(error) => return fail(&error),
        };
        let Command::Serve(flags) = command;
        let config = flags.over(config);
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
}

/// The file, and the flags that beat it.
fn configure(shared: &Shared) -> Result<Config, ConfigError> {
    let Shared { config, log_level, log_format } = shared;
    let mut config = config.as_deref().map_or_else(|| Ok(Config::default()), Config::load)?;
    config.log.level = log_level.unwrap_or(config.log.level);
    config.log.format = log_format.unwrap_or(config.log.format);
    Ok(config)
}

impl Serve {
    fn over(self, mut config: Config) -> Config {
        let Self { tls_cert, tls_key, listen, admin_listen } = self;
        config.server.files.certificate = tls_cert.unwrap_or(config.server.files.certificate);
        config.server.files.key = tls_key.unwrap_or(config.server.files.key);
        config.server.listen = listen.unwrap_or(config.server.listen);
        config.admin.listen = admin_listen.unwrap_or(config.admin.listen);
        config
    }
}

/// Tells what went wrong, with its causes, and gives the status for it.
fn fail(error: &dyn StdError) -> ExitCode {
    let mut text = format!("tolerarch: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    eprintln!("{text}");
    ExitCode::FAILURE
}
